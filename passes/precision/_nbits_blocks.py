"""Weights as integers of 8, 4 or 2 bits in blocks, each with a scale and a zero point.

w is about scale · (code - zero), with codes from 0 to 2^bits - 1. The error of a block is the sum of the squared
differences. For given codes, the best scale by least squares is num / den with num = Σ w·(code - zero) and
den = Σ (code - zero)². It leaves the error Σ w² - num² / den, so the fit with the largest num² / den is the best.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np

from surgery import Refusal

Array = np.ndarray[Any, Any]

TILE = 1 << 15
"""Elements of a weight that are processed at once, so that they stay in the cache of a core."""

_NARROWEST = 64
"""Minimum number of columns of a tile: NumPy is slow with short rows."""

_WHOLE = np.float32(1 << 23)
"""Added to a number from 0 to 2^22, it leaves the nearest integer in the lowest bits."""

_RATIOS = {8: (), 4: (0.9, 0.8), 2: (0.8, 0.65, 0.5)}
"""The fractions of the range of a block that are tried, by number of bits; the few numbers beyond are clipped."""

_ROUNDS = 2
"""How often scale and zero point are fitted to the codes, and the codes to them."""


@dataclass(frozen=True)
class Scheme:
    """How a weight is quantized: bits, weights per block, and whether the zero point of all blocks is the middle code.

    With `negates`, the scale of a symmetric block may be negative, so that its largest weight gets the lowest code,
    which has no opposite. With `searches`, narrower ranges are tried and zero points are fitted. Scales are rounded to
    `scale_type`.
    """

    bits: int
    block: int
    symmetric: bool
    negates: bool = False
    searches: bool = False
    scale_type: str = "float32"

    @property
    def top(self) -> int:
        """The highest code."""
        return (1 << self.bits) - 1

    @property
    def middle(self) -> int:
        """The code in the middle."""
        return 1 << (self.bits - 1)


class Tile(NamedTuple):
    """A part of a weight: the first block and the first column, and the weights [blocks, block, columns] in float32.

    Weights beyond the last row are zero. The array is reused for the next tile.
    """

    block: int
    column: int
    weights: Array


def tiles(matrix: Array, block: int) -> Iterator[Tile]:
    """Cut a weight [K, N] into tiles, in the order of its elements in the file."""
    rows, columns = matrix.shape
    blocks = max(1, min(128 // block, -(-rows // block)))
    width = min(columns, max(_NARROWEST, TILE // (blocks * block)))
    buffer = np.empty(blocks * block * width, np.float32)
    corners = [(row, column) for row in range(0, rows, blocks * block) for column in range(0, columns, width)]
    if matrix.strides[0] < matrix.strides[1]:
        corners.sort(key=lambda corner: corner[::-1])
    for row, column in corners:
        part = matrix[row : row + blocks * block, column : column + width]
        here = -(-part.shape[0] // block)
        weights = buffer[: here * block * part.shape[1]].reshape(here * block, part.shape[1])
        weights[: part.shape[0]] = part
        weights[part.shape[0] :] = 0
        yield Tile(row // block, column, weights.reshape(here, block, part.shape[1]))


@dataclass
class Fit:
    """The scales and zero points that give the codes of blocks, and sums over the codes: [blocks, columns].

    `total` is Σ (code - zero); for `num` and `den` see above.
    """

    coding: Array
    zero: Array
    total: Array
    num: Array
    den: Array

    @property
    def scale(self) -> Array:
        """The scale that fits the codes best."""
        fits = (self.den > 0) & (self.num != 0)
        scale: Array = np.divide(self.num, self.den, out=self.coding.copy(), where=fits)
        return scale

    @property
    def gain(self) -> Array:
        """The part of Σ w² that the codes represent."""
        gain: Array = np.divide(self.num * self.num, self.den, out=np.zeros_like(self.num), where=self.den > 0)
        return gain

    def improve(self, other: Fit) -> None:
        """Copy the blocks in which another fit is better."""
        better = other.gain > self.gain
        for mine, its in zip(vars(self).values(), vars(other).values()):
            np.copyto(mine, its, where=better)


@dataclass
class Coder:
    """Finds scales, zero points and codes for a scheme, tile by tile; its arrays are reused."""

    scheme: Scheme
    _buffers: dict[str, Array] = field(default_factory=dict)

    def quantize(self, weights: Array) -> tuple[Array, Array, Array]:
        """Return codes (uint8, shaped like the tile), scales and zero points; refuse weights that are not finite."""
        with np.errstate(all="ignore"):
            found = self._rounded(weights, *self._range(weights), keep=True)
            if self.scheme.searches:
                self._search(weights, found)
                self._keep(self._codes(weights, found.coding, found.zero))
            return self._buffer("codes", weights.shape, np.uint8), self._storable(found.scale), found.zero

    def fit(self, weights: Array) -> tuple[Array, Array]:
        """Return the scales and zero points that `quantize` finds."""
        _, scale, zero = self.quantize(weights)
        return scale, zero

    def _keep(self, numbers: Array) -> None:
        """Store the codes, which are in the lowest bits of the numbers."""
        np.copyto(self._buffer("codes", numbers.shape, np.uint8), numbers.view(np.uint32), casting="unsafe")

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
        size = prod(shape)
        held = self._buffers.get(name)
        if held is None or held.size < size:
            held = self._buffers[name] = np.empty(size, dtype)
        return held[:size].reshape(shape)

    def _range(self, weights: Array) -> tuple[Array, Array]:
        """Return scales and zero points with which the codes cover the range of each block and zero."""
        scheme = self.scheme
        high, low = weights.max(axis=1), weights.min(axis=1)
        if not (np.isfinite(high).all() and np.isfinite(low).all()):
            raise Refusal("the weight is not finite")
        if not scheme.symmetric:
            np.maximum(high, 0, out=high)
            np.minimum(low, 0, out=low)
            scale = _usable((high - low) / np.float32(scheme.top))
            return scale, np.clip(np.rint(-low / scale), 0, scheme.top)
        if scheme.negates:
            scale = np.where(high > -low, high, low) / np.float32(-scheme.middle)
        else:
            scale = np.maximum(high / np.float32(scheme.middle - 1), low / np.float32(-scheme.middle))
        return _usable(scale), np.full_like(scale, scheme.middle)

    def _codes(self, weights: Array, scale: Array, zero: Array) -> Array:
        """Return numbers whose lowest bits are the codes of the weights."""
        codes = self._buffer("numbers", weights.shape)
        np.multiply(weights, (1 / scale)[:, None], out=codes)
        codes += zero[:, None]
        np.clip(codes, np.float32(0), np.float32(self.scheme.top), out=codes)
        codes += _WHOLE
        return codes

    def _rounded(self, weights: Array, scale: Array, zero: Array, keep: bool = False) -> Fit:
        """Return the fit with the codes that these scales and zero points give."""
        steps = self._codes(weights, scale, zero)
        if keep:
            self._keep(steps)
        steps -= (zero + _WHOLE)[:, None]
        return Fit(scale, zero, steps.sum(axis=1), _dot(weights, steps), _dot(steps, steps))

    def _search(self, weights: Array, found: Fit) -> None:
        """Improve a fit: try narrower ranges, then fit scales and zero points to the codes, and codes to them."""
        scheme, first, zero = self.scheme, found.coding.copy(), found.zero.copy()
        middle = np.float32(scheme.top / 2)
        for ratio in _RATIOS[scheme.bits]:
            # Narrow the range around the weight that has the middle code.
            shifted = zero if scheme.symmetric else middle + (zero - middle) / np.float32(ratio)
            found.improve(self._rounded(weights, first * np.float32(ratio), self._legal(shifted)))
        mean = weights.sum(axis=1) / np.float32(weights.shape[1])
        for _ in range(_ROUNDS):
            if scheme.symmetric:
                found.improve(self._rounded(weights, found.scale, found.zero))
            else:
                found.improve(self._rounded(weights, *self._line(found, mean, weights.shape[1])))

    def _line(self, found: Fit, mean: Array, count: int) -> tuple[Array, Array]:
        """Return scale and zero point of the regression line of weights over codes, given the mean of the weights."""
        step = found.total / np.float32(count)
        slope, spread = found.num - found.total * mean, found.den - found.total * step
        scale = np.divide(slope, spread, out=found.scale, where=(spread > 0) & (slope > 0))
        return scale, self._legal(found.zero + step - mean / scale)

    def _legal(self, zero: Array) -> Array:
        legal: Array = np.clip(np.rint(zero), 0, self.scheme.top)
        return legal

    def _storable(self, scale: Array) -> Array:
        """Round scales to the type in which they are stored."""
        rounded = scale.astype(self.scheme.scale_type).astype(np.float32)
        if not np.isfinite(rounded).all():
            raise Refusal("the weight is not finite")
        return rounded


def _usable(scale: Array) -> Array:
    """Return scales to divide by: 1 where all weights of a block are zero or nearly zero."""
    usable: Array = np.where(np.abs(scale) < np.finfo(np.float32).tiny, np.float32(1), scale)
    return usable


def _dot(one: Array, other: Array) -> Array:
    sums: Array = np.einsum("bkn,bkn->bn", one, other)
    return sums
