"""What counts attentions, ranks the peers and compares padded rows: each must see the fault that it looks for."""

from __future__ import annotations

import sys

import onnx
import pytest
from support import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import runtime_nodes
from suite import cores, padded
from suite.optimizer import in_fork

ATTENTION = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,4] q, float[4,2] k, float[2,2] mask, float[2,4] v) => (float[2,4] y) {
    scores = MatMul(q, k)
    masked = Add(scores, mask)
    weights = Softmax(masked)
    y = MatMul(weights, v)
}"""
ROUTER = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,4] x, float[4,4] gate, float[2,4] v, int64[1] two) => (float[2,4] y, int64[2,2] best) {
    scores = MatMul(x, gate)
    weights = Softmax(scores)
    top, best = TopK(weights, two)
    square = MatMul(top, v)
    y = Identity(square)
}"""
CLASSIFIER = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,4] x, float[4,4] w) => (float[2,4] y) {
    scores = MatMul(x, w)
    y = Softmax(scores)
}"""
FUSED = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[1,2,4] q, float[1,2,4] k, float[1,2,4] v) => (float[1,2,4] y) {
    y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v)
}"""
MASKED = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[batch_size,sequence_length] input_ids, int64[batch_size,sequence_length] attention_mask) =>
  (float[batch_size,sequence_length] y) {
    kept = Mul(input_ids, attention_mask)
    y = Cast <to = 1> (kept)
}"""
UNMASKED = MASKED.replace("Mul(input_ids, attention_mask)", "Identity(input_ids)")


@pytest.mark.parametrize(
    ("text", "written", "fused"), [(ATTENTION, 1, 0), (ROUTER, 0, 0), (CLASSIFIER, 0, 0), (FUSED, 0, 1)]
)
def test_attentions_are_counted(text, written, fused):
    model = onnx.parser.parse_model(text)
    assert cores.written_out(model) == written
    assert cores.fused(model).total() == fused


def _saved(text: str, path):
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def test_a_model_without_its_mask_is_wrong_on_padded_rows_only(tmp_path):
    raw, other = _saved(MASKED, tmp_path / "raw.onnx"), _saved(UNMASKED, tmp_path / "other.onnx")
    expected, names = padded.reference(raw)
    paddings = [word.split()[0] for word, *_ in expected]
    assert sorted(paddings) == ["left"] * 2 + ["none"] * 2 + ["right"] * 2 + ["row"] * 2
    assert padded.wrong(expected, names, raw) == {"sets": 8, "wrong": 0, "first": "", "error": 0.0}
    found = padded.wrong(expected, names, other)
    assert (found["sets"], found["wrong"]) == (8, 6)
    assert "left padding, batch 1" in found["first"]


def test_caches_of_no_token_and_of_odd_length_are_compared():
    sizes = {(feed["past_key_values.0.key"].shape[2], feed["input_ids"].shape) for _, feed in padded.sets(_DECODER)}
    assert sizes == {(past, (batch, new)) for past in (0, 1, 5) for batch in (1, 3) for new in (1, 8)}
    for _, feed in padded.sets(_DECODER):
        past, new = feed["past_key_values.0.key"].shape[2], feed["input_ids"].shape[1]
        assert feed["attention_mask"].shape[1] == past + new


_CACHED = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[batch_size,sequence_length] input_ids, int64[batch_size,total] attention_mask,
   float[batch_size,2,past_sequence_length,4] cache) => (int64[batch_size,sequence_length] y) {
    y = Identity(input_ids)
}"""


@pytest.fixture(autouse=True, scope="module")
def _decoder(tmp_path_factory):
    """A model with a cache; the names are those of an export, which ONNX text cannot write."""
    global _DECODER
    model = onnx.parser.parse_model(_CACHED)
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "past_sequence_length + sequence_length"
    model.graph.input[2].name = "past_key_values.0.key"
    _DECODER = tmp_path_factory.mktemp("decoder") / "decoder.onnx"
    onnx.save(model, _DECODER)


def test_the_best_model_type_loads_and_is_correct():
    ways = {
        "broken": {"nodes": 1, "failure": "does not load"},
        "wrong": {"nodes": 2, "check": {"wrong": 3, "sets": 8}},
        "right": {"nodes": 3, "check": {"wrong": 0, "sets": 8}},
        "more": {"nodes": 4},
    }
    assert runtime_nodes.best(ways)["name"] == "right"
    assert runtime_nodes.best({"broken": ways["broken"]})["failure"] == "no model type works"


def test_the_ratio_is_relative_to_the_better_peer():
    row = {"ORT extended": {"nodes": 20}, "optimizer": {"nodes": 10}, "surgery": {"default": {"nodes": 5}}}
    assert runtime_nodes.ratio(row, "default") == 0.5
    row["optimizer"]["check"] = {"wrong": 1, "sets": 8}
    assert runtime_nodes.ratio(row, "default") == 0.25
    row["surgery"]["default"] = {"failure": "wrote nothing"}
    assert runtime_nodes.ratio(row, "default") is None


def test_a_tool_run_that_hangs_or_dies_is_a_failure():
    def hang():
        while True:
            pass

    def die():
        raise ValueError("no such pattern")

    assert in_fork(lambda: {"nodes": 1}, 10) == {"nodes": 1}
    assert in_fork(hang, 0.3) == {"failure": "not done in 0 s"}
    assert in_fork(die, 10) == {"failure": "ValueError: no such pattern"}
