"""Helpers for the decomposition of ONNX Runtime's operators: heads, computed extents, masks by position."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from surgery import Refusal, Value

from ._calls import Call
from ._lowering import Lowering

LOWEST = float(np.finfo(np.float32).min)
"""The score that attention kernels use for a key after the query."""

UNKNOWN_HEAD = "the size of a head is not known"

Dim = int | str
WIDE = ("tensor(float16)", "tensor(bfloat16)")
"""Types for which the kernels of ONNX Runtime compute in float32."""


def widened(value: Value | None, place: Lowering) -> Value | None:
    """Return a tensor in the type in which a kernel computes."""
    if value is None or place.kind(value) not in WIDE:
        return value
    return place.cast(value, "tensor(float)")


def sum_of(place: Lowering, *values: Value | None) -> Value:
    """Add all values that are not None, from left to right."""
    first, *others = [value for value in values if value is not None]
    for value in others:
        first = place.node("Add", first, value)
    return first


def dims_of(value: Value, rank: int | None = None) -> tuple[Dim | None, ...]:
    """Return the dims of an input; refuse if the rank is unknown or differs from `rank`."""
    shape = value.shape
    if shape is None or (rank is not None and len(shape) != rank):
        raise Refusal("the rank of an input is not known")
    return shape


def extent(value: Value, axis: int, place: Lowering) -> Value:
    """Return an extent as a tensor of one element; a known extent is a constant."""
    shape = value.shape
    held = None if shape is None else shape[axis]
    if isinstance(held, int):
        return place.integers([held], "extent")
    return place.node("Gather", place.node("Shape", value), place.integers([axis], "axis"), axis=0)


def scalar(value: Value, place: Lowering) -> Value:
    """Turn a tensor of shape [1] into a scalar."""
    return place.node("Squeeze", value, place.integers([0], "axes"))


def counted(start: Value | None, end: Value, place: Lowering) -> Value:
    """Return the integers from `start`, or 0, up to but excluding `end`; both are tensors of one element."""
    zero = place.constant(np.array(0), "zero")
    first = zero if start is None else scalar(start, place)
    return place.node("Range", first, scalar(end, place), place.constant(np.array(1), "one"))


def split(value: Value, sizes: Sequence[int], axis: int, place: Lowering) -> Sequence[Value]:
    """Split a tensor along an axis."""
    return place.nodes("Split", value, place.integers(sizes, "sizes"), outputs=len(sizes), axis=axis)


def by_head(value: Value, heads: int, place: Lowering, size: int = -1) -> Value:
    """Turn [batch, place, heads * size] into [batch, heads, place, size]."""
    apart = place.node("Reshape", value, place.integers([0, 0, heads, size], "by_head"))
    return place.node("Transpose", apart, perm=[0, 2, 1, 3])


def joined(value: Value, place: Lowering, width: int = -1) -> Value:
    """Turn [batch, heads, place, size] into [batch, place, heads * size]."""
    turned = place.node("Transpose", value, perm=[0, 2, 1, 3])
    return place.node("Reshape", turned, place.integers([0, 0, width], "flat"))


def unsqueezed(value: Value, axes: Sequence[int], place: Lowering) -> Value:
    """Insert axes of size 1."""
    return place.node("Unsqueeze", value, place.integers(axes, "axes"))


def scale_of(call: Call, size: int) -> float:
    """Return the factor of the scores: the attribute, or 1 / sqrt(head size)."""
    return float(call.attr("scale", 0.0)) or 1 / math.sqrt(size)


def weighted(scores: Value, values: Value, place: Lowering) -> Value:
    """Sum the values, weighted with the softmax of the scores."""
    return place.node("MatMul", place.node("Softmax", scores, axis=-1), values)


def products(query: Value, key: Value, scale: float, place: Lowering) -> Value:
    """Multiply each query by each key of the same head, and scale the products."""
    made = place.node("MatMul", query, place.node("Transpose", key, perm=[0, 1, 3, 2]))
    return made if scale == 1 else place.node("Mul", made, place.number(scale, query, "scale"))
