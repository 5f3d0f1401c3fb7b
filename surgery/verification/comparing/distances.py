"""The distances of two results of an output from float64, and the findings from them. The rule is in `arbiter`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from surgery.base.operators.dtypes import Array, epsilon, is_float
from surgery.verification.comparing.compare import ComparisonRules, TensorPair, factors, placed_tensors, same_bits
from surgery.verification.comparing.details import Element
from surgery.verification.comparing.tolerance import LEAST_SLICE, Scales, Tolerance
from surgery.verification.comparing.vacuity import Run

_LARGEST = 1 << 25
"""Elements of a tensor above which it is not judged by float64, because that takes several arrays of its size."""

_ENOUGH = 32
"""Number of errors from which on the largest one represents the others well."""

_PLENTY = 64
"""Number of errors, over all runs, whose geometric mean shows whether those of the changed model are larger: of two
sets of this many normally distributed errors, one has twice the mean of the other in 1 case of 5,000."""

_MANY, _FEW, _SCARCE = 4.0, 8.0, 16.0
"""How many times the original's largest error an error may be, and how many times the original's geometric mean the
geometric mean of all errors may be: for at least `_ENOUGH` errors, for at least `LEAST_SLICE`, and for fewer."""

_HEAVY = 32.0
"""How many times its typical size the largest error of the original may be. Above that, as where values are rounded to
a grid on the way and single elements jump, it is as uncertain as the largest of a few errors."""

_SUSPICIOUS = 2.0
"""Factor on these limits above which an error within the tolerance is suspicious."""

_BINS = 32
"""Number of binary exponents that are distinguished, from the largest magnitude down."""

_ENOUGH_FOR_A_LINE = 256
"""Number of errors needed to fit their growth with the magnitude."""

_INERTIA = 16.0
"""Number of errors that move the size of a slice halfway from that of all: a few errors say little."""

_NOISE = 1 / 16
"""The share of an output's range above which the original's own distance from float64 leaves nothing to compare."""

Kind = Literal["right", "wrong", "suspicious", "noise"]


@dataclass(frozen=True)
class Float64Finding:
    """The finding of float64 on an output in one run, and the element that shows it.

    `times` is the factor by which its distance from float64 exceeds the original's; `truth` is its float64 value.
    """

    kind: Kind
    run: Run
    element: Element | None = None
    times: float = 0.0
    truth: float = 0.0


@dataclass(frozen=True)
class Float64Case:
    """One float tensor of one run: both sides, and its float64 result, None if there is none.

    `rerounded` are the original's results with its 16-bit weights rounded again, if it has any.
    """

    run: Run
    pair: TensorPair
    truth: Array | None
    tolerance: Tolerance
    rerounded: Sequence[Array] = ()

    @cached_property
    def differs(self) -> bool:
        """Whether the two sides differ at all."""
        return not same_bits(self.pair.expected, self.pair.actual)

    def factors(self) -> Array:
        """Return the multiples of the tolerance that elements need, scaled by their surroundings."""
        x, y = self._wide()
        return factors(x, y, Scales.of(self.pair.expected).at(x.shape, ()), self.tolerance)

    def overall(self) -> Array:
        """Return the multiples of the tolerance that elements need, scaled by the whole output."""
        return factors(*self._wide(), Scales.of(self.pair.expected).whole, self.tolerance)

    def _wide(self) -> tuple[Array, Array]:
        return self.pair.expected.astype(np.float64), self.pair.actual.astype(np.float64)

    def distances(self) -> Distances:
        """Return the distances of both sides from float64: several arrays of the size of the output."""
        assert self.truth is not None
        return Distances.of(self.pair.expected, self.pair.actual, self.truth, self.tolerance, self.rerounded)


@dataclass(frozen=True)
class Distances:
    """Distances from float64, for each element: `near` for the original, `far` for the changed model.

    `unit` is the typical size of the original's errors around an element. `allowed` is the tolerance there. `lost` says
    whether the original has a number where float64 has none, `share` is its largest distance as a share of the range.
    """

    near: Array
    far: Array
    unit: Array
    allowed: Array
    share: float
    lost: bool

    @property
    def ratios(self) -> Array:
        """The changed model's distance divided by the original's, for each element where both are positive."""
        known = (self.near > 0) & (self.far > 0)
        with np.errstate(over="ignore"):
            return np.asarray(self.far[known] / self.near[known])

    @classmethod
    def of(
        cls, original: Array, changed: Array, truth: Array, tolerance: Tolerance, rerounded: Sequence[Array] = ()
    ) -> Distances:
        """Measure both sides; the distance of an element that is not finite everywhere is 0.

        The original's distance is that of a run with `rerounded` weights where that is larger.
        """
        x, y, t = (array.astype(np.float64) for array in (original, changed, truth))
        finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(t)
        lost = bool((np.isfinite(x) & ~np.isfinite(t)).any())
        x, y, t = (np.where(finite, array, 0.0) for array in (x, y, t))
        scales = Scales.of(x)
        largest = float(np.abs(x - t).max(initial=0.0))
        # An element that is right to the last bit is so by luck: it had to be rounded.
        least = epsilon(original.dtype) / 2 * np.abs(x)
        near = np.maximum(np.abs(x - t), least)
        for array in rerounded:
            other = np.abs(array.astype(np.float64) - t)
            near = np.maximum(near, np.where(finite & np.isfinite(other), other, 0.0))
        return cls(
            near=near,
            far=np.maximum(np.abs(y - t), least),
            unit=typical(near, np.abs(x)),
            allowed=tolerance.atol * scales.at(x.shape, ()) + tolerance.rtol * np.abs(x),
            share=largest / scales.whole if scales.whole else float(largest > 0),
            lost=lost,
        )


def typical(errors: Array, magnitudes: Array) -> Array:
    """Return the typical size of the errors around each element.

    It is a power of the magnitude, with an exponent from 0 (the same everywhere) to 1 (the same share of each), times a
    factor for each binary exponent of the magnitude and for each slice along each axis. The factors are geometric
    means, so that one large error among small ones, or a small one among large ones, counts little: a noisy row makes
    the size of its elements large, but not that of the columns that it crosses. Errors of 0 are ignored. Repeated
    slices, such as those of equal tokens, have one error in each place, not many: they count once.
    """
    for axis in range(errors.ndim):
        first, places = _distinct(errors, magnitudes, axis)
        if first.size < errors.shape[axis]:
            once = typical(np.take(errors, first, axis), np.take(magnitudes, first, axis))
            return np.take(once, places, axis)
    known = errors > 0
    if not known.any():
        return np.zeros(errors.shape)
    logarithms = np.log(errors, out=np.zeros(errors.shape), where=known)
    size = _power(logarithms, magnitudes, known)
    exponents = np.frexp(magnitudes)[1]
    bins = np.clip(exponents.max() - exponents, 0, _BINS - 1)
    rest, counts = (logarithms - size)[known], np.bincount(bins[known], minlength=_BINS)
    size = size + (np.bincount(bins[known], rest, _BINS) / (counts + _INERTIA))[bins]
    for axis, extent in enumerate(errors.shape):
        if errors.ndim > 1 and extent > 1 and errors.size // extent >= LEAST_SLICE:
            others = tuple(other for other in range(errors.ndim) if other != axis)
            rest = np.where(known, logarithms - size, 0.0).sum(axis=others, keepdims=True)
            size = size + rest / (known.sum(axis=others, keepdims=True) + _INERTIA)
    return np.asarray(np.exp(size))


def _distinct(errors: Array, magnitudes: Array, axis: int) -> tuple[Array, Array]:
    """Return the first of each group of slices along an axis that have equal sums, and the group of each slice."""
    others = tuple(other for other in range(errors.ndim) if other != axis)
    sums = np.stack([errors.sum(axis=others), magnitudes.sum(axis=others)], axis=-1)
    _, first, places = np.unique(sums, axis=0, return_index=True, return_inverse=True)
    return first, places.reshape(-1)


def _power(logarithms: Array, magnitudes: Array, known: Array) -> Array:
    """Fit a line to the logarithms of errors over those of magnitudes, by least squares."""
    mean = float(logarithms[known].mean())
    present = known & (magnitudes > 0)
    if present.sum() < _ENOUGH_FOR_A_LINE:
        return np.full(logarithms.shape, mean)
    least = float(magnitudes[present].min())
    places = np.log(np.maximum(magnitudes, least))
    x, y = places[present] - places[present].mean(), logarithms[present] - logarithms[present].mean()
    slope = float(np.clip((x @ y) / max(float(x @ x), np.finfo(np.float64).tiny), 0.0, 1.0))
    return np.asarray(mean + slope * (places - places[known].mean()))


class Float64Output:
    """One output over all runs. Of a large tensor, only what is found is held, no array of its size."""

    def __init__(self, cases: Sequence[Float64Case], doubt: float) -> None:
        self.doubt = doubt
        self._measured = [(case, self._measure(case)) for case in cases]
        known = [one for _, one in self._measured if one is not None]
        self.near = max((one.near for one in known), default=0.0)
        self.far = max((one.far for one in known), default=0.0)
        self.raw = max((one.raw for one in known), default=0.0)
        self.count = sum(one.count for one in known)
        ratios = sum(one.ratios for one in known)
        self.ratio = float(np.exp(sum(one.logarithms for one in known) / ratios)) if ratios else 1.0

    def findings(self) -> Iterator[Float64Finding]:
        """Judge run by run."""
        is_worse = self.count >= _PLENTY and self.ratio > _MANY
        for case, measured in self._measured:
            if not case.differs:
                continue
            if measured is None:
                yield _by_tolerance(case)
            elif measured.found:
                yield measured.found[is_worse]
            else:
                yield self._by_all_errors(case, is_worse)

    def _measure(self, case: Float64Case) -> _Distances | None:
        """Measure the distances from float64, and judge by them; None if there is no float64 result."""
        if case.truth is None:
            return None
        found = case.distances()
        # An output of zeros has no tolerance to measure by.
        sized = found.allowed.any()
        logarithms = np.log(found.ratios)
        return _Distances(
            near=_largest(found.near, found.allowed) if sized else 0.0,
            far=_largest(found.far, found.allowed) if sized else 0.0,
            raw=float(found.near.max()),
            count=found.near.size,
            ratios=logarithms.size,
            logarithms=float(logarithms.sum()),
            found=self._by_own_errors(case, found) if case.differs and found.near.size >= LEAST_SLICE else (),
        )

    def _by_own_errors(self, case: Float64Case, found: Distances) -> tuple[Float64Finding, ...]:
        """Find the element farthest from float64, measured by the typical size of the original's errors around it.

        Returns the findings if the changed model's errors are not larger than the original's over all runs, and if they
        are.
        """
        factor, limit = case.factors(), _limit(found)
        times = _ratio(found.far, found.unit) / _largest(found.near, found.unit)
        wrong = (factor > 1.0) & ((times > limit) | (_mean(found.ratios) > limit))
        suspicious = (factor > self.doubt) & (times > _SUSPICIOUS * limit)
        either = suspicious, suspicious | (factor > self.doubt)
        return tuple(_finding(case, found, times, wrong, marked) for marked in either)

    def _by_all_errors(self, case: Float64Case, is_worse: bool) -> Float64Finding:
        """Judge too few errors to know their size: use those of all runs, in tolerances and unscaled."""
        found, factor = case.distances(), case.factors()
        by_tolerance = np.where(found.allowed > 0, _ratio(found.far, found.allowed * self.near), 0.0)
        times = np.maximum(by_tolerance, _ratio(found.far, self.raw))
        doubt = self.doubt if self.count >= _ENOUGH else np.inf
        wrong = (factor > 1.0) & (times > _SCARCE)
        suspicious = (factor > doubt) & (times > _SUSPICIOUS * _SCARCE)
        if is_worse:
            suspicious |= factor > self.doubt
        return _finding(case, found, times, wrong, suspicious)


@dataclass(frozen=True)
class _Distances:
    """The distances of one tensor from float64, as numbers.

    `near` and `far` are the largest in tolerances, `raw` the original's largest. `logarithms` is the sum of those of so
    many `ratios`. `found` is empty if the finding depends on all runs.
    """

    near: float
    far: float
    raw: float
    count: int
    ratios: int
    logarithms: float
    found: tuple[Float64Finding, ...]


def _finding(case: Float64Case, found: Distances, times: Array, wrong: Array, suspicious: Array) -> Float64Finding:
    """Return the finding on a tensor, of whose elements some are wrong, or else suspicious."""
    marked = wrong if wrong.any() else suspicious
    if not marked.any():
        return Float64Finding("right", case.run)
    kind: Kind = "wrong" if wrong.any() else "suspicious"
    if kind == "wrong" and (found.lost or found.share > _NOISE):
        kind = "noise"
    top = int(np.argmax(np.where(marked, times, -1.0)))
    index = tuple(int(i) for i in np.unravel_index(top, marked.shape))
    assert case.truth is not None
    return Float64Finding(kind, case.run, case.pair.element(index), float(times[index]), float(case.truth[index]))


def _limit(found: Distances) -> float:
    """Return the multiple of the original's largest error up to which an error is allowed."""
    if _largest(found.near, found.unit) > _HEAVY:
        return _SCARCE
    return _MANY if found.near.size >= _ENOUGH else _FEW


