"""Indices that reach an operator in another shape than the input has, or as a part of the input, are legal."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from surgery.verification.verdict.verifier import Verifier


def _prepared(body: str) -> Verifier:
    weights = "<int64 zero = {0}, int64[1] last = {-1}, int64[2] to = {1, 4}, int64[4] four = {1, 1, 2, 2}>"
    text = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>\ng ' + body.replace("{", f"{weights} {{", 1)
    verifier = Verifier(onnx.parser.parse_model(text).SerializeToString())
    verifier.original.prepare()
    assert verifier.original.problem is None, verifier.original.problem
    return verifier


_ONCE = [
    "(float[4] x, int64[9,3] i, float[3] w) => (float[a] y) { e = Gather(i, zero) y = ScatterElements(x, e, w) }",
    "(float[40] x, int64[2,e] i, float[e] w) => (float[a] y) { e = Gather(i, zero) y = ScatterElements(x, e, w) }",
    """(float[9,4] x, int64[3] i, float[3,4] w) => (float[a,b] y) {
        u = Unsqueeze(i, last) e = Expand(u, to) y = ScatterElements(x, e, w) }""",
    "(float[7] x, int64[2,3] i, float[6] w) => (float[a] y) { e = Reshape(i, last) y = ScatterElements(x, e, w) }",
    """(float[1,1,2,2] x, int64[2,2] i) => (float[a,b,c,d] y) {
        e = Reshape(i, four) y = MaxUnpool<kernel_shape = [1, 1]>(x, e) }""",
]
"""Each index is written once, so that no order of writes decides."""


@pytest.mark.parametrize(
    "body",
    [
        """(float[n,6] x, int64[2,e] i) => (float[a,b] y) {
            e = Gather(i, zero) u = Unsqueeze(e, last) y = GatherND(x, u) }""",
        "(float[n,6] x, int64[e] i) => (float[a,b] y) { u = Unsqueeze(i, last) y = GatherND(x, u) }",
        "(float[9,30] x, int64[e,1] i, int64[e,1] j) => (float[a] y) { u = Concat<axis = 1>(i, j) y = GatherND(x, u) }",
        "(float[9,300] x, int64[2,e] i) => (float[a] y) { u = Transpose(i) y = GatherND(x, u) }",
        """(float[5,4] x, int64[3,7] i, float[7,4] w) => (float[a,b] y) {
            e = Gather(i, zero) u = Unsqueeze(e, last) y = ScatterND<reduction = "add">(x, u, w) }""",
        """(float[1,1,2,2] x, int64[3,1,1,2,2] i) => (float[a,b,c,d] y) {
            e = Gather(i, zero) y = MaxUnpool<kernel_shape = [1, 1]>(x, e) }""",
        """(float[3,4,8] q, float[8,24] w, float[24] b, int32[2,3] k) => (float[3,4,8] y) {
            l = Gather(k, zero) y = com.microsoft.Attention<num_heads = 2>(q, w, b, l) }""",
        *_ONCE,
    ],
)
def test_arranged_indices_are_legal_at_the_first_attempt(body: str) -> None:
    """The edges of a graph are one input: `x[edge_index[0]]`."""
    assert [entry["refused"] for entry in _prepared(body).original.bindings if "refused" in entry] == []


@pytest.mark.parametrize("body", _ONCE)
def test_no_order_of_writes_decides(body: str) -> None:
    for run in _prepared(body).original.runs:
        used = run.feed["i"][0] if "Gather" in body else run.feed["i"]
        assert np.unique(used).size == used.size
