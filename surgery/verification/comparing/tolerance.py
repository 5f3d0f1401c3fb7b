"""Tolerances of floats: by dtype, and by the scale of the surrounding elements.

An element `a` of the original may differ by `atol * S + rtol * |a|`. `S` is the scale of the element: a fixed atol
would pass anything in an output of 1e-29 and nothing in one of 1e9.

Where the numbers come from. A sum of n terms taken in another order moves by at most about n, and mostly by about
sqrt(n) rounding steps of its largest partial sum (Higham, Accuracy and Stability of Numerical Algorithms, 4.2; Higham
and Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 2019). 4096 terms give 64
steps, and 16 layers that each add their own 1024 = 2^10: the default rtol of wide types. Its float32 value of 1.2e-4
lies within what the field uses: 1e-3 between runtimes in the ONNX backend tests, 1.3e-6 between two kernels in
torch.testing.

Integers, bools and strings have no tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surgery.base.operators.dtypes import Array, epsilon

BLOCK = 1 << 17
"""Number of elements processed at a time: one megabyte in float64, which fits into the caches of a core."""

_ULPS = {"rtol": 2.0**10, "atol": 2.0**7}
"""Rounding steps granted by default to types of 32 bits and more: for float32 rtol 1.2e-4 and atol 1.5e-5."""

_NARROW_ULPS = {"rtol": 8.0, "atol": 4.0}
"""The same for types of 16 bits. Runtimes accumulate these in float32, so each layer adds about one rounding step of
its own, and the order of a sum adds none."""

_BYTE_ULPS = {"rtol": 2.0, "atol": 2.0**-4}
"""The same for types of a byte and less: values rounded this coarsely are stored but not computed with, so two results
that nearly agree become the same number or neighbours."""

LEAST_SLICE = 8
"""Minimum number of elements in a slice for its largest element to define its scale. The probability that eight
normally distributed values are all below a hundredth of their standard deviation is 2e-17; for two values, 6e-5."""

FLOOR = 2.0**-20
"""The smallest scale of a slice, as a share of the whole output's: a channel of zeros has its neighbours' rounding."""


@dataclass(frozen=True)
class Tolerance:
    """Bounds for `|a - b| <= atol * S + rtol * |a|`."""

    rtol: float
    atol: float

    @classmethod
    def of(cls, dtype: np.dtype[Any], rtol: float | None = None, atol: float | None = None) -> Tolerance:
        """Return the default of a dtype, overridden by the recipe's numbers.

        A number of the recipe is raised to at least one rounding step of the dtype: two float16 results that differ by
        one step are the same within a tolerance meant for float32.
        """
        eps = epsilon(dtype)
        ulps = {1: _BYTE_ULPS, 2: _NARROW_ULPS}.get(dtype.itemsize, _ULPS)
        return cls(
            rtol=ulps["rtol"] * eps if rtol is None else max(rtol, eps),
            atol=ulps["atol"] * eps if atol is None else max(atol, eps),
        )


@dataclass(frozen=True)
class Scales:
    """The scale of each element of an array, taken from the surrounding elements.

    `whole` is the scale of the whole array. `parts` has for each axis the scales of the slices across it, in a shape
    that broadcasts. An element gets the smallest scale of the slices that it is in, but no less than `floor`: a small
    channel next to a large one, or a small row below a large one, is judged by its own size.
    """

    whole: float
    parts: tuple[Array, ...] = ()
    floor: float = 0.0

    @classmethod
    def of(cls, array: Array) -> Scales:
        """Return the scales by the largest finite magnitudes of an array of real floats."""
        found = cls.from_magnitudes(magnitudes(array))
        return replace(found, floor=found.whole * FLOOR)

    @classmethod
    def from_magnitudes(cls, values: Array, factor: Callable[[int], float] = lambda size: 1.0) -> Scales:
        """Return the maxima of all slices with at least `LEAST_SLICE` elements, times a factor for their number."""
        whole = float(values.max(initial=0.0)) * factor(values.size)
        if values.ndim < 2 or whole == 0.0:
            return cls(whole)
        parts = []
        for axis, extent in enumerate(values.shape):
            if extent > 1 and values.size // extent >= LEAST_SLICE:
                others = tuple(other for other in range(values.ndim) if other != axis)
                largest = values.max(axis=others, keepdims=True).astype(np.float64)
                parts.append(largest * factor(values.size // extent))
        return cls(whole, tuple(parts))

    def at(self, shape: tuple[int, ...], block: tuple[Any, ...]) -> Array:
        """Return the scales for a block of an array of that shape; a scalar array if all are the same."""
        result = np.asarray(self.whole)
        for part in self.parts:
            result = np.minimum(result, np.broadcast_to(part, shape)[block])
        floored: Array = np.maximum(result, self.floor)
        return floored


def magnitudes(array: Array) -> Array:
    """Return the finite magnitudes of an array, in its own dtype if numpy can compute with it; 0 for other elements."""
    wide = array if array.dtype.kind == "f" else array.astype(np.float32)
    values = np.asarray(np.abs(wide))
    finite = np.isfinite(values)
    if not finite.all():
        values[~finite] = 0
    result: Array = values
    return result


def blocks(shape: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield indexes that cut an array into consecutive blocks of at most about `BLOCK` elements."""
    axis, size = len(shape), 1
    while axis > 0 and size * shape[axis - 1] <= BLOCK:
        axis -= 1
        size *= shape[axis]
    if axis == 0:
        yield ()
        return
    step = max(1, BLOCK // max(size, 1))
    for lead in np.ndindex(*shape[: axis - 1]):
        for begin in range(0, shape[axis - 1], step):
            yield (*lead, slice(begin, begin + step))