def _by_tolerance(case: Float64Case) -> Float64Finding:
    """Judge without a float64 result, by the tolerance scaled by the whole output."""
    overall = case.overall()
    if overall.max() <= 1.0:
        return Float64Finding("right", case.run)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(overall)), overall.shape))
    return Float64Finding("wrong", case.run, case.pair.element(index))


def cases(
    run: Run,
    outputs: Mapping[str, Any],
    truth: Mapping[str, Any],
    rules: ComparisonRules,
    rerounded: Sequence[Mapping[str, Any]],
) -> Iterator[Float64Case]:
    """Yield the non-random float tensors among the outputs of a run, with float64 results where they are narrower."""
    for name, expected in run.outputs.items():
        if name in rules.random or name not in outputs:
            continue
        given = expected, outputs[name], truth.get(name), *(other.get(name) for other in rerounded)
        mine, theirs, right, *moved = (dict(placed_tensors(value)) for value in given)
        for item, tensor in mine.items():
            if is_float(tensor.dtype) and item in theirs and tensor.size:
                known = right.get(item)
                fits = known is not None and known.shape == tensor.shape and tensor.size <= _LARGEST
                if not fits or (tensor.dtype == np.float64 and name not in rules.precision):
                    known = None
                pair = TensorPair(name, item, tensor, theirs[item], run.binding.as_json())
                others = tuple(other[item] for other in moved if item in other and other[item].shape == tensor.shape)
                yield Float64Case(run, pair, known, rules.tolerance(tensor.dtype, name), others)


def _largest(values: Array, units: Array) -> float:
    """Return the largest value in units; it is positive, so that it can be a divisor."""
    return max(float(_ratio(values, units).max()), np.finfo(np.float64).tiny)


def _ratio(values: Array, units: Array | float) -> Array:
    """Divide, by zeros too: 0 / 0 is 0, and any other number divided by 0 is infinite."""
    units = np.broadcast_to(units, values.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        quotient = np.divide(values, units, out=np.where(values > 0, np.inf, 0.0), where=units > 0)
    return np.asarray(np.where(np.isnan(quotient), 0.0, quotient))


def _mean(ratios: Array) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.log(ratios).mean())) if ratios.size else 1.0
