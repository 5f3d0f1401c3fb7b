"""Comparison of outputs: bit for bit, or within a tolerance scaled by the surrounding elements.

EXACT means the same bits: dtype, shape, the sign of a zero, and NaN in the same places (payloads may differ). CLOSE
means `|a - b| <= atol * S + rtol * |a|` for each element, where `a` is the original's element and `S` its scale, see
`tolerance`. NaN and infinities must be in the same places. Integers, bools and strings are compared bit for bit under
every promise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from surgery.base.operators.dtypes import Array, epsilon, is_float, smallest
from surgery.base.promises import Parity
from surgery.verification.comparing.details import Details, Element, NonFinitePlaces, Plain
from surgery.verification.comparing.spread import Spread, all_errors
from surgery.verification.comparing.tolerance import BLOCK, Scales, Tolerance, blocks
from surgery.verification.inputs.spec import VerifySpec

__all__ = [
    "ComparisonRules",
    "OutputDistances",
    "TensorPair",
    "Tolerance",
    "compare",
    "describe",
    "exceeds",
    "factors",
    "place",
    "same_bits",
    "tensors",
]

_EXPONENT = np.uint64(0x7FF0000000000000)
"""The exponent bits of a float64: taken alone, they are a power of two."""


@dataclass
class OutputDistances:
    """How far apart two models were, over all outputs and runs so far.

    `bits` says whether any bit differed. `needed` is the smallest multiple of the tolerance that covers everything:
    `needed * rtol` and `needed * atol` together would have passed. It is infinite if no tolerance would have passed.
    `overall` is the same with the largest magnitude of a whole output as the scale of all its elements: if only
    `needed` is above 1, something small next to something large moved, and only float64 shows whether that is rounding.
    `message` describes the worst element. `binding` is the set of inputs that is being compared.
    """

    bits: bool = False
    needed: float = 0.0
    overall: float = 0.0
    message: str = ""
    hopeless: bool = False
    rtol: float = 0.0
    atol: float = 0.0
    binding: Mapping[str, Any] | None = None
    elements: int = 0
    differing: int = 0
    count_beyond: int = 0
    ulp: float = 0.0
    worst: Element | None = None
    nan: NonFinitePlaces | None = None
    infinite: NonFinitePlaces | None = None
    spreads: dict[str, Spread] | None = None
    """The error distribution of each output, if it is collected."""
    filled: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The number of runs in which random outputs of both models have elements, if the original's have."""

    @property
    def beyond(self) -> bool:
        """Whether the difference exceeds the tolerance even when scaled by the largest magnitude of each output."""
        return self.overall > 1.0

    def give_up(self, message: str, element: Element | None = None) -> None:
        """Record a difference that no tolerance covers; the first one is reported."""
        if not self.hopeless:
            self.message = message
            self.worst = element
        self.bits = self.hopeless = True
        self.needed = self.overall = float("inf")

    def note_drawn(self, name: str, has_elements: bool) -> None:
        """Note whether a random output has elements, where the original's has."""
        mine, theirs = self.filled.get(name, (0, 0))
        self.filled[name] = mine + 1, theirs + has_elements

    def require_elements(self) -> None:
        """Record a difference for a random output that never has elements, unlike the original's."""
        for name, (mine, theirs) in self.filled.items():
            if mine >= _ENOUGH and not theirs:
                self.give_up(f"output '{name}' is empty in all {mine} runs, unlike the original's")

    def record(self, factor: float, overall: float, tolerance: Tolerance, element: Element) -> None:
        """Record the worst element of one output."""
        self.bits = True
        if factor > 0:
            self.rtol = max(self.rtol, factor * tolerance.rtol)
            self.atol = max(self.atol, factor * tolerance.atol)
        if factor > self.needed or not self.message:
            self.message = describe(element)
            self.worst = element
        self.needed = max(self.needed, factor)
        self.overall = max(self.overall, overall)

    def as_needed(self) -> dict[str, float] | None:
        """Return the smallest tolerance that would have passed; None if none would, zeros if the bits agree."""
        if np.isinf(self.needed):
            return None
        return {"rtol": self.rtol, "atol": self.atol, "factor": self.needed}

    def details(self) -> Details:
        """Return the findings so far as plain values."""
        found = self.elements, self.differing, self.count_beyond, self.ulp, self.worst, self.nan, self.infinite
        return Details(*found, outputs=all_errors(self.spreads))

    def count_equal(self, name: str, elements: int) -> None:
        """Count equal elements of an output, if its error distribution is collected."""
        if (spread := self.spread(name)) is not None:
            spread.equal += elements

    def spread(self, name: str) -> Spread | None:
        """Return the error distribution of an output; None if it is not collected."""
        return None if self.spreads is None else self.spreads.setdefault(name, Spread())


