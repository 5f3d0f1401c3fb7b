"""The executors of a batch: local processes, a dask cluster, or an executor of an installed package."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points

from surgery.base.errors import UsageError, internal
from surgery.engine.batching.events import Executor
from surgery.engine.batching.model_entry import BatchLimits
from surgery.model.wire.globs import did_you_mean

ENTRY_POINTS = "surgery.executors"
"""The entry point group for executors of other packages."""

Make = Callable[[str, int, BatchLimits], Executor]
"""Creates an executor from the address after the colon, the number of jobs, and the limits."""


def maker(text: str) -> Callable[[int, BatchLimits], Executor]:
    """Return what creates the executor named by `NAME` or `NAME:ADDRESS`, from the number of jobs and the limits.

    UsageError if it does not exist or cannot be loaded, or if the address is wrong.
    """
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
    if name == "local" and address:
        raise UsageError(f"--executor local takes no address, not '{address}'", todo="use --jobs N")
    if name == "dask" and not address:
        raise UsageError("--executor dask needs the address of a scheduler", todo="use dask:tcp://HOST:8786")
    return partial(make, address)


def _local() -> Make:
    from surgery.engine.batching.local import LocalExecutor

    return lambda _, jobs, limits: LocalExecutor(jobs, limits)


def _dask() -> Make:
    from surgery.engine.batching.on_dask import DaskExecutor

    return DaskExecutor
