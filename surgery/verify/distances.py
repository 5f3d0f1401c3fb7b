"""How far two results of an output are from what float64 gives, and what that says. The rule stands in `arbiter`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from surgery.verify.compare import Pair, Rules, factors, placed_tensors, same_bits
from surgery.verify.details import Element
from surgery.verify.elements import Array, epsilon, is_float
from surgery.verify.tolerance import LEAST_SLICE, Scales, Tolerance
from surgery.verify.vacuity import Run

_LARGEST = 1 << 25
"""Elements of a tensor above which it is not judged by float64: there are several arrays of its size in between."""

_ENOUGH = 32
"""Errors of which the largest tells well what the others may be."""

_MANY, _FEW = 4.0, 8.0
"""How many times the largest error of the original an error may be, where there are so many of them, and fewer."""

_SPREAD = 3.0
"""How many times the root mean square error may be that of the original."""

_SUSPICIOUS = 2.0
"""How many times more than that it takes to be suspicious within the tolerance."""

_NOISE = 1 / 16
"""The share of an output's range from which the original's own distance from float64 leaves nothing to compare."""

Kind = Literal["right", "wrong", "suspicious", "noise"]


@dataclass(frozen=True)
class Finding:
    """What float64 says of an output in one run, and the element that says so.

    `times` is by how much its distance from float64 is larger than the original's; `truth` its float64 value.
    """

    kind: Kind
    run: Run
    element: Element | None = None
    times: float = 0.0
    truth: float = 0.0


@dataclass(frozen=True)
class Case:
    """One float tensor of one run: both sides, and what float64 gives for it, None for no such result."""

    run: Run
    pair: Pair
    truth: Array | None
    tolerance: Tolerance

    @cached_property
    def differs(self) -> bool:
        """Whether both sides differ at all."""
        return not same_bits(self.pair.expected, self.pair.actual)

    @cached_property
    def factors(self) -> tuple[Array, Array]:
        """What multiple of the tolerance each element needs, scaled by its surroundings, and by the whole output."""
        x, y = (array.astype(np.float64) for array in (self.pair.expected, self.pair.actual))
        scales = Scales.of(self.pair.expected)
        return factors(x, y, scales.at(x.shape, ()), self.tolerance), factors(x, y, scales.whole, self.tolerance)

    @cached_property
    def distances(self) -> Distances:
        """The distances of both sides from float64."""
        assert self.truth is not None
        return Distances.of(self.pair.expected, self.pair.actual, self.truth, self.tolerance)


@dataclass(frozen=True)
class Distances:
    """Distances from float64, for each element: `near` of the original, `far` of the changed model.

    `unit` is the size of the original's errors around an element. `allowed` is the tolerance there. `lost` tells whether
    the original has a number where float64 has none, and `share` is its largest distance as a share of the range.
    """

    near: Array
    far: Array
    unit: Array
    allowed: Array
    share: float
    lost: bool

    @classmethod
    def of(cls, original: Array, changed: Array, truth: Array, tolerance: Tolerance) -> Distances:
        """Measure both sides; an element that is not finite everywhere is at no distance."""
        x, y, t = (array.astype(np.float64) for array in (original, changed, truth))
        finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(t)
        lost = bool((np.isfinite(x) & ~np.isfinite(t)).any())
        x, y, t = (np.where(finite, array, 0.0) for array in (x, y, t))
        scales = Scales.of(x)
        largest = float(np.abs(x - t).max(initial=0.0))
        # What is right to the last bit is so by luck: it had to be rounded.
        near = np.maximum(np.abs(x - t), epsilon(original.dtype) / 2 * np.abs(x))
        return cls(
            near=near,
            far=np.abs(y - t),
            unit=typical(near),
            allowed=_positive(tolerance.atol * scales.at(x.shape, ()) + tolerance.rtol * np.abs(x)),
            share=largest / scales.whole if scales.whole else float(largest > 0),
            lost=lost,
        )


def typical(errors: Array) -> Array:
    """Return the size that errors have around each element: a product of one factor for each slice along each axis.

    The factors are geometric means, so that one large error among small ones, or a small one among large ones, counts
    little: a noisy row makes the size of its elements large, but not that of the columns that it crosses. Where
    errors are 0 they say nothing.
    """
    known = errors > 0
    if not known.any():
        return np.full(errors.shape, np.finfo(np.float64).tiny)
    logarithms = np.log(errors, out=np.zeros(errors.shape), where=known)
    total = float(logarithms.sum() / known.sum())
    rest = np.where(known, logarithms - total, 0.0)
    size = np.full(errors.shape, total)
    for axis, extent in enumerate(errors.shape):
        if errors.ndim > 1 and extent > 1 and errors.size // extent >= LEAST_SLICE:
            others = tuple(other for other in range(errors.ndim) if other != axis)
            # A slice of few errors keeps near the average of all.
            mean = rest.sum(axis=others, keepdims=True) / (known.sum(axis=others, keepdims=True) + 1.0)
            rest = np.where(known, rest - mean, 0.0)
            size = size + mean
    return np.asarray(np.exp(size))


class Output:
    """One output over all runs."""

    def __init__(self, cases: Sequence[Case], doubt: float) -> None:
        self.cases = cases
        self.doubt = doubt
        measured = [case.distances for case in cases if case.truth is not None]
        self.near, self.far = (
            max((float((getattr(item, side) / item.allowed).max()) for item in measured), default=0.0)
            for side in ("near", "far")
        )
        self.count = sum(item.near.size for item in measured)

    def findings(self) -> Iterator[Finding]:
        """Judge run by run."""
        for case in self.cases:
            if case.differs:
                yield _by_tolerance(case) if case.truth is None else self._by_distance(case)

    def _by_distance(self, case: Case) -> Finding:
        """Find the element that is farthest from float64, measured by the size of the original's errors around it."""
        found, count = case.distances, case.pair.expected.size
        if count < LEAST_SLICE:
            # The errors of all runs, in tolerances.
            unit, largest, spread, count = found.allowed, self.near, np.inf, self.count
        else:
            unit, largest = found.unit, float((found.near / found.unit).max())
            spread = _SPREAD * _mean_square(found.near / unit)
        limit = (_MANY if count >= _ENOUGH else _FEW) * largest
        distances = found.far / unit
        factor, _ = case.factors
        wide = _mean_square(distances) > spread
        wrong = (factor > 1.0) & ((distances > limit) | wide)
        suspicious = np.zeros_like(wrong)
        if found.near.size >= LEAST_SLICE:
            suspicious = (factor > self.doubt) & (distances > _SUSPICIOUS * limit)
        marked = wrong if wrong.any() else suspicious
        if not marked.any():
            return Finding("right", case.run)
        kind: Kind = "wrong" if wrong.any() else "suspicious"
        if kind == "wrong" and (found.lost or found.share > _NOISE):
            kind = "noise"
        top = int(np.argmax(np.where(marked, distances, -1.0)))
        index = tuple(int(i) for i in np.unravel_index(top, marked.shape))
        assert case.truth is not None
        times = float(distances[index]) / max(largest, np.finfo(np.float64).tiny)
        return Finding(kind, case.run, case.pair.element(index), times, float(case.truth[index]))


