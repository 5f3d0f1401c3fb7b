"""Operators of ONNX Runtime that ONNX has adopted."""

from __future__ import annotations

from ._calls import Call
from ._lowering import Lowering, Result, part


@part("com.microsoft::GatherND")
def _gather_nd(call: Call, place: Lowering) -> Result:
    return place.node("GatherND", call.input(0), place.cast(call.input(1), "tensor(int64)"))


@part("com.microsoft::ExpandDims")
def _expand_dims(call: Call, place: Lowering) -> Result:
    """Insert one axis of size 1 at a position counted in the result."""
    axis = place.array(call.input(1))
    place.require(axis is not None, "the axis of ExpandDims is computed")
    assert axis is not None
    return place.node("Unsqueeze", call.input(0), place.integers([int(axis.reshape(-1)[0])], "axes"))


@part("com.microsoft::Trilu")
def _trilu(call: Call, place: Lowering) -> Result:
    return place.node("Trilu", *call.inputs[:2], upper=int(call.attr("upper", 1)))


@part("com.microsoft::Range")
def _range(call: Call, place: Lowering) -> Result:
    """Count from start to limit in steps of delta, by default 1."""
    start, limit, delta = call.first(3)
    assert start is not None and limit is not None
    step = place.number(1, start, "one") if delta is None else delta
    return place.node("Range", start, limit, step)


@part("com.microsoft::Pad")
def _pad(call: Call, place: Lowering) -> Result:
    return place.node("Pad", *call.inputs[:3], mode=call.attr("mode", "constant"))
