"""Values that grow or shrink like a power of the inputs: float16 holds them at the magnitude that was drawn only."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from support.calibrated import run_passes

from surgery.model.graph.graph import Graph

Array = np.ndarray[Any, Any]

HEAD = '<ir_version: 10, opset_import: ["" : 18, "f" : 1]>\n'
DRAWN = np.array([[0.5, 1, -2, 1.5], [-1, 2, 0.25, 1]], np.float32)

POWERS = {
    "a fourth power": "a = Mul(x, x) y = Mul(a, a)",
    "a power": "a = Pow(x, four) y = Neg(a)",
    "a product over an axis": "a = ReduceProd(x, axes) y = Neg(a)",
    "a cube of a sum": "s = ReduceSum(x, axes) a = Mul(s, s) b = Mul(a, s) y = Neg(b)",
    "a square of squares": "a = ReduceSumSquare(x, axes) b = ReduceSumSquare(a, axes) y = Neg(b)",
    "a product of matrices": (
        "t = Transpose<perm=[1, 0]>(x) a = MatMul(x, t) b = MatMul(a, x) c = MatMul(b, t) y = Neg(c)"
    ),
    "a fourth power that is scaled back": "a = Mul(x, x) b = Mul(a, a) y = Div(b, x)",
    "a fourth power in a branch": (
        "h = ReduceMax(x) z = Less(h, million) y = If (z) <"
        "then_branch = p () => (float[A,B] q) { c = Mul(x, x) q = Mul(c, c) }, "
        "else_branch = r () => (float[A,B] w) { w = Neg(x) }>"
    ),
}
"""Nodes between x and y."""


def model(body: str, functions: str = "") -> onnx.ModelProto:
    constants = "float four = {4}, float million = {1000000}, int64[1] axes = {1}"
    return onnx.parser.parse_model(f"{HEAD} g (float[N,4] x) => (float[A,B] y) <{constants}> {{ {body} }} {functions}")


def converted(proto: onnx.ModelProto, *, is_drawn: bool = True) -> tuple[onnx.ModelProto, Graph]:
    return run_passes(proto, ("to-float16", {"runtime": "any"}), feeds=[{"x": DRAWN}], is_drawn=is_drawn)


def run(proto: onnx.ModelProto, x: Array) -> Array:
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(proto).run(None, {"x": x})[0]


def narrow(proto: onnx.ModelProto) -> int:
    return sum(node.op_type == "Cast" and node.attribute[0].i == 10 for node in proto.graph.node)


@pytest.mark.parametrize("size", [1e-3, 50.0])
@pytest.mark.parametrize("body", POWERS.values(), ids=POWERS)
def test_powers_of_inputs_keep_their_range(body: str, size: float) -> None:
    proto = model(body)
    x = DRAWN * np.float32(size / 2)
    made, _ = converted(proto)
    np.testing.assert_allclose(run(made, x), run(proto, x), rtol=1e-2)


def test_an_exponential_keeps_its_range() -> None:
    proto = model("y = Exp(x)")
    made, graph = converted(proto)
    assert not graph.sites
    np.testing.assert_allclose(run(made, DRAWN * 10), run(proto, DRAWN * 10), rtol=1e-6)


def test_a_power_in_a_function_keeps_its_range() -> None:
    function = '<domain: "f", opset_import: ["" : 18]> fourth (a) => (c) { b = Mul(a, a) c = Mul(b, b) }'
    proto = model("y = f.fourth(x)", function)
    made, _ = converted(proto)
    np.testing.assert_allclose(run(made, DRAWN * 25), run(proto, DRAWN * 25), rtol=1e-2)


@pytest.mark.parametrize("body", ["y = Softmax(x)", "a = Sigmoid(x) y = Mul(a, x)", "a = Tanh(x) y = Mul(a, four)"])
def test_what_grows_no_faster_than_the_input_is_converted(body: str) -> None:
    made, graph = converted(model(body))
    assert narrow(made)
    assert not graph.refusals


def test_given_inputs_are_taken_at_their_word() -> None:
    """The magnitude of inputs that the user gave is that of use."""
    made, graph = converted(model(POWERS["a fourth power"]), is_drawn=False)
    assert narrow(made)
    assert not graph.refusals


@pytest.mark.parametrize(("width", "layers"), [(8, 0), (64, 1)])
def test_a_layer_with_large_weights_before_a_jump_is_converted(width: int, layers: int) -> None:
    """Its results have a rounding error in any case; a small one is kept in float32 with what jumps."""
    proto = onnx.parser.parse_model(
        f"{HEAD} g (float[N,{width}] x) => (float[N,{width}] y) {{ a = MatMul(x, w) b = Relu(a) y = Floor(b) }}"
    )
    weight = np.random.default_rng(0).standard_normal((width, width)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    made, graph = run_passes(
        proto, ("to-float16", {"runtime": "any"}), feeds=[{"x": np.ones((2, width), np.float32)}], is_drawn=True
    )
    assert [site.anchor.split()[0] for site in graph.sites] == ["MatMul"] * layers
    assert sum(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in made.graph.initializer) == layers
