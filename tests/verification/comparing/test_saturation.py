"""Outputs that sit at their bounds are no proof."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from surgery.base.promises import Parity
from surgery.verification.comparing.compare import ComparisonRules
from surgery.verification.comparing.saturation import Saturation, bounds
from surgery.verification.verdict.verifier import Verifier

IR = '<ir_version: 10, opset_import: ["": 21]>'


def _model(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{IR}\ng (float[N,24] x) => (float[N,S] y) {{ {body} }}")


@pytest.mark.parametrize(
    ("body", "limits"),
    [
        ("y = Sigmoid(x)", (0.0, 1.0)),
        ("y = HardSigmoid(x)", (0.0, 1.0)),
        ("y = Softmax(x)", (0.0, 1.0)),
        ("y = Tanh(x)", (-1.0, 1.0)),
        ("t = Tanh(x) u = Transpose(t) v = Identity(u) y = Cast<to=1>(v)", (-1.0, 1.0)),
        ("a = Constant<value_float=-2.0>() b = Constant<value=float {5}>() y = Clip(x, a, b)", None),
        ("a = Constant<value=float {-2}>() b = Constant<value=float {5}>() y = Clip(x, a, b)", (-2.0, 5.0)),
        ("a = Constant<value=float {0}>() y = Clip(x, a)", None),
        ("s = Sigmoid(x) y = Mul(s, x)", None),
        ("y = Relu(x)", None),
        ("y = Identity(x)", None),
    ],
)
def test_bounds_are_read_from_the_graph(body, limits):
    assert bounds(_model(body)).get("y") == limits


@pytest.mark.parametrize(
    ("values", "promise", "expected"),
    [
        ([0.0, 1.0] * 16, Parity.EXACT, True),
        ([0.0, 1.0] * 16 + [0.5], Parity.EXACT, False),
        ([1e-9, 1.0] * 16, Parity.EXACT, False),
        ([1e-9, 1.0] * 16, Parity.CLOSE, True),
        ([1e-3, 1.0] * 16, Parity.CLOSE, False),
        ([0.0, 1.0] * 4, Parity.EXACT, False),
        ([0.0, 1.0] * 1000 + [0.5], Parity.EXACT, True),
    ],
)
def test_outputs_almost_only_at_the_bounds_are_saturated(values, promise, expected):
    found = Saturation((0.0, 1.0), ComparisonRules(promise))
    for part in np.array_split(np.array(values, np.float32), 3):
        found.add(part)
    assert bool(found) is expected


STEPS = ",".join(f"{50.0 * (i + 1)}" for i in range(24))
# Where the input is 0 the steps tell the columns apart, and keep them from the middle.
FAR = f"c = Constant<value_float=1e5>() s = Constant<value_floats=[{STEPS}]>() p = Mul(x, c) m = Add(p, s)"


@pytest.mark.parametrize("operator", ["Sigmoid", "Tanh", "Softmax", "Erf"])
def test_saturated_outputs_are_found(operator):
    model = _model(f"{FAR} y = {operator}(m)").SerializeToString()
    verifier = Verifier(model)
    verifier.original.prepare()
    found = verifier.original.vacuous[Parity.CLOSE]
    assert "saturated" in found["y"]
    ordinary = Verifier(_model(f"y = {operator}(x)").SerializeToString())
    ordinary.original.prepare()
    assert not ordinary.original.vacuous[Parity.CLOSE]


def test_an_error_after_a_saturated_output_does_not_pass():
    before, after = (_model(f"t = {op}(x) {FAR.replace('x, c', 't, c')} y = Tanh(m)") for op in ("Sin", "Identity"))
    verdict = Verifier(before.SerializeToString()).verify(after.SerializeToString(), Parity.CLOSE)
    assert not verdict.passed, verdict
