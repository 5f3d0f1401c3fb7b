"""Operators that every opset has, replaced for targets that lack them. Conversion to older opsets never needs these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from surgery import Value

from ._calls import Call
from ._lowering import Lowering, Result, part


@part("Reciprocal", plain=True)
def _reciprocal(call: Call, place: Lowering) -> Result:
    """Compute 1 / x, which is also rounded only once."""
    return place.node("Div", place.number(1, call.input(0), "one"), call.input(0))


@part("Neg", plain=True)
def _neg(call: Call, place: Lowering) -> Result:
    """Compute x · (-1), which is exact and has the same signs of zeros as -x."""
    return place.node("Mul", call.input(0), place.number(-1, call.input(0), "minus_one"))


@part("Not", plain=True)
def _not(call: Call, place: Lowering) -> Result:
    """Compute whether x is false."""
    return place.node("Equal", call.input(0), place.constant(np.array(False), "false"))


@part("IsNaN", plain=True)
def _is_nan(call: Call, place: Lowering) -> Result:
    """Compute whether x differs from itself, as only NaN does; before opset 11 Equal has no floating-point types."""
    place.require(place.target >= 11, "before opset 11 Equal compares no floating-point numbers")
    return place.node("Not", place.node("Equal", call.input(0), call.input(0)))


@part("Or", plain=True)
def _or(call: Call, place: Lowering) -> Result:
    """Compute not (not a and not b); ONNX Runtime has no Where of booleans on the CPU, which would also do."""
    neither = place.node("And", place.node("Not", call.input(0)), place.node("Not", call.input(1)))
    return place.node("Not", neither)


@part("Xor", plain=True)
def _xor(call: Call, place: Lowering) -> Result:
    """Compute whether the operands differ."""
    return place.node("Not", place.node("Equal", call.input(0), call.input(1)))


@part("Sum", plain=True)
def _sum(call: Call, place: Lowering) -> Result:
    """Add the operands from the first to the last."""
    return _added(call, place)


@part("Mean", plain=True)
def _mean(call: Call, place: Lowering) -> Result:
    """Divide the sum of the operands by their number."""
    total = _added(call, place)
    return place.node("Div", total, place.number(len(call.inputs), call.input(0), "count"))


def _added(call: Call, place: Lowering) -> Value:
    values = [call.input(index) for index in range(len(call.inputs))]
    if len(values) == 1:
        return place.node("Identity", values[0])
    return reduce(lambda left, right: place.node("Add", left, right), values)


@part("CastLike", plain=True)
def _cast_like(call: Call, place: Lowering) -> Result:
    """Cast to the type of the second input."""
    wanted = place.known_kind(call.input(1))
    if place.kind(call.input(0)) == wanted:
        return place.node("Identity", call.input(0))
    return place.cast(call.input(0), wanted)


@part("Flatten", plain=True)
def _flatten(call: Call, place: Lowering) -> Result:
    """Reshape to the products of the dims before the axis and from it on. One is known, so the other is open."""
    data = call.input(0)
    dims = data.shape or (None,) * place.rank(data)
    axis = call.attr("axis") + (len(dims) if call.attr("axis") < 0 else 0)
    before, after = _product(dims[:axis]), _product(dims[axis:])
    place.require(before or after, "neither the dims before the axis nor those from it on are known")
    # A copied dim, unlike an open one, also says that no dim changes.
    shape = [before or (0 if axis == 1 else -1), after or -1]
    return place.node("Reshape", data, place.integers(shape, "flat"))


def _product(dims: Sequence[int | str | None]) -> int:
    """Return the product of dims, or 0 if it is not known or empty."""
    return math.prod(dim if isinstance(dim, int) else 0 for dim in dims)


@part("GatherND", plain=True)
def _gather_nd(call: Call, place: Lowering) -> Result:
    """Gather from the data with its first dims joined into one, at the position there of each index tuple."""
    data, tuples = call.input(0), call.input(1)
    place.require(not call.attr("batch_dims", 0), "the batches have indices of their own")
    found, count = place.array(tuples), place.width(tuples)
    count = found.shape[-1] if found is not None else count
    if count == 1:
        return place.node("Gather", data, _squeezed(tuples, found, place), axis=0)
    extents = [extent for extent in data.shape or () if isinstance(extent, int) and extent]
    place.require(count and len(extents) == place.rank(data), "the dims of the data are not known")
    joined, rest = extents[:count], extents[count:]
    strides = np.cumprod([1, *joined[:0:-1]])[::-1].copy()
    if found is not None:
        rows = np.where(found < 0, found + np.array(joined), found)
        at = place.constant(np.asarray((rows * strides).sum(-1), np.int64), "positions")
    else:
        at = _positions(tuples, np.array(joined), strides, place)
    flat = place.node("Reshape", data, place.integers([int(np.prod(joined)), *rest], "joined"))
    return place.node("Gather", flat, at, axis=0)


def _squeezed(tuples: Value, found: np.ndarray[Any, Any] | None, place: Lowering) -> Value:
    """Return index tuples of one index as indices."""
    if found is not None:
        return place.constant(np.asarray(found[..., 0], np.int64), "positions")
    return place.node("Squeeze", tuples, place.integers([-1], "last"))


def _positions(tuples: Value, extents: np.ndarray[Any, Any], strides: np.ndarray[Any, Any], place: Lowering) -> Value:
    """Return the position of each index tuple in the joined dims; an index below zero counts from the end."""
    rows, zero = place.cast(tuples, "tensor(int64)"), place.constant(np.array(0, np.int64), "zero")
    shifted = place.node("Add", rows, place.constant(extents.astype(np.int64), "extents"))
    counted = place.node("Where", place.node("Less", rows, zero), shifted, rows)
    parts = place.node("Mul", counted, place.constant(strides.astype(np.int64), "strides"))
    return place.node("ReduceSum", parts, place.integers([-1], "last"), keepdims=0)
