"""Searches that take many runs, and can be stopped: which part of a step is wrong, which step changes an output."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from surgery import bisect
from surgery.base.errors import UsageError

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import StepRecord
    from surgery.features.workbench.session import Session
    from surgery.features.workbench.snapshot import Snapshot


class _Pages(Protocol):
    def send(self, **event: Any) -> None: ...


class _Stop(BaseException):
    """A search was stopped. It passes all handlers of errors of steps."""


class Searches:
    """The searches of a session, one at a time, each of which shows its progress in pages and ends at `stop`."""

    def __init__(self, session: Session, pages: _Pages) -> None:
        self._session, self._pages = session, pages
        self._stopped = threading.Event()

    def stop(self) -> dict[str, Any]:
        """Stop the search that is running."""
        self._stopped.set()
        return {"stopped": True}

    def blame(self) -> dict[str, Any]:
        """Find the places where the last refused step is wrong. Raises UsageError if it is stopped."""
        attempt = self._session.attempt
        if attempt is None:
            raise UsageError("no change was refused")
        model, recipe = attempt.refused_alone()
        with self._running():
            found = bisect(model, recipe, observer=self)
        return {
            "sites": found.sites,
            "guilty": [{"number": one.site.number, "node": one.site.anchor, "why": one.why} for one in found.guilty],
            "rest_holds": found.rest,
            "remark": found.remark,
            "tries": found.tries,
            "seconds": round(found.seconds, 3),
        }

    def changes(self, now: Snapshot, tensor: str, limit: float) -> dict[str, Any]:
        """Return how far a tensor is from the original after each step, and the first step beyond a limit."""
        rows, first = list[dict[str, Any]](), None
        with self._running():
            for step in now.steps:
                if step.status != "committed":
                    continue
                self._say(f"step {step.number + 1} of {len(now.steps)}: {step.title}")
                look = self._session.tensor_values.tensor(now, tensor, step.number)
                apart = _apart(look.difference)
                apart = 0.0 if look.is_original else apart
                rows.append({"number": step.number, "title": step.title, "largest": apart})
                if first is None and (apart is None or apart > limit):
                    first = step.number
        return {"tensor": tensor, "limit": limit, "steps": rows, "first": first}

    @contextmanager
    def _running(self) -> Iterator[None]:
        self._stopped.clear()
        try:
            yield
        except _Stop:
            raise UsageError("the search was stopped; nothing was changed") from None

    def _say(self, text: str) -> None:
        self._pages.send(kind="search", text=text)
        if self._stopped.is_set():
            raise _Stop

    # As an observer of steps

    def stage(self, step: str, stage: str) -> None:
        """Show what the search does, or end it if it was stopped."""
        self._say(f"{step}: {stage}")

    def said(self, step: str, text: str) -> None:
        """Ignore what a pass prints: it printed it before."""

    def done(self, record: StepRecord) -> None:
        """Ignore the outcome of the step: it was refused before."""


def _apart(difference: Any) -> float | None:
    """Return the largest difference; None for a tensor that is missing, of another shape, or no number anywhere."""
    if difference is None or not math.isfinite(difference.max):
        return None
    return difference.max if difference.equal or not difference.unlike else None
