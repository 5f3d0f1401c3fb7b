"""Sizes that older releases of ONNX Runtime run although they are illegal are not used."""

from __future__ import annotations

import onnx
import pytest

from surgery.base.operators.use import Index
from surgery.verification.inputs.search import reflected_too_far, reflecting
from surgery.verification.verdict.verifier import Verifier


def _model(body: str, opset: int = 21) -> onnx.ModelProto:
    weights = "<int64[4] pads = {0, 5, 0, 7}, int64[2] short = {5, 7}, int64[1] axis = {-1}>"
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]>\ng (float[N,S] x) => (float[N,T] y) {weights} {{ {body} }}'
    )


@pytest.mark.parametrize(
    ("body", "opset"),
    [
        ('y = Pad<mode = "reflect">(x, pads)', 21),
        ('y = Pad<mode = "reflect">(x, short, , axis)', 21),
        ('y = Pad<mode = "reflect", pads = [0, 5, 0, 7]>(x)', 9),
    ],
)
def test_a_reflection_is_shorter_than_its_axis(body: str, opset: int) -> None:
    index = Index(_model(body, opset))
    nodes = reflecting(index)
    assert reflected_too_far(index, nodes, {"x": [2, 8]}) is None and reflected_too_far(index, nodes, {}) is None
    assert reflected_too_far(index, nodes, {"x": [2, 7]}) == "Pad 'y': an axis of 7 is reflected by 7"


@pytest.mark.parametrize("mode", ["constant", "edge"])
def test_other_pads_have_any_length(mode: str) -> None:
    assert reflecting(Index(_model(f'y = Pad<mode = "{mode}">(x, pads)'))) == []


def test_no_run_has_such_a_size() -> None:
    verifier = Verifier(_model('y = Pad<mode = "reflect">(x, pads)').SerializeToString())
    verifier.original.prepare()
    assert verifier.original.problem is None
    assert min(run.binding.dims["S"] for run in verifier.original.runs) >= 8
