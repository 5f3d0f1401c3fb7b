"""Statistics of activations, collected one array at a time, and the ranges chosen from them.

The bins of a histogram have a power of two as width and are aligned at zero. When a number lies outside, the width is
doubled and pairs of bins are added up. This loses nothing: the result depends only on the numbers, not on their order
or on their division into arrays, and no second run is needed to find the range first. Zeros are counted separately,
because every quantization used here represents zero exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from surgery import Refusal

from ._integers import IntegerType

Array = np.ndarray[Any, Any]
Method = Literal["minmax", "moving", "percentile", "entropy", "mse"]
Range = tuple[float, float]

BINS = 8192
"""Maximum number of bins of a histogram; a range fills more than half of them if its numbers have any spread."""

MOVING = 0.01
"""Minimum weight of a set of inputs in a moving range; for the first sets, the range is the mean."""

SHARES = np.geomspace(1.0, 0.02, 96)
"""The shares of a range that the searches try."""

NEAR = np.concatenate([[1.0], np.geomspace(2.0, 0.5, 48)])
"""The factors by which the search for the least squared error then scales each end, ROUNDS times."""

ROUNDS = 3

BLOCK = 1 << 18
"""Elements that are binned at once, so that intermediate results stay in the cache of a core."""

FINEST = -1000
"""The exponent of the narrowest bins, far below the smallest float32 number."""


@dataclass
class Histogram:
    """Counts of all finite numbers except zero in bins [index · width, (index + 1) · width)."""

    exponent: int | None = None
    first: int = 0
    counts: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def width(self) -> float:
        """The width of a bin, a power of two."""
        return math.ldexp(1.0, 0 if self.exponent is None else self.exponent)

    @property
    def edges(self) -> Array:
        """The edges of the bins, one more than there are bins."""
        return (self.first + np.arange(len(self.counts) + 1)) * self.width

    def add(self, array: Array) -> None:
        """Count the numbers of an array, which must be finite; zeros are left out."""
        flat = array.reshape(-1)
        for start in range(0, flat.size, BLOCK):
            block = flat[start : start + BLOCK]
            block = block[block != 0].astype(np.float64)
            if block.size:
                self._make_room(float(block.min()), float(block.max()))
                indices = np.floor(block / self.width).astype(np.int64) - self.first
                self.counts += np.bincount(indices, minlength=len(self.counts))

    def _make_room(self, low: float, high: float) -> None:
        """Widen the bins until they cover a range, and keep only as many as needed."""
        finest = max(FINEST, math.frexp(max(abs(low), abs(high)))[1] - BINS.bit_length())
        if self.exponent is None:
            self.exponent, self.first = finest, math.floor(math.ldexp(low, -finest))
        while self.exponent < finest:
            self._double()
        while True:
            start, end = math.floor(low / self.width), math.floor(high / self.width) + 1
            if len(self.counts):
                start, end = min(start, self.first), max(end, self.first + len(self.counts))
            if end - start <= BINS:
                break
            self._double()
        grown = np.zeros(end - start, np.int64)
        grown[self.first - start : self.first - start + len(self.counts)] = self.counts
        self.first, self.counts = start, grown

    def _double(self) -> None:
        """Add up pairs of bins; the bins 2·i and 2·i + 1 become the bin i."""
        assert self.exponent is not None
        padded = np.concatenate([np.zeros(self.first % 2, np.int64), self.counts])
        padded = np.concatenate([padded, np.zeros(len(padded) % 2, np.int64)])
        self.exponent, self.first = self.exponent + 1, self.first // 2
        self.counts = padded.reshape(-1, 2).sum(axis=1)


@dataclass
class Statistics:
    """Statistics of a tensor over the arrays so far: extent, number of zeros, distribution."""

    low: float = math.inf
    high: float = -math.inf
    moving: Range | None = None
    sets: int = 0
    count: int = 0
    zeros: int = 0
    is_finite: bool = True
    histogram: Histogram | None = field(default_factory=Histogram)

    def add(self, array: Array) -> None:
        """Add the elements of the tensor in one run of the model."""
        if not array.size:
            return
        low, high = float(array.min()), float(array.max())
        self.count += array.size
        if not (math.isfinite(low) and math.isfinite(high)):
            self.is_finite = False
            return
        self.zeros += array.size - int(np.count_nonzero(array))
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.sets += 1
        old, weight = self.moving or (low, high), max(MOVING, 1 / self.sets)
        self.moving = old[0] + weight * (low - old[0]), old[1] + weight * (high - old[1])
        if self.histogram is not None:
            self.histogram.add(array)


@dataclass
class ChannelStatistics:
    """Statistics of each channel of a tensor over the arrays so far: the largest magnitude and the mean."""

    axis: int
    largest: Array = field(default_factory=lambda: np.zeros(0))
    sums: Array = field(default_factory=lambda: np.zeros(0))
    count: int = 0
    is_finite: bool = True

    def add(self, array: Array) -> None:
        """Add the elements of the tensor in one run of the model."""
        if not array.size:
            return
        others = tuple(axis for axis in range(array.ndim) if axis != self.axis % array.ndim)
        sums = array.sum(axis=others, dtype=np.float64)
        largest = np.maximum(array.max(axis=others), -array.min(axis=others)).astype(np.float64)
        if not self.count:
            self.largest, self.sums = np.zeros_like(largest), np.zeros_like(sums)
        if not (np.isfinite(sums).all() and np.isfinite(largest).all()):
            self.is_finite = False
            return
        self.count += array.size // max(sums.size, 1)
        self.sums += sums
        np.maximum(self.largest, largest, out=self.largest)

    @property
    def means(self) -> Array:
        """The mean of each channel."""
        return self.sums / max(self.count, 1)


def choose_range(
    found: Statistics, method: Method, kind: IntegerType, *, percentile: float = 99.999, symmetric: bool = False
) -> Range:
    """Return the range of an activation that its integers cover; 0 is always inside.

    `minmax` covers all numbers seen. `moving` averages the extents of the sets of inputs. `percentile` leaves out the
    same share of the numbers at both ends. `entropy` keeps most of the information in the distribution (the least
    Kullback-Leibler divergence between it and its quantized form, as in TensorRT's calibrator). `mse` minimizes the
    mean squared error of rounding and clipping. The searches are for up to 8 bits; more bits gain nothing from them, so
    all numbers seen are covered.

    Refuse if the range is unknown or cannot be covered.
    """
    if not found.count:
        raise Refusal("no calibration input gives an activation a value")
    if not found.is_finite:
        raise Refusal("an activation is infinite or NaN on a calibration input")
    low, high = min(found.low, 0.0), max(found.high, 0.0)
    if low == high:
        raise Refusal("an activation is zero on all calibration inputs")
    if max(-low, high) < float(np.finfo(np.float32).tiny) * (kind.high - kind.low):
        raise Refusal("an activation is too small on all calibration inputs for a scale of float32")
    if method == "moving" and found.moving is not None:
        return min(found.moving[0], 0.0), max(found.moving[1], 0.0)
    if method == "percentile":
        return _percentile(found, percentile)
    levels = kind.high - kind.low
    if method in ("entropy", "mse") and levels < BINS // 8:
        search = _least_divergence if method == "entropy" else _least_error
        return search(found, (low, high), levels, symmetric)
    return low, high


def _percentile(found: Statistics, percentile: float) -> Range:
    """Leave out 100 - percentile percent of the numbers, half of it at each end, to the precision of a bin."""
    assert found.histogram is not None
    histogram = found.histogram
    centers, counts = (histogram.edges[:-1] + histogram.edges[1:]) / 2, histogram.counts
    place = int(np.searchsorted(centers, 0.0))
    centers, counts = np.insert(centers, place, 0.0), np.insert(counts, place, found.zeros)
    below = np.cumsum(counts) / max(counts.sum(), 1)
    tail = (100.0 - percentile) / 200.0
    low = centers[min(int(np.searchsorted(below, tail, side="right")), len(centers) - 1)]
    high = centers[min(int(np.searchsorted(below, 1.0 - tail, side="left")), len(centers) - 1)]
    low, high = min(float(max(low, found.low)), 0.0), max(float(min(high, found.high)), 0.0)
    return (low, high) if low < high else (min(found.low, 0.0), max(found.high, 0.0))


class _Moments:
    """Counts, sums and sums of squares of the numbers below each edge, assuming evenly filled bins."""

    def __init__(self, histogram: Histogram) -> None:
        self.edges = histogram.edges
        centers, counts = (self.edges[:-1] + self.edges[1:]) / 2, histogram.counts.astype(np.float64)
        squares = centers * centers + histogram.width**2 / 12
        zero = np.zeros(1)
        self.sums = [np.concatenate([zero, np.cumsum(counts * part)]) for part in (np.ones(1), centers, squares)]

    def error(self, low: Array, high: Array, levels: int, symmetric: bool) -> Array:
        """Return the summed squared error of quantizing all numbers, for each of several ranges."""
        if symmetric:
            step, steps = np.maximum(-low, high) / (levels // 2), levels // 2 * 2 + 1
            start = np.full(step.shape, -(levels // 2))
        else:
            step, steps = (high - low) / levels, levels + 1
            start = np.rint(low / step)
        places = (np.expand_dims(start, -1) + np.arange(steps)) * step[:, None]
        between = (places[:, 1:] + places[:, :-1]) / 2
        ends = np.full((len(step), 1), np.inf)
        borders = np.concatenate([-ends, between, ends], axis=1)
        count, first, second = (np.diff(np.interp(borders, self.edges, each), axis=1) for each in self.sums)
        return np.asarray((second - 2 * places * first + places * places * count).sum(axis=1))


def _least_error(found: Statistics, whole: Range, levels: int, symmetric: bool) -> Range:
    """Search for the range of the least squared error: first both ends together, then one end after the other."""
    assert found.histogram is not None
    moments = _Moments(found.histogram)
    best = _best(moments, whole[0] * SHARES, whole[1] * SHARES, levels, symmetric)
    for _ in range(0 if symmetric else ROUNDS):
        low, high = best
        best = _best(moments, np.maximum(low * NEAR, whole[0]), np.full_like(NEAR, high), levels, symmetric)
        low, high = best
        best = _best(moments, np.full_like(NEAR, low), np.minimum(high * NEAR, whole[1]), levels, symmetric)
    return best


def _best(moments: _Moments, lows: Array, highs: Array, levels: int, symmetric: bool) -> Range:
    chosen = int(np.argmin(moments.error(lows, highs, levels, symmetric)))
    return float(lows[chosen]), float(highs[chosen])


def _least_divergence(found: Statistics, whole: Range, levels: int, symmetric: bool) -> Range:
    """Search for the range of the least divergence among ranges that clip numbers of large magnitude."""
    assert found.histogram is not None
    counts, width, first = found.histogram.counts, found.histogram.width, found.histogram.first
    largest = max(-whole[0], whole[1])
    best, least = whole, math.inf
    for share in SHARES:
        limit = share * largest
        low, high = (-limit, limit) if symmetric else (max(whole[0], -limit), min(whole[1], limit))
        start = max(math.floor(low / width) - first, 0)
        end = min(math.ceil(high / width) - first, len(counts))
        if end - start < levels:
            break
        divergence = _divergence(counts, start, end, levels)
        if divergence < least:
            best, least = (low, high), divergence
    return best


def _divergence(counts: Array, start: int, end: int, levels: int) -> float:
    """Return the divergence between the distribution clipped to a range of bins and its rounding to levels.

    Clipped numbers count in the border bins; the numbers of a level are spread evenly over its bins that are not empty.
    """
    kept = counts[start:end].astype(np.float64)
    clipped = kept.copy()
    clipped[0] += counts[:start].sum()
    clipped[-1] += counts[end:].sum()
    level = np.arange(len(kept)) * levels // len(kept)
    sums = np.bincount(level, weights=kept, minlength=levels)
    filled = np.bincount(level, weights=kept > 0, minlength=levels)
    rounded = np.where(kept > 0, (sums / np.maximum(filled, 1))[level], 0.0)
    held = clipped > 0
    total, spread = clipped.sum(), rounded.sum()
    if not total or not spread:
        return math.inf
    # A bin that holds only clipped numbers has no counterpart; a ten-thousandth of a number stands in for it.
    exact, rough = clipped[held] / total, np.maximum(rounded[held], 1e-4) / spread
    return float((exact * np.log(exact / rough)).sum())