def _by_tolerance(case: Case) -> Finding:
    """Judge without a float64 result, by the tolerance for the whole output."""
    _, overall = case.factors
    if overall.max() <= 1.0:
        return Finding("right", case.run)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(overall)), overall.shape))
    return Finding("wrong", case.run, case.pair.element(index))


def cases(run: Run, outputs: Mapping[str, Any], truth: Mapping[str, Any], rules: Rules) -> Iterator[Case]:
    """Yield the float tensors among the outputs of a run that are narrower than float64 and not random."""
    for name, expected in run.outputs.items():
        if name in rules.random or name not in outputs:
            continue
        mine, theirs, right = (dict(placed_tensors(value)) for value in (expected, outputs[name], truth.get(name)))
        for item, tensor in mine.items():
            if is_float(tensor.dtype) and item in theirs and tensor.size:
                known = right.get(item)
                if tensor.dtype == np.float64 or known is None or known.shape != tensor.shape:
                    known = None
                elif tensor.size > _LARGEST:
                    known = None
                pair = Pair(name, item, tensor, theirs[item], run.binding.as_json())
                yield Case(run, pair, known, rules.tolerance(tensor.dtype))


def _mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _positive(values: Array) -> Array:
    """Return positive numbers to divide by."""
    result: Array = np.maximum(values, np.finfo(np.float64).tiny)
    return result
