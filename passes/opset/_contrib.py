"""What the parts of ONNX Runtime's operators share: heads, extents that are computed, masks by place."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from surgery import Refusal, Value

from ._lowering import Call, Lowering

LOWEST = float(np.finfo(np.float32).min)
"""What the kernels of attention put for a key that comes after the query."""

UNKNOWN_HEAD = "the size of a head is not known"

Dim = int | str
WIDE = ("tensor(float16)", "tensor(bfloat16)")
"""Types that the kernels of ONNX Runtime compute in float32."""


def widened(value: Value | None, place: Lowering) -> Value | None:
    """Return a tensor in the type that a kernel computes in."""
    if value is None or place.kind(value) not in WIDE:
        return value
    return place.cast(value, "tensor(float)")


def sum_of(place: Lowering, *values: Value | None) -> Value:
    """Add what is there, from left to right."""
    first, *others = [value for value in values if value is not None]
    for value in others:
        first = place.node("Add", first, value)
    return first


def dims_of(value: Value, rank: int | None = None) -> tuple[Dim | None, ...]:
    """Return the dims of an input; refuse when not even their number is known, or another one is asked for."""
    shape = value.shape
    if shape is None or (rank is not None and len(shape) != rank):
        raise Refusal("the rank of an input is not known")
    return shape


def extent(value: Value, axis: int, place: Lowering) -> Value:
    """Compute an extent, as a tensor of one element; an extent that is known is a constant."""
    shape = value.shape
    held = None if shape is None else shape[axis]
    if isinstance(held, int):
        return place.integers([held], "extent")
    return place.node("Gather", place.node("Shape", value), place.integers([axis], "axis"), axis=0)


def scalar(value: Value, place: Lowering) -> Value:
    """Turn a tensor of one element into one without dims."""
    return place.node("Squeeze", value, place.integers([0], "axes"))


def counted(start: Value | None, end: Value, place: Lowering) -> Value:
    """Count from a number, else from 0, up to before another one; both are tensors of one element."""
    zero = place.constant(np.array(0), "zero")
    first = zero if start is None else scalar(start, place)
    return place.node("Range", first, scalar(end, place), place.constant(np.array(1), "one"))


def split(value: Value, sizes: Sequence[int], axis: int, place: Lowering) -> Sequence[Value]:
    """Divide a tensor along an axis."""
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
    """Insert axes of 1."""
    return place.node("Unsqueeze", value, place.integers(axes, "axes"))


def scale_of(call: Call, size: int) -> float:
    """Return the factor of the scores: an attribute, else one over the root of the size of a head."""
    return float(call.attr("scale", 0.0)) or 1 / math.sqrt(size)


def weighted(scores: Value, values: Value, place: Lowering) -> Value:
    """Sum the values with the softmax of the scores as weights."""
    return place.node("MatMul", place.node("Softmax", scores, axis=-1), values)


def products(query: Value, key: Value, scale: float, place: Lowering) -> Value:
    """Multiply each query with each key of the same head, and scale that."""
    made = place.node("MatMul", query, place.node("Transpose", key, perm=[0, 1, 3, 2]))
    return made if scale == 1 else place.node("Mul", made, place.number(scale, query, "scale"))
