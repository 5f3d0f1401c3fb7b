"""What lists attentions sees those that are fused, and says why each other one is not, or that no pass says so."""

from __future__ import annotations

import sys

import onnx
from support import ROOT

from surgery.engine import recipe as recipes

sys.path.insert(0, str(ROOT / "benchmarks"))

import attentions

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
PLAIN = """g (float[B,2,S,8] q, float[B,2,T,8] k, float[B,2,T,8] v) => (float[B,2,S,8] y) {
    kt = Transpose<perm = [0, 1, 3, 2]>(k)
    product = MatMul(q, kt)
    p = Softmax(product)
    y = MatMul(p, v)
}"""
BENT = PLAIN.replace("p = Softmax(product)", "bent = Tanh(product)\n p = Softmax(bent)")
FAR = PLAIN.replace("p = Softmax(product)", "bent = Erf(product)\n p = Softmax(bent)")


def _attentions(text: str, tmp_path) -> attentions.Attentions:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(HEAD + text), path)
    return attentions.attentions(path, recipes.load("ort"))


def test_a_fused_attention_is_counted_by_its_operator(tmp_path):
    row = _attentions(PLAIN, tmp_path)
    assert (row.found, row.fused, row.unfused) == (1, {"MultiHeadAttention": 1}, ())
    assert attentions.lines(row) == ["model.onnx: 1 attentions; fused: 1 MultiHeadAttention; unfused: 0"]


def test_each_pass_gives_a_reason_for_an_unfused_attention(tmp_path):
    row = _attentions(BENT, tmp_path)
    (left,) = row.unfused
    assert row.fused == {}
    assert set(left.reasons) == set(attentions.PASSES)
    assert "Tanh is between the product" in left.reasons["fuse-multi-head-attention"]
    assert left.is_explained


def test_an_attention_without_a_reason_from_a_pass_is_found():
    left = attentions.Unfused(("softmax",), {"fuse-attention": "", "fuse-multi-head-attention": "why"})
    row = attentions.Attentions("model.onnx", 1, {}, (left,))
    assert not left.is_explained
    assert "    fuse-attention: SILENT" in attentions.lines(row)


def test_a_subgraph_that_is_not_an_attention_is_not_listed(tmp_path):
    assert _attentions(FAR, tmp_path).found == 0
