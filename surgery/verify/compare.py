"""Comparison of outputs: bit for bit, or within a tolerance scaled by the output's own range.

EXACT means the same bits: dtype, shape, the sign of a zero, and NaN in the same places (its payload is nobody's
promise). CLOSE means `|a - b| <= atol * S + rtol * |a|` for each element, with `a` of the original and `S` the
largest finite magnitude of the original's output in that run: a fixed atol would pass anything for an output of
1e-29 and nothing for one of 1e9. NaN and infinities must sit in the same places. Integers, bools and strings
are compared bit for bit under every promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surgery.parity import Parity
from surgery.verify.elements import Array, epsilon, is_float

_BLOCK = 1 << 20
"""Elements compared at a time, so that temporaries stay small for large outputs."""

_ULPS = {"rtol": 2.0**10, "atol": 2.0**7}
"""Rounding steps granted by default: sums of thousands of terms, taken in another order, in tens of layers. For
float32 that is rtol 1.2e-4 and atol 1.5e-5."""

_NARROW_ULPS = {"rtol": 8.0, "atol": 4.0}
"""The same for types of 16 bits and less. Runtimes accumulate these in float32, so that each layer adds about one
rounding step of its own and the order of a sum adds none."""

_LOSSY_FACTOR = 100.0
"""A LOSSY pass may lose about seven bits more unless the recipe says otherwise."""


@dataclass(frozen=True)
class Tolerance:
    """Bounds for `|a - b| <= atol * S + rtol * |a|`."""

    rtol: float
    atol: float

    @classmethod
    def of(
        cls, dtype: np.dtype[Any], promise: Parity = Parity.CLOSE, rtol: float | None = None, atol: float | None = None
    ) -> Tolerance:
        """Return the default of a dtype under a promise, overridden by what the recipe gives.

        A number of the recipe is never taken below one rounding step of the dtype: two float16 results that
        differ by one step cannot be told apart by a tolerance meant for float32.
        """
        eps = epsilon(dtype)
        ulps = _NARROW_ULPS if dtype.itemsize <= 2 else _ULPS
        factor = _LOSSY_FACTOR if promise is Parity.LOSSY else 1.0
        return cls(
            rtol=ulps["rtol"] * eps * factor if rtol is None else max(rtol, eps),
            atol=ulps["atol"] * eps * factor if atol is None else max(atol, eps),
        )


@dataclass
class Difference:
    """How far apart two models were, over all outputs and runs so far.

    `bits` tells whether any bit differed and `beyond` whether any element left the tolerance. `needed` is the
    smallest multiple of the tolerance that everything fits in: `needed * rtol` and `needed * atol` together would
    have passed. It is infinite when no tolerance would have. `message` speaks of the worst element.
    """

    bits: bool = False
    needed: float = 0.0
    message: str = ""
    rtol: float = 0.0
    atol: float = 0.0

    @property
    def beyond(self) -> bool:
        """Whether the tolerance does not hold."""
        return self.needed > 1.0

    def hopeless(self, message: str) -> None:
        """Record a difference that no tolerance covers; the first one is the one that is told."""
        if not np.isinf(self.needed):
            self.message = message
        self.bits = True
        self.needed = float("inf")

    def record(self, factor: float, tolerance: Tolerance, message: str) -> None:
        """Record the worst element of one output."""
        self.bits = True
        if factor > 0:
            self.rtol = max(self.rtol, factor * tolerance.rtol)
            self.atol = max(self.atol, factor * tolerance.atol)
        if factor > self.needed or not self.message:
            self.message = message
        self.needed = max(self.needed, factor)

    def as_needed(self) -> dict[str, float] | None:
        """Give the smallest tolerance that would have passed, None when none would; zeros when the bits agree."""
        if np.isinf(self.needed):
            return None
        return {"rtol": self.rtol, "atol": self.atol}


@dataclass(frozen=True)
class Rules:
    """How to compare: the promise, the recipe's tolerance, the outputs of random operators."""

    promise: Parity
    rtol: float | None = None
    atol: float | None = None
    random: frozenset[str] = field(default_factory=frozenset)

    def tolerance(self, dtype: np.dtype[Any]) -> Tolerance:
        """Return the tolerance for a dtype."""
        return Tolerance.of(dtype, self.promise, self.rtol, self.atol)


def compare(original: Mapping[str, Any], changed: Mapping[str, Any], rules: Rules, into: Difference) -> None:
    """Compare the outputs of one run by name; `into` collects what is found."""
    for name, expected in original.items():
        if name not in changed:
            into.hopeless(f"output '{name}' is gone")
        else:
            _compare_values(f"output '{name}'", expected, changed[name], rules, name in rules.random, into)
    for name in changed:
        if name not in original:
            into.hopeless(f"output '{name}' is new")


