"""int64 inside models: kernels for int32, and bounds against what ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support import quantized
from surgery.passes.precision._integer_bounds import IntegerBounds
from surgery.passes.precision.narrow_integers import TIED

from surgery import Graph
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.targets.installed_kernels import kernels

BYTES = "(int8[3,4] x, uint8[3,4] z) => (int64[A,B] y)"
WIDE = "a = Cast<to = 7>(x)  b = Cast<to = 7>(z)"
ONES = "int64[1] one = {1}, int64 five = {5}, int64 less = {-7}, int64[2] two = {0, 1}"
# A result of int8 a and uint8 b, both as int64.
CALLS = {
    "Abs": "y = Abs(a)",
    "Add": "y = Add(a, b)",
    "Clip": "y = Clip(a, less, five)",
    "Clip, above": "y = Clip(a, , five)",
    "Concat": "y = Concat<axis = 1>(a, b)",
    "CumSum": "y = CumSum(a, axis)",
    "Div": "y = Div(a, less)",
    "Gather": "y = Gather(a, two)",
    "Max": "y = Max(a, five)",
    "Min": "y = Min(a, b)",
    "Mod": "y = Mod(a, less)",
    "Mod, as in C": "y = Mod<fmod = 1>(a, five)",
    "Mul": "y = Mul(a, b)",
    "Neg": "y = Neg(a)",
    "Pad": "y = Pad(a, pads, five)",
    "ReduceSum": "y = ReduceSum(a, one)",
    "Sign": "y = Sign(a)",
    "Sub": "y = Sub(a, b)",
    "Where": "c = Greater(a, b)  y = Where(c, a, five)",
}


@pytest.mark.parametrize("name", CALLS)
def test_results_are_within_the_bounds(name: str) -> None:
    model = text.parse(
        f'<ir_version: 8, opset_import: ["" : 17]> g {BYTES} '
        f"<{ONES}, int64 axis = {{1}}, int64[4] pads = {{1, 0, 0, 1}}> {{ {WIDE}  {CALLS[name]} }}"
    )
    stored = storage.from_proto(model)
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
    low, high = IntegerBounds(graph, trust_inputs=False).of(graph.outputs()[0])
    assert -(2**17) < low <= high < 2**17, "the bounds are not those of int64"
    generator = np.random.default_rng(0)
    extremes = [(-128, 255), (127, 255), (-128, 0), (127, 0)]
    feeds = [(np.full((3, 4), x, np.int8), np.full((3, 4), z, np.uint8)) for x, z in extremes]
    feeds.append((generator.integers(-128, 128, (3, 4), np.int8), generator.integers(0, 256, (3, 4), np.uint8)))
    for x, z in feeds:
        (found,) = quantized.run(model, {"x": x, "z": z}, optimized=False)
        assert low <= found.min() and found.max() <= high


def test_onnx_runtime_computes_each_operator_in_int32() -> None:
    known = kernels("CPUExecutionProvider")
    lacking = {
        op
        for op in TIED
        if not any("int32" in names for row in known["", op] for names in row.types.values())
        and any(row.types for row in known["", op])
    }
    # ONNX Runtime lists no types for operators that move elements of any type.
    assert lacking == set()


def test_a_model_of_bert_has_less_int64_and_the_same_results() -> None:
    model = quantized.bundled("bert-tiny")
    made = quantized.apply("narrow-integers", model, {"trust_inputs": True})
    onnx.checker.check_model(made, full_check=True)

    def wide(model: onnx.ModelProto) -> int:
        inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
        return sum(value.type.tensor_type.elem_type == onnx.TensorProto.INT64 for value in inferred)

    assert wide(made) < wide(model)
    assert [(value.name, value.type) for value in made.graph.input] == [
        (value.name, value.type) for value in model.graph.input
    ]
    feed = quantized.feed_of(model, 1)
    for wanted, found in zip(*(quantized.run(one, feed, optimized=False) for one in (model, made))):
        np.testing.assert_array_equal(found, wanted)
