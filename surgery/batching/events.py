"""The interface of executors, and their events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol


@dataclass(frozen=True)
class Event:
    """What an executor says of a model.

    `stage`: it has come to the stage `text`. `ended`: `outcome` is what `surgery.batching.job.run` returned. `lost`:
    the worker was lost through no fault of the model, and `text` says how. `restarted`: the worker was lost, and the
    executor has started the model again by itself. `returned`: it was stopped to make room for others, and is to run
    alone, later.
    """

    kind: Literal["stage", "ended", "lost", "restarted", "returned"]
    name: str
    text: str = ""
    outcome: Mapping[str, Any] | None = None


class Executor(Protocol):
    """Runs jobs. All methods are called by one thread."""

    @property
    def capacity(self) -> int:
        """How many jobs may be given to it at a time."""

    def submit(self, name: str, job: Mapping[str, Any], *, alone: bool = False) -> None:
        """Start a job, or queue it. `alone`: it has the memory of all, and no other job runs."""

    def next(self, timeout: float) -> Event | None:
        """Return the next event, after so many seconds at most; None if there was none."""

    def close(self) -> None:
        """End all jobs that run, and the processes of this executor."""
