"""Operators of ONNX Runtime for sequences without padding and for position biases, as ONNX operators.

Source: docs/ContribOperators.md. They have no CPU kernels.
"""

from __future__ import annotations

from surgery import Refusal

from ._calls import Call
from ._contrib import UNKNOWN_HEAD, by_head, counted, dims_of, extent, unsqueezed
from ._lowering import Lowering, Result, part

_INT32, _INT64 = "tensor(int32)", "tensor(int64)"


@part("com.microsoft::RemovePadding")
def _remove_padding(call: Call, place: Lowering) -> Result:
    """Take the rows that are not padding; return their places before those of the padding, and cumulative lengths."""
    data, counts = call.input(0), place.cast(call.input(1), _INT64)
    flat = place.integers([-1], "flat")
    used = place.node("Less", counted(None, extent(data, 1, place), place), unsqueezed(counts, [1], place))
    used = place.node("Reshape", used, flat)
    kept, left = (place.node("Reshape", place.node("NonZero", one), flat) for one in (used, place.node("Not", used)))
    rows = place.node("Reshape", data, place.node("Concat", flat, extent(data, 2, place), axis=0))
    places = place.node("Concat", kept, left, axis=0)
    shape = place.node("Concat", extent(data, 0, place), extent(data, 1, place), axis=0)
    sums = place.node("CumSum", counts, place.integers([0], "axis"))
    ends = place.node("Concat", place.integers([0], "none"), sums, axis=0)
    longest = place.node("ReduceMax", counts, place.integers([0], "axes"), keepdims=1)
    others = (place.node("Reshape", places, shape), ends, longest)
    made = place.node("Gather", rows, kept, axis=0)
    return [made, *(place.cast(one, _INT32) for one in others)][: call.outputs]


@part("com.microsoft::RestorePadding")
def _restore_padding(call: Call, place: Lowering) -> Result:
    """Put each row back in its place, with zeros in between."""
    data, offsets = call.input(0), place.cast(call.input(1), _INT64)
    width, flat = extent(data, 1, place), place.integers([-1], "flat")
    places = place.node("Reshape", offsets, flat)
    shape = place.node("Concat", place.node("Shape", places), width, axis=0)
    zeros = place.node("Expand", place.number(0, data, "zero"), shape)
    bounds = (place.integers([0], "start"), extent(data, 0, place), place.integers([0], "axis"))
    used = unsqueezed(place.node("Slice", places, *bounds), [1], place)
    made = place.node("ScatterND", zeros, used, data)
    return place.node("Reshape", made, place.node("Concat", place.node("Shape", offsets), width, axis=0))


@part("com.microsoft::GatedRelativePositionBias")
def _gated_bias(call: Call, place: Lowering) -> Result:
    """Multiply the position bias by a gate for each query, computed from two halves of a product with the query."""
    query, shift, bias, weight, offset, factor, packed = call.first(7)
    assert query is not None and shift is not None and bias is not None and weight is not None
    assert offset is not None and factor is not None
    place.require(packed is None, "the queries have no padding")
    heads, width = int(call.attr("num_heads")), place.width(query)
    columns = dims_of(weight)[1]
    if width is None or not isinstance(columns, int):
        raise Refusal(UNKNOWN_HEAD)
    layer = by_head(place.node("Add", query, shift), heads, place, width // heads)
    made = place.node("Add", place.node("MatMul", layer, weight), offset)
    halves = place.node("Reshape", made, place.integers([0, 0, 0, 2, columns // 2], "halves"))
    gates = place.node("Sigmoid", place.node("ReduceSum", halves, place.integers([-1], "last"), keepdims=0))
    first, second = place.nodes("Split", gates, place.integers([1, 1], "sizes"), outputs=2, axis=-1)
    inner = place.node("Sub", place.node("Mul", second, factor), place.number(1, made, "one"))
    gate = place.node("Add", place.node("Mul", first, inner), place.number(2, made, "two"))
    return place.node("Mul", gate, bias)
