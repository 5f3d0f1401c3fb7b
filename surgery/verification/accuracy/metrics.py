"""Metrics of outputs as a whole: for steps that trade accuracy on purpose, where the worst element says little."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, log10
from typing import Any

import numpy as np

from surgery.base.operators.dtypes import Array, is_float
from surgery.verification.comparing.compare import tensors

Metrics = Mapping[str, float]
"""Values of metrics by their names."""

_IMAGE_RANK = 4
"""From this rank on, the second axis is the class axis, as in outputs of segmentation; below it, the last one is."""


@dataclass(frozen=True)
class OutputPair:
    """The elements of an output on both sides, in units of the largest magnitude, so that no square leaves the range.

    `signal`, `changed` and `noise` are the sums of squares of the original, of the changed output, and of their
    difference; `product` is the sum of products of both. `agreeing` is the share of positions with the same largest
    element.
    """

    signal: float
    changed: float
    noise: float
    product: float
    peak: float
    error: float
    agreeing: float


@dataclass(frozen=True)
class OutputMetric:
    """One metric. `best` is its value for equal outputs, and `worst` returns the worse of two values.

    `lost` is its value for an output that has another shape, or that is finite where the original is not, or the
    reverse.

    `title` is its name in messages, `shown` the format of its value in a summary. `sign` says on which side of a limit
    it must stay, and `use` returns the share of the error power allowed by a limit that a value uses. `example` is a
    limit, and `about` what it limits, for the reference of recipes; `most` is the largest limit that makes sense.
    """

    compute: Callable[[OutputPair], float]
    use: Callable[[float, float], float]
    best: float
    lost: float
    worst: Callable[[float, float], float]
    title: str
    shown: str
    sign: str
    example: str
    about: str
    unit: str = ""
    most: float = inf


def share(error: float, allowed: float) -> float:
    """Return an error as a share of the allowed error; infinite if none is allowed."""
    return error / allowed if allowed > 0.0 else (inf if error > 0.0 else 0.0)


METRICS: dict[str, OutputMetric] = {
    "cosine": OutputMetric(
        lambda pair: pair.product / (pair.signal * pair.changed) ** 0.5 if pair.signal * pair.changed else 0.0,
        lambda value, limit: share(1.0 - value, 1.0 - limit),
        best=1.0,
        lost=-1.0,
        worst=min,
        title="cosine similarity",
        shown="cosine {:.6g}",
        sign=">=",
        example="0.999",
        about="the cosine similarity",
        most=1.0,
    ),
    "snr": OutputMetric(
        lambda pair: (
            10 * log10(pair.signal / pair.noise) if pair.signal and pair.noise else (inf if pair.signal else -inf)
        ),
        lambda value, limit: 10.0 ** ((limit - value) / 10.0) if value > -inf else inf,
        best=inf,
        lost=-inf,
        worst=min,
        title="signal-to-noise ratio",
        shown="SNR {:.3g} dB",
        sign=">=",
        example="30 dB",
        about="the signal-to-noise ratio",
        unit=" dB",
    ),
    "max_rel": OutputMetric(
        lambda pair: pair.error / pair.peak if pair.peak else inf,
        lambda value, limit: share(value**2, limit**2),
        best=0.0,
        lost=inf,
        worst=max,
        title="largest error",
        shown="largest error {:.2g} of the range",
        sign="<=",
        example="0.05",
        about="the largest error, as a share of the largest magnitude",
    ),
    "top1": OutputMetric(
        lambda pair: pair.agreeing,
        lambda value, limit: share(1.0 - value, 1.0 - limit),
        best=1.0,
        lost=0.0,
        worst=min,
        title="agreement of the largest element",
        shown="top-1 agreement {:.1%}",
        sign=">=",
        example="99 %",
        about="the share of positions with the same largest class; for integers, the share of equal elements",
        unit=" %",
        most=1.0,
    ),
}
"""All metrics, by their names in recipes and reports."""

SAME = {name: metric.best for name, metric in METRICS.items()}
LOST = {name: metric.lost for name, metric in METRICS.items()}


def measure_value(original: Any, changed: Any) -> Metrics:
    """Compare two values of any kind; a sequence has the worst metrics of its tensors."""
    pairs = list(zip(tensors(original), tensors(changed)))
    same_length = len(list(tensors(original))) == len(list(tensors(changed)))
    if not same_length or any(x.shape != y.shape or x.dtype.kind != y.dtype.kind for x, y in pairs):
        return LOST
    found = [measure(x, y) for x, y in pairs]
    return {name: _worst(name, [one[name] for one in found]) for name in METRICS}


def _worst(name: str, values: list[float]) -> float:
    metric, result = METRICS[name], METRICS[name].best
    for value in values:
        result = metric.worst(result, value)
    return result


def measure(original: Array, changed: Array) -> Metrics:
    """Compare two tensors of the same shape.

    An element that is not a float is an index, a flag or a token: it is right or wrong, regardless of the distance, and
    all noise if it is wrong. Where the original is NaN, the changed value does not matter; an infinity must stay.
    """
    if not is_float(original.dtype):
        equal = float(np.mean(original == changed)) if original.size else 1.0
        wrong = 1.0 - equal
        pair = OutputPair(1.0, 1.0, wrong, equal, 1.0, 1.0, equal)
        return {name: metric.compute(pair) for name, metric in METRICS.items()} if wrong else SAME
    x, y = original.astype(np.float64), changed.astype(np.float64)
    if ((np.isfinite(x) & ~np.isfinite(y)) | (np.isinf(x) & (x != y))).any():
        return LOST
    agreeing = _agreement(x, y)
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    largest = max(float(np.abs(x).max(initial=0.0)), float(np.abs(y).max(initial=0.0)))
    if largest == 0.0 or np.array_equal(x, y):
        return SAME
    x, y = x / largest, y / largest
    signal, other, noise = (float(values @ values) for values in (x, y, x - y))
    peak, error = float(np.abs(x).max()), float(np.abs(x - y).max())
    pair = OutputPair(signal, other, noise, float(x @ y), peak, error, agreeing)
    return {name: metric.compute(pair) for name, metric in METRICS.items()}


def _agreement(x: Array, y: Array) -> float:
    """Return the share of positions with the same largest element along the class axis; 1 if there are none."""
    if x.ndim == 0 or x.size == 0:
        return 1.0
    axis = 1 if x.ndim >= _IMAGE_RANK else -1
    return float(np.mean(x.argmax(axis=axis) == y.argmax(axis=axis)))


def tell(metrics: Metrics) -> str:
    """Return the metrics as a short text."""
    if metrics == SAME:
        return "no difference to measure"
    return ", ".join(metric.shown.format(metrics[name]) for name, metric in METRICS.items())
