"""Attention with a cache of keys and values, before and after `simplify-attention`, on padded and fully masked rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from support.decomposed import run

from surgery import Graph
from surgery.engine.bridges import run_pass
from surgery.engine.registry.catalog import catalog
from surgery.model import storage
from surgery.model.graph import text

HEADS, GROUPS, SIZE = 4, 2, 8

DECODER = """
<ir_version: 10, opset_import: ["" : OPSET]>
g (float[B,S,32] q, float[B,S,16] k, float[B,S,16] v, float[B,2,P,8] pk, float[B,2,P,8] pv, MASK m)
  => (float[B,S,32] y, float[B,2,W,8] kw, float[B,2,W,8] vw)
<int64[4] cut_q = {0, 0, 4, 8}, int64[4] cut = {0, 0, 2, 8}, int64[3] flat = {0, 0, 32},
 int64[4] groups = {0, 0, 1, 1}>
{
    qr = Reshape(q, cut_q)
    qh = Transpose<perm = [0, 2, 1, 3]>(qr)
    kr = Reshape(k, cut)
    kh = Transpose<perm = [0, 2, 1, 3]>(kr)
    vr = Reshape(v, cut)
    vh = Transpose<perm = [0, 2, 1, 3]>(vr)
    kw = Concat<axis = 2>(pk, kh)
    vw = Concat<axis = 2>(pv, vh)
    kg = Gather<axis = 1>(kw, groups)
    vg = Gather<axis = 1>(vw, groups)
    context = Attention<scale = 0.4>(qh, kg, vg, m)
    rows = Transpose<perm = [0, 2, 1, 3]>(context)
    y = Reshape(rows, flat)
}
"""


def simplified(model: onnx.ModelProto) -> onnx.ModelProto:
    stored = storage.from_proto(model)
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
    declared = catalog.find("simplify-attention")
    run_pass.apply(declared, graph, declared.bind({}))
    return storage.resolve(storage.proto_from_ir(graph.ir, graph.weights))


def visible(padding: str, batch: int, queries: int, past: int) -> np.ndarray[Any, Any]:
    """Return which keys each query sees: those up to its own that are not padded, in the last row of the batch."""
    total = past + queries
    mask = np.repeat(np.tril(np.ones((queries, total), bool), past)[None, None], batch, axis=0)
    if padding == "left":
        mask[-1, ..., : max(1, total // 2)] = False
    if padding == "right":
        mask[-1, ..., -1:] = False
    if padding == "everything":
        mask[-1] = False
    return mask


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("padding", ["none", "left", "right", "everything"])
def test_a_decoder_gives_the_same(opset: int, kind: str, padding: str) -> None:
    model = text.parse(DECODER.replace("OPSET", str(opset)).replace("MASK", f"{kind}[B,1,S,W]"))
    made = simplified(model)
    assert [node.op_type for node in made.graph.node] == ["Attention"]
    rng = np.random.default_rng(opset)
    for batch, queries, past in ((1, 1, 7), (1, 5, 0), (3, 1, 3), (3, 4, 0), (3, 4, 7)):
        mask = visible(padding, batch, queries, past)
        feeds = {
            "q": rng.standard_normal((batch, queries, HEADS * SIZE)),
            **{name: rng.standard_normal((batch, queries, GROUPS * SIZE)) for name in "kv"},
            **{name: rng.standard_normal((batch, GROUPS, past, SIZE)) for name in ("pk", "pv")},
        }
        inputs = {name: array.astype(np.float32) for name, array in feeds.items()}
        inputs["m"] = mask if kind == "bool" else np.where(mask, np.float32(0), np.float32(-np.inf))
        for before, after in zip(run(model, inputs), run(made, inputs), strict=True):
            np.testing.assert_allclose(after, before, rtol=0, atol=1e-6)
