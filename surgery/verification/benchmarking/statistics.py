"""Confidence intervals for ratios of paired times.

Disturbances of a measurement last: another process takes the core for milliseconds, the clock rate drifts for seconds,
and a session at another memory location is up to two percent faster or slower for its whole lifetime. So:

- Times are compared only within a round, in which each model runs twice, in an order and in its reverse.
- Rounds close to each other are not independent, so whole blocks of them are drawn, not single ones (block
  bootstrap, Künsch 1989). A block has all rounds measured with one pair of sessions of each model, opened in an
  order and in its reverse.
- The location is the mean without the lowest and the highest fifth, within a block and over the blocks: a burst of
  disturbance affects few of them. The quantiles of the bootstrap are widened by Student's t with the degrees of freedom
  of a trimmed mean (Tukey and McLaughlin 1963), since few blocks give a poor estimate of their spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from surgery.base.json_record import Record

Array = np.ndarray[Any, Any]

TRIMMED = 0.2
"""The fraction of values that is left out at either end."""

FEWEST = 5
"""Minimum number of blocks for an interval."""

_PARTS = 6
"""The number of blocks to split into if there are fewer than `FEWEST` pairs of sessions."""

_DRAWS = 4000
_HARDLY_ANY = 1e-9


@dataclass(frozen=True)
class Interval(Record):
    """A ratio with its confidence interval."""

    ratio: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the width, relative to the ratio."""
        return (self.high - self.low) / 2 / self.ratio

    def holds(self, least: float) -> bool:
        """Return whether the ratio is at least `least`, with the confidence of the interval."""
        return self.low >= least

    def reaches(self, least: float) -> bool:
        """Return whether the ratio may be at least `least`: it is not shown to be lower."""
        return self.high >= least

    def excludes(self, ratio: float) -> bool:
        """Return whether a ratio is outside of the interval."""
        return not self.low <= ratio <= self.high


def trimmed_mean(values: Array) -> Array:
    """Return the mean along the last axis, without the lowest and the highest fifth of the values."""
    ordered = np.sort(values, axis=-1)
    cut = _cut(ordered.shape[-1])
    return np.asarray(ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1))


def _cut(count: int) -> int:
    return int(count * TRIMMED)


def estimate(blocks: Array, level: float, seed: int = 0) -> Interval:
    """Estimate a ratio from its logarithms, one for each block.

    If fewer than two blocks are left after trimming, the interval is unbounded; fewer than `FEWEST` make it wide.
    """
    values = np.asarray(blocks, dtype=np.float64)
    count = len(values)
    center = float(trimmed_mean(values))
    left = count - 2 * _cut(count)
    if left < 2:
        return Interval(math.exp(center), 0.0, math.inf)
    tail = max((1.0 - level) / 2, _HARDLY_ANY)
    drawn = np.random.default_rng(seed).integers(0, count, (_DRAWS, count))
    low, high = np.quantile(trimmed_mean(values[drawn]), [tail, 1.0 - tail])
    normal = NormalDist().inv_cdf(1.0 - tail)
    wider = student(1.0 - tail, left - 1) / normal * math.sqrt(count / (count - 1))
    return Interval(
        math.exp(center),
        _power(center - (center - float(low)) * wider),
        _power(center + (float(high) - center) * wider),
    )


def _power(logarithm: float) -> float:
    return math.exp(min(logarithm, 700.0))


def student(probability: float, freedom: int) -> float:
    """Return a quantile of Student's t: exact for one and two degrees of freedom, else to about one percent.

    The expansion is that of Abramowitz and Stegun, 26.7.5; the probability is above one half.
    """
    if freedom == 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + float(sum(term / freedom**power for power, term in enumerate(terms, start=1)))


def blocks_of(pairs: Sequence[tuple[Array, Array]]) -> Array:
    """Return the logarithm of a ratio for each block.

    `pairs` has, for each pair of sessions, the logarithms of its rounds with the models opened in one order and in the
    reverse. Fewer than `FEWEST` pairs are split into blocks of consecutive rounds; the interval then does not include
    the dependence of a session's speed on its memory location.
    """
    parts = 1 if len(pairs) >= FEWEST else math.ceil(_PARTS / max(1, len(pairs)))
    blocks = []
    for pair in pairs:
        count = min(parts, *(len(rounds) for rounds in pair))
        split = [np.array_split(rounds, count) for rounds in pair]
        blocks += [float((trimmed_mean(one) + trimmed_mean(other)) / 2) for one, other in zip(*split)]
    return np.array(blocks)


class Spending:
    """The remaining error probability when an interval is evaluated more than once.

    Measuring until an interval looks good gives wrong intervals more often than the level states. So an evaluation
    after a fraction `t` of the budget spends error according to t² (Lan and DeMets 1983). Over all evaluations this
    adds up to the error of the level, so the final interval has at least the stated level.
    """

    def __init__(self, level: float) -> None:
        self._error = 1.0 - level
        self._spent = 0.0

    def level(self, share: float) -> float:
        """Return the level of an evaluation after a fraction of the budget, 1 at the end."""
        allowed = self._error * min(share, 1.0) ** 2
        left, self._spent = allowed - self._spent, max(allowed, self._spent)
        return 1.0 - max(left, _HARDLY_ANY)
