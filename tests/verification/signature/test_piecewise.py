"""A model for a larger batch, made of copies of the model for a smaller one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from surgery.model.graph import text
from surgery.verification.signature.piecewise import Piecewise

MODEL = """g (float[2,3] x, float[3] w, float[N,1] z) => (float[2,3] y, float[3] u, float[2,3] x, float[N,1] v)
    <float[3] c = {1, 2, 3}> {
        [first] s = ReduceSum<keepdims = 1>(x)
        piece_ = Mul(x, w)
        a = Sub(piece_, s)
        u = Add(w, c)
        y = Add(a, c)
        v = Neg(z)
    }"""


def run(model: onnx.ModelProto, **feeds: Any) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return dict(zip((port.name for port in session.get_outputs()), session.run(None, feeds)))


@pytest.mark.parametrize("opset", [13, 18])
def test_each_piece_is_computed_by_itself(opset: int) -> None:
    model = text.parse(MODEL.replace(", float[2,3] x, float[N,1] v)", ", float[N,1] v)"), opset=opset)
    if opset < 18:
        model.ir_version = 8
    made = Piecewise({"x": 0, "z": 0}, {"y": 0, "v": 0}, 3).apply(model)
    onnx.checker.check_model(made, full_check=True)
    rng = np.random.default_rng(0)
    x, w, z = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((6, 3), (3,), (9, 1)))
    found = run(made, x=x, w=w, z=z)
    pieces = [run(model, x=x[2 * n : 2 * n + 2], w=w, z=z[3 * n : 3 * n + 3]) for n in range(3)]
    for name in ("y", "v"):
        np.testing.assert_array_equal(found[name], np.concatenate([piece[name] for piece in pieces]))
    np.testing.assert_array_equal(found["u"], pieces[0]["u"])


def test_declared_extents_are_multiplied_and_weights_shared() -> None:
    made = Piecewise({"x": 1}, {"y": 1}, 2).apply(text.parse(MODEL)).graph
    shapes = {
        port.name: [dim.dim_value or dim.dim_param for dim in port.type.tensor_type.shape.dim]
        for port in (*made.output, *made.input)
    }
    assert shapes == {"x": [2, 6], "w": [3], "z": ["N", 1], "y": [2, 6], "u": [3], "v": ["N", 1]}
    assert [tensor.name for tensor in made.initializer] == ["c"] and not made.value_info
    # The names of copies clash with none of the model.
    names = [name for node in made.node for name in node.output]
    assert len({*names}) == len(names)
    assert [node.name for node in made.node if node.name] == ["_piece_0/first", "_piece_1/first"]
    # An input that is also an output stays as it is.
    assert sum("x" in node.output for node in made.node) == 0
    joined = {node.output[0]: node.op_type for node in made.node if node.output[0] in "yuv"}
    assert joined == {"y": "Concat", "u": "Identity", "v": "Identity"}


def test_an_axis_beyond_the_declared_shape_changes_no_declaration() -> None:
    model = text.parse("g (float[A,2] x) => (float[A,2] y) { y = Neg(x) }")
    made = Piecewise({"x": 2}, {"y": 0}, 5).apply(model)
    assert made.graph.input[0] == model.graph.input[0] and made.graph.output[0] == model.graph.output[0]
