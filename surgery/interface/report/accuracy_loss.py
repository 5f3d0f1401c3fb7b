"""The loss of a lossy run against its budget, which leads every report of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Result
    from surgery.verification.comparing.details import Verdict

WITHIN = "less accurate on purpose, within the budget"


def lead(found: Result) -> str:
    """Return the loss of a run against its budget, and its speed if measured; empty if no step was lossy."""
    loss = found.loss
    if loss is None:
        return ""
    summary, speed = _account(loss).get("summary"), found.figures.speed
    text = f"{WITHIN}: {summary}" if summary else WITHIN
    return f"{text}; {speed:.2f} times as fast" if speed is not None else text


def missed(found: Result) -> str:
    """Return the loss of a run whose result is not written for another reason; empty if no step was lossy."""
    summary = _account(found.loss).get("summary") if found.loss is not None else ""
    return f"{WITHIN}: {summary}" if summary else ""


def rows(loss: Verdict) -> Iterator[tuple[str, ...]]:
    """Yield for each limit: the limit, its worst value, the output with it, and the used share of the budget."""
    account = _account(loss)
    for one in account.get("limits", ()):
        yield one["limit"], _number(one["value"]), one["output"], _percent(one["guarded"])
    metric = account.get("metric")
    if metric is not None:
        yield metric["limit"], _number(metric["value"]), "", _percent(metric["guarded"])


def source(loss: Verdict) -> str:
    """Describe the inputs on which the loss was measured: "64 synthetic sets of inputs"."""
    account = _account(loss)
    count = account.get("sets", 0)
    kind = "synthetic " if account.get("synthetic") else ""
    return f"{count} {kind}{'set' if count == 1 else 'sets'} of inputs"


def _account(loss: Verdict) -> Mapping[str, Any]:
    details = loss.details
    return (details.accuracy if details is not None else None) or {}


def _number(value: float) -> str:
    return f"{value:.4g}"


def _percent(share: float) -> str:
    return f"{share:.0%}"
