"""What a graph requires of dims is found, whatever operands its other nodes have."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from surgery.base.promises import Parity
from surgery.verification.comparing.details import Status
from surgery.verification.inputs.dim_constraints import dim_constraints
from surgery.verification.inputs.dims import Implied
from surgery.verification.inputs.feed_plan import FeedPlan
from surgery.verification.inputs.spec import InputsSpec
from surgery.verification.verdict.verifier import Verifier


def _model(body: str, opset: int = 21, **weights: tuple[int, ...]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\ng {body}')
    random = np.random.default_rng(0)
    for name, shape in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(random.normal(size=shape).astype("f4"), name))
    return model


def _implied(model: onnx.ModelProto) -> Implied:
    plan = FeedPlan(model, InputsSpec())
    dims = {port.name: list(port.dims) for port in plan.ports}
    return dim_constraints(model.SerializeToString(), dims, list(plan.dims.names))


OTHER = {
    "a reversal": """r = Slice(x, last, least, axis, last)""",
    "operands with more axes": "s = Shape(x) p = Mul(s, square) r = ReduceMax<keepdims = 0>(p)",
}


@pytest.mark.parametrize("other", OTHER.values(), ids=OTHER)
def test_sizes_are_found_next_to(other: str) -> None:
    weights = """int64[1] last = {-1}, int64[1] least = {-9223372036854775808}, int64[1] axis = {0},
        int64[2,2] square = {1, 2, 3, 4}"""
    kind = "float[N,S] r" if "Slice" in other else "int64 r"
    model = _model(f"(float[N,S] x) => (float[N,3] y, {kind}) <{weights}> {{ {other} y = MatMul(x, w) }}", w=(5, 3))
    assert _implied(model)["sizes"] == {"S": [5]}


def test_sizes_are_found_next_to_bounds_in_attributes() -> None:
    body = "(float[N,S] x) => (float[N,3] y, float[N,T] r) { r = Slice<starts = [1], ends = [3]>(x) y = MatMul(x, w) }"
    assert _implied(_model(body, opset=9, w=(5, 3)))["sizes"] == {"S": [5]}


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_the_weights_of_recurrent_operators_decide_the_features(op: str, gates: int) -> None:
    state = ", float[1,B,G] c" if op == "LSTM" else ""
    body = f"""(float[T,B,F] x, float[1,B,H] h{state}) => (float[T,1,B,7] y) {{
        y = {op}<hidden_size = 7>(x, w, r, , , h{", c" if state else ""}) }}"""
    model = _model(body, w=(1, 7 * gates, 11), r=(1, 7 * gates, 7))
    assert _implied(model)["sizes"] == {"F": [11], "H": [7], **({"G": [7]} if state else {})}
    verifier = Verifier(model.SerializeToString())
    try:
        assert verifier.verify(model.SerializeToString(), Parity.EXACT).status is Status.EQUAL
    finally:
        verifier.close()
