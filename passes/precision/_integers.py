"""Affine quantization of arrays, as QuantizeLinear and DequantizeLinear define it.

A real number x is stored as the integer q = saturate(round(x / scale) + zero_point), where halves are rounded to even,
and q represents (q - zero_point) · scale (the text of QuantizeLinear and DequantizeLinear). Scales are computed in
float64 and rounded to the type of the numbers once.

Large arrays are read in blocks of rows: memory holds one block at a time, and the resulting integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from surgery import Refusal, data_type, saturates

Array = np.ndarray[Any, Any]
Axes = tuple[int, ...]
"""The axes along which each index has its own scale; empty if the whole array has one."""

Rows = slice | tuple[()]
"""The rows of an array; () for a scalar as a whole."""

BLOCK = 1 << 18
"""Elements that are processed at once; as float64 they fill 2 MiB."""

CLIPPINGS = tuple(1.0 - 0.02 * step for step in range(31))
"""The shares of a range that the search for the least squared error tries: from 1 down to 0.4."""


@dataclass(frozen=True)
class IntegerType:
    """An integer type of ONNX, and the part of its range that is used.

    `pairs`: two neighbors of the same sign may not add up to more than the range, so that 16 bits hold the sum of
    their products with uint8: 255 · 128 is below 2^15.
    """

    name: str
    low: int
    high: int
    pairs: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type; for fewer than 8 bits, an ml_dtypes type, whose arithmetic is not reliable."""
        return np.dtype(data_type(self.name).numpy())

    @property
    def middle(self) -> int:
        """The zero point of a symmetric range: 0 for a signed type, 128 for uint8."""
        return (self.low + self.high + 1) // 2

    def reduced(self, bits: int) -> IntegerType:
        """Return the same type with only `bits` bits in use: -64 to 63 for int8 and 7."""
        span = 1 << bits
        return IntegerType(self.name, -span // 2 if self.low < 0 else 0, (span // 2 if self.low < 0 else span) - 1)


def of_weights(name: str, data: str, reduce_range: bool | None) -> IntegerType:
    """Return the integer type, and its usable range, of weights that are multiplied by data of type `data`.

    If `reduce_range` is None, ONNX Runtime is asked whether sums of two products saturate.
    """
    kind = integer_type(name)
    if reduce_range is None:
        return replace(kind, pairs=saturates(data, name))
    return kind.reduced(7) if reduce_range else kind


@cache
def integer_type(name: str) -> IntegerType:
    """Return the integer type with a name such as int8 or uint4, with its whole range in use."""
    bits = int(name.lstrip("uint"))
    span = 1 << bits
    return IntegerType(name, 0, span - 1) if name.startswith("u") else IntegerType(name, -span // 2, span // 2 - 1)


@dataclass(frozen=True)
class Affine:
    """Scales and zero points that broadcast to an array; dims are 1 except along axes with one scale per index.

    `scale` is float64 with values that the type of the numbers represents exactly; `zero_point` is int64.
    """

    scale: Array
    zero_point: Array
    kind: IntegerType
    symmetric: bool = False

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest integer; those of a symmetric range are equally far from the zero point."""
        low, high = self.kind.low, self.kind.high
        return (max(low, 2 * self.kind.middle - high) if self.symmetric else low), high

    def quantize(self, array: Array) -> Array:
        """Return the integers of an array, in their type."""
        made = np.empty(array.shape, self.kind.dtype)
        for rows in blocks(array):
            made[rows] = self._integers(array[rows], rows).astype(self.kind.dtype)
        return made

    def dequantize(self, integers: Array, dtype: np.dtype[Any]) -> Array:
        """Return the numbers that integers represent."""
        made = np.empty(integers.shape, dtype)
        for rows in blocks(integers):
            scale, zero_point = part(self.scale, rows), part(self.zero_point, rows)
            made[rows] = (integers[rows].astype(np.float64) - zero_point) * scale
        return made

    def squared_error(self, array: Array) -> Array:
        """Return the sum of the squared errors of an array, for each scale."""
        errors = np.zeros(self.scale.shape)
        for rows in blocks(array):
            exact, scale, zero_point = wide(array[rows]), part(self.scale, rows), part(self.zero_point, rows)
            lost = (self._integers(array[rows], rows) - zero_point) * scale - exact
            inner = part(errors, rows)
            inner += (lost * lost).sum(axis=_others(inner.shape, exact), keepdims=True).reshape(inner.shape)
        return errors

    def _integers(self, block: Array, rows: Rows) -> Array:
        exact = np.asarray(wide(block) / part(self.scale, rows))
        np.rint(exact, out=exact)
        exact += part(self.zero_point, rows)
        return np.clip(exact, *self.limits, out=exact)

    @property
    def scales(self) -> Array:
        """The scales as a vector, or as a scalar if the whole array has one."""
        return self._operand(self.scale)

    def zero_points(self) -> Array:
        """Return the zero points in their own type, as a vector or a scalar."""
        return self._operand(self.zero_point).astype(self.kind.dtype)

    def _operand(self, array: Array) -> Array:
        return array.reshape(()) if array.size == 1 and set(array.shape) <= {1} else array.reshape(-1)


def fit(array: Array, kind: IntegerType, axes: Axes = (), *, symmetric: bool = False, search: bool = False) -> Affine:
    """Return scales and zero points for the whole range of an array or, with `search`, for the least squared error.

    Refuse an array that contains infinity or NaN.
    """
    low, high = extent(array, axes)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise Refusal("the weight is not finite")
    whole = affine(low, high, kind, symmetric=symmetric, dtype=array.dtype)
    if kind.pairs:
        pairs = largest_pairs(array, axes)
        return affine(np.minimum(low, -pairs), np.maximum(high, pairs), kind, symmetric=symmetric, dtype=array.dtype)
    if not search or not array.size:
        return whole
    least = whole.squared_error(array)
    scale, zero_point = whole.scale.copy(), whole.zero_point.copy()
    for share in CLIPPINGS[1:]:
        clipped = affine(low * share, high * share, kind, symmetric=symmetric, dtype=array.dtype)
        errors = clipped.squared_error(array)
        better = errors < least
        for kept, new in ((scale, clipped.scale), (zero_point, clipped.zero_point), (least, errors)):
            kept[better] = new[better]
    return Affine(scale, zero_point, kind, symmetric)


def affine(
    low: Array | float,
    high: Array | float,
    kind: IntegerType,
    *,
    symmetric: bool = False,
    dtype: np.dtype[Any] | type = np.float32,
) -> Affine:
    """Return scales and zero points for ranges of numbers, widened to include 0, which is always represented exactly.

    A range that contains only zeros, or is too small for a scale of the type, gets the scale 1.
    """
    low = np.minimum(np.asarray(low, np.float64), 0.0)
    high = np.maximum(np.asarray(high, np.float64), 0.0)
    if symmetric:
        scale = np.maximum(-low, high) / (kind.high - kind.middle)
    else:
        scale = (high - low) / (kind.high - kind.low)
    info = np.finfo(np.dtype(dtype)) if np.dtype(dtype).kind == "f" else np.finfo(np.float32)
    scale = np.where(scale < float(info.tiny), 1.0, scale).astype(dtype).astype(np.float64)
    zero_point = np.full(scale.shape, kind.middle, np.int64)
    if not symmetric:
        zero_point = np.clip(np.rint(kind.low - low / scale), kind.low, kind.high).astype(np.int64)
    return Affine(scale, zero_point, kind, symmetric)


def extent(array: Array, axes: Axes = ()) -> tuple[Array, Array]:
    """Return the smallest and the largest number in float64, for each index along the axes; other dims are 1."""
    axes = tuple(axis % array.ndim for axis in axes)
    shape = tuple(dim if axis in axes else 1 for axis, dim in enumerate(array.shape))
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    for rows in blocks(array):
        block = array[rows]
        for found, reduce, join in ((low, np.min, np.minimum), (high, np.max, np.maximum)):
            inner = part(found, rows)
            reduced = reduce(block, axis=_others(inner.shape, block), keepdims=True).astype(np.float64)
            join(inner, reduced.reshape(inner.shape), out=inner)
    empty = low > high
    low[empty] = high[empty] = 0.0
    return low, high


def largest_pairs(array: Array, axes: Axes = ()) -> Array:
    """Return the largest sum of the magnitudes of two neighbors of the same sign, for each index along the axes.

    Neighbors are adjacent elements of a sum, with the first of the other axes outermost or innermost: runtimes may put
    the channels of a convolution in either place.
    """
    axes = tuple(axis % array.ndim for axis in axes)
    others = tuple(axis for axis in range(array.ndim) if axis not in axes)
    found = np.zeros(tuple(dim if axis in axes else 1 for axis, dim in enumerate(array.shape)))
    if not array.size:
        return found
    for place in _parts_along(axes[-1], array) if axes else [...]:
        block, inner = array[place], found[place]
        for order in {others, (*others[1:], *others[:1])}:
            rows = wide(np.transpose(block, (*axes, *order))).reshape(*(block.shape[axis] for axis in axes), -1)
            for signed in (rows, -rows):
                some = np.maximum(signed, 0.0)
                most = (some[..., 1:] + some[..., :-1]).max(axis=-1, initial=0.0)
                np.maximum(inner, most.reshape(inner.shape), out=inner)
    return found


def _parts_along(axis: int, array: Array) -> Iterator[tuple[slice, ...]]:
    """Cut an array along an axis into parts of BLOCK elements, or of one index if an index has more."""
    count = array.shape[axis]
    step = max(BLOCK * count // array.size, 1)
    for start in range(0, count, step):
        yield (*[slice(None)] * axis, slice(start, start + step))


def blocks(array: Array) -> Iterator[Rows]:
    """Cut an array into blocks of rows; a scalar is one block."""
    if array.ndim == 0:
        yield ()
        return
    step = max(BLOCK // max(array[:1].size, 1), 1)
    for start in range(0, len(array), step):
        if array[:1].size:
            yield slice(start, start + step)


def part(statistics: Array, rows: Rows) -> Array:
    """Return the statistics of a block of rows: all of them, unless each row has its own."""
    return statistics[rows] if statistics.ndim and statistics.shape[0] != 1 else statistics


def _others(shape: tuple[int, ...], block: Array) -> Axes:
    """Return the axes of a block over which statistics of this shape are reduced."""
    return tuple(axis for axis in range(block.ndim) if shape[axis] == 1)


def wide(array: Array) -> Array:
    """Convert to float64."""
    return array.astype(np.float64)
