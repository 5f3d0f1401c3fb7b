"""Outputs of random operators, compared by the distribution of their values.

Both models run on the same inputs with many seeds. If they draw from the same distribution, the result of one model for
a seed and the result of the other for another seed are exchangeable: any statistic of the first, minus the same
statistic of the second, is as often negative as positive. For such differences d_1 ... d_R, Hoeffding's inequality,
given their magnitudes, bounds

    P(|d_1 + ... + d_R| > t * sqrt(d_1^2 + ... + d_R^2)) <= 2 * exp(-t^2 / 2)

for any distribution and any dependence between the elements drawn from one seed. With N such statistics per comparison,
t = sqrt(2 * ln(2 * N / 1e-9)): a right model is rejected in less than one comparison of 10^9, so a rejection can be
trusted. As t is at least 6.5, fewer than 64 seeds, for which the sum is at most 8, show nothing.

The values are taken as deviations from the mean of each element in units of its standard deviation, over both models.
The statistics are the mean and the mean square of each element, and for the whole output the mean, the mean square, the
mean absolute value, the shares below seven limits, the square of a run's mean (which grows if elements depend on each
other), and the shares of distinct values, of NaN and of infinities. Of an output whose size depends on the draws, the
elements are a summary: the size, the mean, the mean square, the mean magnitude, and the deciles. For two outputs, also
their correlation and the share of elements in which they are equal: one draw in place of two makes them move together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import log, sqrt
from typing import Any

import numpy as np

from surgery.base.operators.dtypes import Array
from surgery.model.proto.draws import redrawn
from surgery.model.proto.randomness import origins
from surgery.verification.comparing.compare import tensors, total_bytes
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.inputs.input_sets import TRIVIAL

LEAST_SEEDS, SEEDS = 64, 128

REPEATS = 32
"""Runs with each seed."""

_SECONDS = 3.0
"""Seconds of processor time for one model. If they run out before there are enough seeds, nothing is compared."""

_BYTES = 64 << 20
"""Maximum bytes of the outputs of all runs of one model."""

_ELEMENTS = 2048
"""Maximum number of elements of an output that are compared, spread evenly over it."""

_OUTPUTS = 8
"""Maximum number of random outputs of which all pairs are compared."""

_REVERSED = "Bernoulli"
"""The operator that ONNX Runtime (1.31, on the CPU) draws inverted: 1 with the probability of 0."""

_CHANCE = 1e-9
_DECILES = tuple(number / 10 for number in range(11))
_LIMITS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)

Sample = Mapping[str, Sequence[Any]]
"""The values of each output in runs on the same inputs, `REPEATS` runs with each seed."""


class Moments:
    """Compares the random outputs of changed models with those of one original."""

    def __init__(self, original: ReferenceRun) -> None:
        self._original = original
        self._sample: Sample | None = None

    @property
    def seeds(self) -> int:
        """The number of seeds for each model; 0 if runs take too long, or too few seeds fit to show anything."""
        original = self._original
        if not original.random or original.engine != "onnxruntime" or not original.runs:
            return 0
        first = original.runs[0]
        if original.inputs.cost(first.binding) > TRIVIAL:
            return 0
        size = total_bytes(first.outputs)
        count = min(SEEDS, _BYTES // max(size * REPEATS, 1))
        return count if count >= LEAST_SEEDS else 0

    def difference(self, candidate: bytes) -> str | None:
        """Return how the distribution of a changed model's random outputs differs; an empty string if it does not.

        None if the outputs cannot be compared.
        """
        if not self.seeds or not self._comparable(candidate):
            return None
        if self._sample is None:
            self._sample = self._draw(self._original.skeleton, 0)
        theirs = self._draw(candidate, 1) if self._sample else {}
        names = sorted(self._original.random & self._sample.keys() & theirs.keys())
        count = min((len(side[name]) for name in names for side in (self._sample, theirs)), default=0)
        if count < LEAST_SEEDS * REPEATS:
            return None
        mine, theirs = ({name: side[name][:count] for name in names} for side in (self._sample, theirs))
        return compare(mine, theirs)

    def _comparable(self, candidate: bytes) -> bool:
        """Return whether the runtime draws correctly for both models, or inverted for both."""
        import onnx

        operators = origins(onnx.load_model_from_string(candidate)).operators
        return (_REVERSED in operators) == (_REVERSED in self._original.operators)

    def _draw(self, skeleton: bytes, side: int) -> Sample:
        """Run a model on the first inputs, with different seeds for each side."""
        first = self._original.runs[0]
        seeds = np.random.default_rng([self._original.seed, side]).integers(1, 2**31 - 1, self.seeds)
        engine = self._original.engine_for("onnxruntime")
        try:
            return engine.draw(skeleton, first.feed, [int(seed) for seed in seeds], REPEATS, _SECONDS)
        finally:
            engine.close()


def compare(mine: Sample, theirs: Sample) -> str:
    """Compare two samples of the same size; return where they differ, an empty string if they do not."""
    pairs = {name: _stacked(mine[name], theirs[name]) for name in mine}
    known = {name: pair for name, pair in pairs.items() if pair is not None}
    found: list[tuple[str, Array]] = []
    standard = {}
    for name, (raw_a, raw_b) in known.items():
        a, b = standard[name] = _standardized(raw_a, raw_b)
        found += [(f"{what} of output '{name}'", value) for what, value in _numbers(a, b, raw_a, raw_b)]
    for one, other in combinations(list(known)[:_OUTPUTS], 2):
        title = f"outputs '{one}' and '{other}'"
        found += [(f"{what} of {title}", value) for what, value in _joint(known, standard, one, other)]
    total = sum(value.shape[1] for _, value in found)
    limit = sqrt(2 * log(2 * max(total, 1) / _CHANCE))
    for what, value in found:
        score = float(_scores(value).max(initial=0.0))
        if score > limit:
            runs = len(value)
            return f"{what} differs: {score:.1f} standard errors over {runs} runs, where chance allows {limit:.1f}"
    return ""


def _stacked(mine: Sequence[Any], theirs: Sequence[Any]) -> tuple[Array, Array] | None:
    """Return an output of all runs as two arrays [runs, elements]; summaries if sizes vary, None for strings."""
    sides = [[list(tensors(value)) for value in side] for side in (mine, theirs)]
    everything = [tensor for side in sides for run in side for tensor in run]
    if any(tensor.dtype.kind in "OUS" for tensor in everything):
        return None
    flat = [[_flat(run) for run in side] for side in sides]
    if len({values.size for side in flat for values in side}) > 1:
        flat = [[_summary(values) for values in side] for side in flat]
    size = flat[0][0].size
    if not size:
        return None
    chosen = np.unique(np.linspace(0, size - 1, min(size, _ELEMENTS)).astype(np.int64))
    first, second = (np.stack([values[chosen] for values in side]) for side in flat)
    return first, second


def _summary(values: Array) -> Array:
    """Return the number of elements, their mean, mean square and mean magnitude, and their deciles."""
    found = values[np.isfinite(values)]
    if not found.size:
        return np.zeros(4 + len(_DECILES))
    moments = [found.mean(), np.square(found).mean(), np.abs(found).mean()]
    return np.array([values.size, *moments, *np.quantile(found, _DECILES)])


def _flat(run: Sequence[Any]) -> Array:
    """Concatenate the tensors of a value as float64; a complex number gives two elements."""
    parts = []
    for tensor in run:
        if tensor.dtype.kind == "c":
            parts += [tensor.real.reshape(-1), tensor.imag.reshape(-1)]
        else:
            parts.append(tensor.reshape(-1))
    return np.concatenate([part.astype(np.float64) for part in parts]) if parts else np.zeros(0)


def _standardized(a: Array, b: Array) -> tuple[Array, Array]:
    """Return deviations from each element's mean in its standard deviations, over both samples; 0 if not finite."""
    both = np.concatenate([a, b])
    finite = np.isfinite(both)
    count = np.maximum(finite.sum(axis=0), 1)
    both = np.where(finite, both, 0.0)
    deviations = np.where(finite, both - both.sum(axis=0) / count, 0.0)
    spread = np.sqrt(np.square(deviations).sum(axis=0) / count)
    scaled = np.divide(deviations, spread, out=np.zeros_like(deviations), where=spread > 0)
    return scaled[: len(a)], scaled[len(a) :]


