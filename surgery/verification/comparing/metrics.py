"""How near outputs are as a whole: for steps that trade accuracy on purpose, where the worst element says little."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf, log10
from typing import Any

import numpy as np

from surgery.operators.dtypes import Array, is_float
from surgery.verification.comparing.compare import tensors
from surgery.verification.comparing.details import Metrics
from surgery.verification.inputs.spec import VerifySpec

_SAME = Metrics(1.0, inf, 0.0)


class Meter:
    """Measures the float outputs of run after run, and keeps the worst of each measure.

    Elements that are not finite on both sides are left out; the comparison judges where they may be. Outputs in
    `random` have nothing to be measured by.
    """

    def __init__(self, random: frozenset[str]) -> None:
        self._random = random
        self.metrics = _SAME
        self.names: dict[str, str] = {}

    def add(self, original: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        """Measure the outputs of one run."""
        for name, expected in original.items():
            if name in self._random or name not in changed:
                continue
            for x, y in zip(tensors(expected), tensors(changed[name])):
                if is_float(x.dtype) and x.dtype == y.dtype and x.shape == y.shape:
                    self._keep(name, measure(x, y))

    def _keep(self, name: str, found: Metrics) -> None:
        for key, better in (("cosine", max), ("snr", max), ("relative", min)):
            mine, theirs = getattr(self.metrics, key), getattr(found, key)
            if better(mine, theirs) == mine and mine != theirs:
                self.names[key] = name
        self.metrics = Metrics(
            min(self.metrics.cosine, found.cosine),
            min(self.metrics.snr, found.snr),
            max(self.metrics.relative, found.relative),
        )

    def failures(self, spec: VerifySpec) -> Iterator[str]:
        """Say which thresholds of the recipe do not hold, and for which output."""
        for key, unit, least in (("cosine", "", spec.cosine), ("snr", " dB", spec.snr)):
            value = getattr(self.metrics, key)
            if least is not None and value < least:
                title = "cosine similarity" if key == "cosine" else "signal-to-noise ratio"
                yield f"the {title} of output '{self.names[key]}' is {value:.6g}{unit}, not at least {least:g}{unit}"


def measure(original: Array, changed: Array) -> Metrics:
    """Compare two tensors of floats of the same shape."""
    x, y = original.astype(np.float64).reshape(-1), changed.astype(np.float64).reshape(-1)
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    largest = max(float(np.abs(x).max(initial=0.0)), float(np.abs(y).max(initial=0.0)))
    if largest == 0.0 or np.array_equal(x, y):
        return _SAME
    # In units of the largest magnitude, so that no square leaves the range.
    x, y = x / largest, y / largest
    signal, other, noise = (float(values @ values) for values in (x, y, x - y))
    product = (signal * other) ** 0.5
    peak = float(np.abs(x).max())
    return Metrics(
        cosine=float(x @ y) / product if product else 0.0,
        snr=10 * log10(signal / noise) if signal and noise else (inf if signal else -inf),
        relative=float(np.abs(x - y).max()) / peak if peak else inf,
    )


def tell(metrics: Metrics) -> str:
    """Write the measures in a few words."""
    if metrics.snr == inf:
        return "no difference to measure"
    return f"cosine {metrics.cosine:.6g}, SNR {metrics.snr:.3g} dB, largest error {metrics.relative:.2g} of the range"
