"""Who runs the models of a batch: processes of this machine, a dask cluster, or what an installed package offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Literal, Protocol

from surgery.batching.entry import Limits
from surgery.errors import UsageError, internal
from surgery.storage.globs import did_you_mean

ENTRY_POINTS = "surgery.executors"
"""The group of entry points with which other packages add executors."""


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


Make = Callable[[str, int, Limits], Executor]
"""What makes an executor: of the address after the colon, the number of jobs, and the limits."""


def executor(text: str, jobs: int, limits: Limits) -> Executor:
    """Return the executor that `NAME` or `NAME:ADDRESS` names. UsageError if there is none, or it cannot be had."""
    name, _, address = text.partition(":")
    makers: dict[str, Callable[[], Make]] = {"local": _local, "dask": _dask}
    for entry in entry_points(group=ENTRY_POINTS):
        makers.setdefault(entry.name, entry.load)
    if name not in makers:
        known = ", ".join(sorted(makers))
        raise UsageError(f"there is no executor '{name}'", todo=did_you_mean(name, makers) or f"there are {known}")
    try:
        make = makers[name]()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"the executor '{name}' cannot be loaded: {internal(error)}") from error
    return make(address, jobs, limits)


def _local() -> Make:
    from surgery.batching.local import LocalExecutor

    def make(address: str, jobs: int, limits: Limits) -> Executor:
        if address:
            raise UsageError(f"--executor local takes no address, and '{address}' is one", todo="use --jobs N")
        return LocalExecutor(jobs, limits)

    return make


def _dask() -> Make:
    from surgery.batching.on_dask import DaskExecutor

    return DaskExecutor
