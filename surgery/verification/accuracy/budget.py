"""The accuracy budget: limits on what the outputs of lossy steps may lose, their text form and their use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from surgery.verification.accuracy.metrics import METRICS
from surgery.verification.inputs.spec import MetricLimit

_TEXT = re.compile(r"\s*(\w+)\s*(>=|<=)\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(dB|%)?\s*")

ALL = "all"
"""The name that stands for every output."""


def describe(limit: MetricLimit) -> str:
    """Return a limit as a recipe writes it."""
    metric = METRICS[limit.metric]
    value = f"{limit.value * 100:g} %" if metric.unit == " %" else f"{limit.value:g}{metric.unit}"
    output = f"{limit.output}: " if limit.output is not None else ""
    return f"{output}{limit.metric} {metric.sign} {value}"


def against(limit: MetricLimit, value: float) -> str:
    """Return a value against its limit: "SNR 33.2 dB of 20 needed", "largest error 0.04 of the range, 0.1 allowed"."""
    metric = METRICS[limit.metric]
    shown, bound = metric.shown.format(value), f"{limit.value * 100:g}" if metric.unit == " %" else f"{limit.value:g}"
    output = f"'{limit.output}': " if limit.output is not None else ""
    return f"{output}{shown} of {bound} needed" if metric.sign == ">=" else f"{output}{shown}, {bound} allowed"


def use(limit: MetricLimit, value: float) -> float:
    """Return the share of the budget that a value of the metric uses: at most 1 if the limit holds.

    Shares refer to the power of an error, so that the shares of independent errors add up.
    """
    return METRICS[limit.metric].use(value, limit.value)


DEFAULT = (MetricLimit("snr", 20.0),)
"""The budget of a lossy step if the recipe has none: an error of a tenth of the outputs."""


def read_limit(text: str, output: str | None = None) -> MetricLimit:
    """Parse a limit such as `snr >= 30 dB`; raise a ValueError that says what is wrong with it."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError("a limit has the form 'snr >= 30 dB'")
    name, sign, number, unit = found.groups()
    metric = METRICS.get(name)
    if metric is None:
        raise ValueError(f"there is no metric '{name}'; the metrics are {', '.join(METRICS)}")
    if sign != metric.sign:
        raise ValueError(f"'{name}' takes {metric.sign}, not {sign}")
    if unit is not None and unit != metric.unit.strip():
        raise ValueError(f"'{name}' is not measured in {unit}")
    value = float(number) / 100 if unit == "%" else float(number)
    if not 0.0 <= value <= metric.most:
        raise ValueError(f"'{name}' must be between 0 and {metric.most:g}")
    return MetricLimit(name, value, None if output == ALL else output)


def read_argument(text: str) -> tuple[MetricLimit, ...]:
    """Parse limits from the command line: `snr >= 30 dB`, `logits: top1 >= 99 %`, several separated by commas."""
    output, colon, rest = text.rpartition(":")
    return tuple(read_limit(part, output.strip() if colon else None) for part in rest.split(","))


def by_output(limits: Iterable[MetricLimit]) -> dict[str, list[str]]:
    """Return limits as a recipe writes them, by output name."""
    found: dict[str, list[str]] = {}
    for limit in limits:
        found.setdefault(limit.output or ALL, []).append(describe(replace(limit, output=None)))
    return found


def missing(limits: Iterable[MetricLimit], outputs: Sequence[str]) -> str | None:
    """Return an output that a limit names but the model does not have, or None."""
    return next((limit.output for limit in limits if limit.output is not None and limit.output not in outputs), None)