_HALF = np.dtype(np.float16)

Free = frozenset[int] | None
"""The axes along which the extents of a random output depend on the draws; None if its rank, or the length of a
sequence, does."""

_ENOUGH = 3
"""Number of runs in which an output of the original has elements and that of the changed model has none, although it
has none in any run, which is no accident of the draws."""


_FIXED: Free = frozenset()


@dataclass(frozen=True)
class ComparisonRules:
    """The rules of a comparison: the promise, the recipe's tolerance, the outputs of random operators.

    `precision` has the outputs that are computed in a narrower type than their own, `ranges` the minimum scales of
    outputs, `extents` what the draws decide of the shapes of random ones. `coarse`: types wider than 16 bits may have
    been computed in 16 bits.
    """

    promise: Parity
    rtol: float | None = None
    atol: float | None = None
    random: frozenset[str] = field(default_factory=frozenset)
    precision: Mapping[str, np.dtype[Any]] = field(default_factory=dict, hash=False)
    ranges: Mapping[str, float] = field(default_factory=dict, hash=False)
    extents: Mapping[str, Free] = field(default_factory=dict, hash=False)
    coarse: bool = False

    @classmethod
    def of(cls, spec: VerifySpec, promise: Parity, **more: Any) -> ComparisonRules:
        """Return the rules of a verification."""
        return cls(promise, spec.rtol, spec.atol, coarse=spec.setup.is_coarse, **more)

    @property
    def is_default(self) -> bool:
        """Whether the recipe leaves the tolerance to the dtype."""
        return self.rtol is None and self.atol is None

    def tolerance(self, dtype: np.dtype[Any], name: str = "") -> Tolerance:
        """Return the tolerance for a dtype, or for the precision in which the output `name` is computed."""
        computed = self.precision.get(name, dtype)
        if self.coarse and computed.kind == "f" and computed.itemsize > _HALF.itemsize:
            computed = _HALF
        return Tolerance.of(computed, self.rtol, self.atol)

    def fits(self, name: str, expected: tuple[int, ...], actual: tuple[int, ...]) -> bool:
        """Return whether an output has the shape of the original's, except for extents that depend on draws."""
        free = self._free(name)
        if free is None or expected == actual:
            return True
        return len(expected) == len(actual) and all(
            x == y or axis in free for axis, (x, y) in enumerate(zip(expected, actual))
        )

    def may_have(self, name: str, length: int, items: int) -> bool:
        """Return whether a sequence of so many items may stand for one of another length."""
        return items == length or (items > 0 and self._free(name) is None)

    def _free(self, name: str) -> Free:
        return self.extents.get(name, _FIXED) if name in self.random else _FIXED

    def scales(self, name: str, expected: Array) -> Scales:
        """Return the scales of the elements of an output."""
        found, least = Scales.of(expected), self.ranges.get(name, 0.0)
        return replace(found, whole=max(found.whole, least), floor=max(found.floor, least)) if least else found


def compare(
    original: Mapping[str, Any], changed: Mapping[str, Any], rules: ComparisonRules, into: OutputDistances
) -> None:
    """Compare the outputs of one run by name; `into` collects the findings."""
    for name, expected in original.items():
        if name not in changed:
            into.give_up(f"output '{name}' is missing")
        else:
            _compare_values(name, (), expected, changed[name], rules, into)
    for name in changed:
        if name not in original:
            into.give_up(f"output '{name}' is new")


