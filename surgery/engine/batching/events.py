"""The interface of executors, and their events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol


@dataclass(frozen=True)
class Event:
    """An event of an executor about a model.

    `stage`: it has reached the stage `text`. `ended`: `outcome` is the result of `surgery.engine.batching.job.run`.
    `lost`: the worker was lost through no fault of the model, for the reason `text`. `restarted`: the worker was lost,
    and the executor has restarted the model itself. `returned`: it was stopped to free memory for others, and must run
    alone, later. `waiting`: nothing runs, for the reason `text`; it has no name.
    """

    kind: Literal["stage", "ended", "lost", "restarted", "returned", "waiting"]
    name: str
    text: str = ""
    outcome: Mapping[str, Any] | None = None


class Executor(Protocol):
    """Runs jobs. All methods are called from one thread."""

    @property
    def capacity(self) -> int:
        """The number of jobs that it accepts at a time."""

    def submit(self, name: str, job: Mapping[str, Any], *, alone: bool = False) -> None:
        """Start or queue a job. With `alone`, it has all the memory, and no other job runs."""

    def next(self, timeout: float) -> Event | None:
        """Return the next event; None if there is none within `timeout` seconds."""

    def close(self) -> None:
        """End all running jobs and the processes of this executor."""