def same_bits(a: Array, b: Array) -> bool:
    """Tell whether two tensors have the same dtype, shape and bits; any NaN is as good as another."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "OUS":
        return bool(np.array_equal(a, b))
    return all(not _bit_mismatch(x, y).any() for x, y in _blocks(a, b))


def _compare_values(where: str, expected: Any, actual: Any, rules: Rules, random: bool, into: Difference) -> None:
    """Compare two tensors, sequences or optionals."""
    if expected is None or actual is None:
        if (expected is None) != (actual is None):
            into.hopeless(f"{where} is {'empty' if actual is None else 'not empty'}, unlike the original's")
        return
    if isinstance(expected, list) or isinstance(actual, list):
        if not (isinstance(expected, list) and isinstance(actual, list)) or len(expected) != len(actual):
            into.hopeless(f"{where} is a sequence of another length")
            return
        for index, (x, y) in enumerate(zip(expected, actual)):
            _compare_values(f"{where}[{index}]", x, y, rules, random, into)
        return
    if expected.dtype != actual.dtype:
        into.hopeless(f"{where} is {actual.dtype}, not {expected.dtype}")
    elif expected.shape != actual.shape:
        into.hopeless(f"{where} has shape {list(actual.shape)}, not {list(expected.shape)}")
    elif not random and not same_bits(expected, actual):
        _compare_tensors(where, expected, actual, rules, into)


def _compare_tensors(where: str, expected: Array, actual: Array, rules: Rules, into: Difference) -> None:
    """Judge two tensors of the same dtype and shape whose bits differ."""
    if expected.dtype.kind == "c":
        real = np.dtype(f"f{expected.dtype.itemsize // 2}")
        _compare_tensors(where, _parts(expected, real), _parts(actual, real), rules, into)
        return
    if not is_float(expected.dtype):
        flat = np.flatnonzero(expected.reshape(-1) != actual.reshape(-1))
        into.hopeless(_element(where, expected, actual, int(flat[0])) + f" ({flat.size} of {expected.size} differ)")
        return
    tolerance = rules.tolerance(expected.dtype)
    scale = _scale(expected)
    worst, position, begin = -1.0, 0, 0
    for x, y in _blocks(expected, actual):
        factors = _factors(x.astype(np.float64), y.astype(np.float64), scale, tolerance)
        place = int(np.argmax(factors))
        if factors[place] > worst:
            worst, position = float(factors[place]), begin + place
        begin += x.size
    message = _element(where, expected, actual, position)
    if np.isinf(worst):
        into.hopeless(message)
    else:
        into.record(worst, tolerance, message)


def _factors(x: Array, y: Array, scale: float, tolerance: Tolerance) -> Array:
    """Say for each element by what factor the tolerance would have to grow; infinite when that would not help."""
    with np.errstate(all="ignore"):
        distance = np.abs(x - y)
        allowed = tolerance.atol * scale + tolerance.rtol * np.abs(x)
        factors = np.where(distance == 0, 0.0, distance / allowed)
        finite = np.isfinite(x) & np.isfinite(y)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        result: Array = np.where(same, 0.0, np.where(finite, factors, np.inf))
    return np.where(np.isnan(result), np.inf, result)


def _scale(array: Array) -> float:
    """Return the largest finite magnitude, 0 when there is none."""
    largest = 0.0
    for block, _ in _blocks(array, array):
        values = np.abs(block.astype(np.float64))
        values = values[np.isfinite(values)]
        largest = max(largest, float(values.max(initial=0.0)))
    return largest


def _blocks(a: Array, b: Array) -> Any:
    x, y = np.ascontiguousarray(a).reshape(-1), np.ascontiguousarray(b).reshape(-1)
    for begin in range(0, x.size, _BLOCK):
        yield x[begin : begin + _BLOCK], y[begin : begin + _BLOCK]


def _bit_mismatch(x: Array, y: Array) -> Array:
    """Mark the elements whose bits differ, unless both are NaN."""
    size = x.dtype.itemsize
    rows = x.view(np.uint8).reshape(-1, size) != y.view(np.uint8).reshape(-1, size)
    mismatch: Array = rows.any(axis=1)
    if mismatch.any() and (is_float(x.dtype) or x.dtype.kind == "c"):
        mismatch &= ~(np.isnan(x) & np.isnan(y))
    return mismatch


def _parts(array: Array, real: np.dtype[Any]) -> Array:
    return np.ascontiguousarray(array).view(real).reshape(*array.shape, 2)


def _element(where: str, expected: Array, actual: Array, position: int) -> str:
    """Show one element of both sides, with enough digits to see the difference."""
    index = [int(i) for i in np.unravel_index(position, expected.shape)]
    x, y = expected.reshape(-1)[position], actual.reshape(-1)[position]
    return f"{where}{index if index else ''}: {_number(y)} instead of {_number(x)}"


def _number(value: Any) -> str:
    if is_float(np.asarray(value).dtype):
        return f"{float(value):.9g}"
    return repr(value) if isinstance(value, (str, bytes)) else str(value)