def exceeds(one: Any, other: Any, rules: ComparisonRules) -> bool:
    """Return whether two values differ by more than the tolerance: `compare` without details, ending at the first."""
    mine, theirs = list(tensors(one)), list(tensors(other))
    if len(mine) != len(theirs):
        return True
    return any(_exceeds(a, b, rules) for a, b in zip(mine, theirs))


def _exceeds(a: Array, b: Array, rules: ComparisonRules) -> bool:
    if a.dtype == b.dtype and a.dtype.kind == "c":
        real = np.dtype(f"f{a.dtype.itemsize // 2}")
        return _exceeds(_parts(a, real), _parts(b, real), rules)
    if a.dtype != b.dtype or a.shape != b.shape or not is_float(a.dtype):
        return not same_bits(a, b)
    tolerance, scales = rules.tolerance(a.dtype), Scales.of(a)
    for block in blocks(a.shape):
        x, y = (np.asarray(tensor[block]).astype(np.float64) for tensor in (a, b))
        if (factors(x, y, scales.at(a.shape, block), tolerance) > 1.0).any():
            return True
    return False


def same_bits(a: Array, b: Array) -> bool:
    """Return whether two tensors have the same dtype, shape and bits; all NaNs count as equal."""
    if a is b:
        return True
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "OUS":
        return bool(np.array_equal(a, b))
    return all(not _bit_mismatch(x, y).any() for x, y in _pieces(a, b))


def tensors(value: Any) -> Iterator[Any]:
    """Yield the tensors of a value."""
    return (tensor for _, tensor in placed_tensors(value))


def total_bytes(values: Mapping[str, Any]) -> int:
    """Return the size of the tensors of several values, such as the outputs of a run, in bytes."""
    return sum(tensor.nbytes for value in values.values() for tensor in tensors(value))


