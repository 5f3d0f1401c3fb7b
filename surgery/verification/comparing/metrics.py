"""How near outputs are as a whole: for steps that trade accuracy on purpose, where the worst element says little."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, log10
from typing import Any

import numpy as np

from surgery.operators.dtypes import Array, is_float
from surgery.verification.comparing.compare import tensors

Metrics = Mapping[str, float]
"""The worst output and set of inputs by each metric, by its name."""


@dataclass(frozen=True)
class Pair:
    """The elements of an output on both sides, in units of the largest magnitude, so that no square leaves the range.

    `signal`, `changed` and `noise` are the sums of squares of the original, of the changed, and of their difference;
    `product` is the sum of products of both.
    """

    signal: float
    changed: float
    noise: float
    product: float
    peak: float
    error: float


@dataclass(frozen=True)
class Metric:
    """One measure. `best` is its value for equal outputs, and `worst` picks the worse of two values.

    `title` is what messages call it, `shown` how a summary writes its value. `least` says in the reference of recipes
    what a recipe may ask for, and `example` is such a number; `most` is the greatest that makes sense. A metric without
    these is only reported.
    """

    compute: Callable[[Pair], float]
    best: float
    worst: Callable[[float, float], float]
    title: str
    shown: str
    unit: str = ""
    least: str = ""
    example: str = ""
    most: float = inf


METRICS: dict[str, Metric] = {
    "cosine": Metric(
        lambda pair: pair.product / (pair.signal * pair.changed) ** 0.5 if pair.signal * pair.changed else 0.0,
        best=1.0,
        worst=min,
        title="cosine similarity",
        shown="cosine {:.6g}",
        least="The least cosine similarity of each output of a LOSSY step, such as 0.999.",
        example="0.999",
        most=1.0,
    ),
    "snr": Metric(
        lambda pair: (
            10 * log10(pair.signal / pair.noise) if pair.signal and pair.noise else (inf if pair.signal else -inf)
        ),
        best=inf,
        worst=min,
        title="signal-to-noise ratio",
        shown="SNR {:.3g} dB",
        unit=" dB",
        least="The least signal-to-noise ratio of each output of a LOSSY step, in dB.",
        example="30 (in dB)",
    ),
    "relative": Metric(
        lambda pair: pair.error / pair.peak if pair.peak else inf,
        best=0.0,
        worst=max,
        title="largest error",
        shown="largest error {:.2g} of the range",
    ),
}
"""All metrics, by the names that recipes and reports have for them."""

LIMITS = {name: metric for name, metric in METRICS.items() if metric.least}
"""Those that a recipe may set a limit to."""

_SAME = {name: metric.best for name, metric in METRICS.items()}


class Meter:
    """Measures the float outputs of run after run, and keeps the worst of each measure.

    Elements that are not finite on both sides are left out; the comparison judges where they may be. Outputs in
    `random` have nothing to be measured by.
    """

    def __init__(self, random: frozenset[str]) -> None:
        self._random = random
        self.metrics: Metrics = _SAME
        self.names: dict[str, str] = {}

    def add(self, original: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        """Measure the outputs of one run."""
        for name, expected in original.items():
            if name in self._random or name not in changed:
                continue
            for x, y in zip(tensors(expected), tensors(changed[name])):
                if is_float(x.dtype) and x.dtype == y.dtype and x.shape == y.shape:
                    self._keep(name, measure(x, y))

    def _keep(self, output: str, found: Metrics) -> None:
        before = self.metrics
        self.metrics = {name: metric.worst(before[name], found[name]) for name, metric in METRICS.items()}
        self.names |= {name: output for name, value in self.metrics.items() if value != before[name]}

    def failures(self, least: Metrics) -> Iterator[str]:
        """Return which limits do not hold, and for which output."""
        for name, limit in least.items():
            value, metric = self.metrics[name], METRICS[name]
            if value < limit:
                shown = f"{value:.6g}{metric.unit}, not at least {limit:g}{metric.unit}"
                yield f"the {metric.title} of output '{self.names[name]}' is {shown}"


def measure(original: Array, changed: Array) -> Metrics:
    """Compare two tensors of floats of the same shape."""
    x, y = original.astype(np.float64).reshape(-1), changed.astype(np.float64).reshape(-1)
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    largest = max(float(np.abs(x).max(initial=0.0)), float(np.abs(y).max(initial=0.0)))
    if largest == 0.0 or np.array_equal(x, y):
        return _SAME
    x, y = x / largest, y / largest
    signal, other, noise = (float(values @ values) for values in (x, y, x - y))
    peak, error = float(np.abs(x).max()), float(np.abs(x - y).max())
    pair = Pair(signal, other, noise, float(x @ y), peak, error)
    return {name: metric.compute(pair) for name, metric in METRICS.items()}


def tell(metrics: Metrics) -> str:
    """Write the measures in a few words."""
    if metrics == _SAME:
        return "no difference to measure"
    return ", ".join(metric.shown.format(metrics[name]) for name, metric in METRICS.items())