def _numbers(a: Array, b: Array, raw_a: Array, raw_b: Array) -> Iterator[tuple[str, Array]]:
    """Yield the compared statistics: differences between the runs of both models, [runs, statistics]."""
    yield "the mean of an element", a - b
    yield "the variance of an element", a**2 - b**2
    yield "the mean", _mean(a) - _mean(b)
    yield "the spread", _mean(a**2) - _mean(b**2)
    yield "the distribution", _mean(np.abs(a)) - _mean(np.abs(b))
    for limit in _LIMITS:
        yield "the distribution", _mean(a <= limit) - _mean(b <= limit)
    yield "the dependence between elements", _mean(a) ** 2 - _mean(b) ** 2
    yield "the number of distinct values", _distinct(raw_a) - _distinct(raw_b)
    yield "the share of NaN", _mean(np.isnan(raw_a)) - _mean(np.isnan(raw_b))
    yield "the share of infinities", _mean(np.isinf(raw_a)) - _mean(np.isinf(raw_b))


def _joint(
    raw: Mapping[str, tuple[Array, Array]], standard: Mapping[str, tuple[Array, Array]], one: str, other: str
) -> Iterator[tuple[str, Array]]:
    """Yield the compared statistics of two outputs."""
    (a1, b1), (a2, b2) = standard[one], standard[other]
    yield "the correlation of the means", _mean(a1) * _mean(a2) - _mean(b1) * _mean(b2)
    if a1.shape == a2.shape:
        yield "the correlation", _mean(a1 * a2) - _mean(b1 * b2)
        (x1, y1), (x2, y2) = raw[one], raw[other]
        yield "the share of equal elements", _mean(x1 == x2) - _mean(y1 == y2)


def _mean(values: Array) -> Array:
    return np.asarray(values.mean(axis=1, keepdims=True, dtype=np.float64))


def _distinct(values: Array) -> Array:
    ordered = np.sort(values, axis=1)
    return _mean(np.concatenate([ordered[:, 1:] != ordered[:, :-1], ordered[:, :1] == ordered[:, :1]], axis=1))


def _scores(differences: Array) -> Array:
    """Return the sums over all seeds, in units of the root of the sum of squares."""
    by_seed = differences.reshape(-1, REPEATS, differences.shape[1]).sum(axis=1)
    total, norm = np.abs(by_seed.sum(axis=0)), np.sqrt(np.square(by_seed).sum(axis=0))
    scores: Array = np.divide(total, norm, out=np.zeros_like(total), where=norm > 0)
    return scores


def other_draws(original: ReferenceRun, candidate: bytes) -> str:
    """Return how the random draws that outputs depend on differ; empty if they do not, or if there are none."""
    import onnx

    if not original.random:
        return ""
    return redrawn(*(onnx.load_model_from_string(skeleton) for skeleton in (original.skeleton, candidate)))