def placed_tensors(value: Any, item: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield the positions in sequences and the tensors of a value."""
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from placed_tensors(inner, (*item, index))
    elif value is not None:
        yield item, value


def factors(x: Array, y: Array, scale: Array | float, tolerance: Tolerance) -> Array:
    """Return for each element the factor by which the tolerance would have to grow; infinite if that would not help.

    `x` and `y` are float64, `scale` is one number or has one for each element.
    """
    with np.errstate(all="ignore"):
        distance = np.abs(x - y)
        allowed = tolerance.atol * scale + tolerance.rtol * np.abs(x)
        if np.isfinite(distance.max(initial=0.0)) and allowed.min(initial=np.inf) > 0:
            # Then both operands are finite too, as in nearly all arrays: the general case would take most of the time.
            quotient: Array = distance / allowed
            return quotient
        found = np.where(distance == 0, 0.0, distance / allowed)
        finite = np.isfinite(x) & np.isfinite(y)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        result: Array = np.where(same, 0.0, np.where(finite, found, np.inf))
    return np.where(np.isnan(result), np.inf, result)


def describe(element: Element) -> str:
    """Return the value of an element and the value it should have."""
    index = list(element.index)
    what = f"{_title(element.output, element.item)}{index if index else ''}"
    pair = element.changed, element.original
    changed, original = map(_number, pair)
    if changed == original:
        changed, original = (_number(value, digits=17) for value in pair)
    return f"{what}: {changed} instead of {original}"


def _compare_values(
    name: str, item: tuple[int, ...], expected: Any, actual: Any, rules: ComparisonRules, into: OutputDistances
) -> None:
    """Compare two tensors, sequences or optionals; `item` is the position in a sequence."""
    where = _title(name, item)
    if expected is None or actual is None:
        if (expected is None) != (actual is None):
            into.give_up(f"{where} is {'empty' if actual is None else 'not empty'}, unlike the original's")
        return
    if isinstance(expected, list) or isinstance(actual, list):
        both = isinstance(expected, list) and isinstance(actual, list)
        if not both or not rules.may_have(name, len(expected), len(actual)):
            into.give_up(f"{where} is a sequence of a different length")
            return
        for index, (x, y) in enumerate(zip(expected, actual)):
            _compare_values(name, (*item, index), x, y, rules, into)
        return
    _compare_forms(where, TensorPair(name, item, expected, actual, into.binding), rules, into)


def _compare_forms(where: str, pair: TensorPair, rules: ComparisonRules, into: OutputDistances) -> None:
    """Compare the element types and shapes of two tensors, and then their elements unless they are random."""
    expected, actual, name = pair.expected, pair.actual, pair.name
    if expected.dtype != actual.dtype:
        into.give_up(f"{where} is {actual.dtype}, not {expected.dtype}")
    elif not rules.fits(name, expected.shape, actual.shape):
        into.give_up(f"{where} has shape {list(actual.shape)}, not {list(expected.shape)}")
    elif name in rules.random:
        if expected.size:
            into.note_drawn(name, actual.size > 0)
    else:
        into.elements += expected.size
        if same_bits(expected, actual):
            into.count_equal(name, expected.size)
        else:
            _compare_tensors(pair, rules, into)


@dataclass(frozen=True)
class TensorPair:
    """Two tensors that are compared."""

    name: str
    item: tuple[int, ...]
    expected: Array
    actual: Array
    binding: Mapping[str, Any] | None

    def element(self, index: tuple[int, ...]) -> Element:
        """Return one element of both tensors."""
        x, y = self.expected[index], self.actual[index]
        ulp = None
        if is_float(self.expected.dtype) and np.isfinite(x) and np.isfinite(y):
            ulp = float(ulps(np.asarray(x, np.float64), np.asarray(y, np.float64), self.expected.dtype))
        return Element(self.name, self.item, index, plain(x), plain(y), ulp, self.binding)


def _compare_tensors(pair: TensorPair, rules: ComparisonRules, into: OutputDistances) -> None:
    expected, actual = pair.expected, pair.actual
    if expected.dtype.kind == "c":
        real = np.dtype(f"f{expected.dtype.itemsize // 2}")
        parts = replace(pair, expected=_parts(expected, real), actual=_parts(actual, real))
        _compare_floats(parts, rules, into)
    elif is_float(expected.dtype):
        _compare_floats(pair, rules, into)
    else:
        flat = np.flatnonzero(expected.reshape(-1) != actual.reshape(-1))
        into.differing += flat.size
        into.count_beyond += flat.size
        element = pair.element(tuple(int(i) for i in np.unravel_index(int(flat[0]), expected.shape)))
        into.give_up(f"{describe(element)} ({flat.size} of {expected.size} differ)", element)
        if (spread := into.spread(pair.name)) is not None:
            spread.equal += expected.size - flat.size
            spread.endless += flat.size
            spread.record(float("inf"), element)


def _compare_floats(pair: TensorPair, rules: ComparisonRules, into: OutputDistances) -> None:
    expected, actual = pair.expected, pair.actual
    tolerance = rules.tolerance(expected.dtype, pair.name)
    scales = rules.scales(pair.name, expected)
    worst, overall, position = -1.0, 0.0, (0,) * expected.ndim
    misplaced: tuple[int, ...] | None = None
    spread = into.spread(pair.name)
    # Block by block, because a whole output in float64 would take several times its memory.
    for block in blocks(expected.shape):
        raw_x, raw_y = np.asarray(expected[block]), np.asarray(actual[block])
        x, y = raw_x.astype(np.float64), raw_y.astype(np.float64)
        found = factors(x, y, scales.at(expected.shape, block), tolerance)
        if scales.parts:
            overall = max(overall, float(factors(x, y, scales.whole, tolerance).max()))
        into.differing += int(np.count_nonzero(_bit_mismatch(raw_x.reshape(-1), raw_y.reshape(-1))))
        into.count_beyond += int(np.count_nonzero(found > 1.0))
        if spread is not None:
            spread.add(found)
        into.ulp = max(into.ulp, float(ulps(x, y, expected.dtype).max()))
        finite = np.isfinite(x) & np.isfinite(y)
        if not finite.all():
            into.nan = _noted(into.nan, np.isnan(x) != np.isnan(y), block, pair)
            into.infinite = _noted(into.infinite, _misplaced_infinities(x, y), block, pair)
            # No tolerance excuses an infinity or NaN on one side only: it is reported instead of the largest error.
            broken = np.isinf(found) & ~finite
            if misplaced is None and broken.any():
                misplaced = place(block, broken.shape, int(np.argmax(broken)))
        top = int(np.argmax(found))
        if found.reshape(-1)[top] > worst:
            worst, position = float(found.reshape(-1)[top]), place(block, found.shape, top)
    element = pair.element(position if misplaced is None else misplaced)
    if spread is not None:
        spread.record(worst, element)
    if misplaced is not None:
        into.give_up(describe(element), element)
    else:
        into.record(worst, overall if scales.parts else worst, tolerance, element)


def ulps(x: Array, y: Array, dtype: np.dtype[Any]) -> Array:
    """Return the distances of float64 values in units in the last place of a dtype; 0 where either is not finite.

    The unit of a pair is the distance from the larger magnitude of the two to the next number.
    """
    with np.errstate(all="ignore"):
        larger = np.maximum(np.abs(x), np.abs(y))
        power = (larger.view(np.uint64) & _EXPONENT).view(np.float64)  # the largest power of two up to the number
        unit = np.maximum(power * epsilon(dtype), smallest(dtype))
        distances: Array = np.abs(x - y) / unit
    if np.isfinite(distances.max(initial=0.0)):
        return distances
    result: Array = np.where(np.isfinite(x) & np.isfinite(y), distances, 0.0)
    return result


def place(block: tuple[Any, ...], shape: tuple[int, ...], position: int) -> tuple[int, ...]:
    """Return the index in the whole array of an element that is given by its position in a block."""
    inner = [int(i) for i in np.unravel_index(position, shape)]
    if block:
        inner[0] += block[-1].start
    return (*block[:-1], *inner)


def _noted(
    known: NonFinitePlaces | None, misplaced: Array, block: tuple[Any, ...], pair: TensorPair
) -> NonFinitePlaces | None:
    """Add the marked elements of a block to the known ones."""
    count = int(np.count_nonzero(misplaced))
    if not count:
        return known
    if known is not None:
        return NonFinitePlaces(known.count + count, known.first)
    return NonFinitePlaces(count, pair.element(place(block, misplaced.shape, int(np.argmax(misplaced)))))


def _misplaced_infinities(x: Array, y: Array) -> Array:
    infinite = np.isinf(x) | np.isinf(y)
    result: Array = infinite & (x != y) & ~np.isnan(x) & ~np.isnan(y)
    return result


def _pieces(a: Array, b: Array) -> Iterator[tuple[Array, Array]]:
    x, y = np.ascontiguousarray(a).reshape(-1), np.ascontiguousarray(b).reshape(-1)
    for begin in range(0, x.size, BLOCK):
        yield x[begin : begin + BLOCK], y[begin : begin + BLOCK]


def _bit_mismatch(x: Array, y: Array) -> Array:
    """Mark the elements of flat arrays whose bits differ, unless both are NaN."""
    size = x.dtype.itemsize
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    mismatch: Array
    if size in (1, 2, 4, 8):
        mismatch = x.view(f"u{size}") != y.view(f"u{size}")
    else:
        mismatch = (x.view(np.uint8).reshape(-1, size) != y.view(np.uint8).reshape(-1, size)).any(axis=1)
    if mismatch.any() and (is_float(x.dtype) or x.dtype.kind == "c"):
        mismatch &= ~(np.isnan(x) & np.isnan(y))
    return mismatch


def _parts(array: Array, real: np.dtype[Any]) -> Array:
    return np.ascontiguousarray(array).view(real).reshape(*array.shape, 2)


def plain(value: Any) -> Plain:
    """Return an element as a Python number, bool or string."""
    if is_float(np.asarray(value).dtype):
        return float(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    result: Plain = value.item() if isinstance(value, np.generic) else value
    return result if isinstance(result, (bool, int, float, complex, str)) else str(result)


def _number(value: Plain, digits: int = 9) -> str:
    """Format an element; nine digits suffice to show a difference in float32, and seventeen in float64."""
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return repr(value) if isinstance(value, str) else str(value)


def _title(name: str, item: tuple[int, ...]) -> str:
    """Name an output, or its item at a position of a sequence."""
    return f"output '{name}'" + "".join(f"[{position}]" for position in item)
