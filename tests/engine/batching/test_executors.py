"""Executors: those of surgery, and those of installed packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest
from support.batches import close

from surgery.base.errors import UsageError
from surgery.engine.batching import executors, on_dask
from surgery.engine.batching.local import LocalExecutor
from surgery.engine.batching.model_entry import BatchLimits

MADE: list[tuple[str, int, BatchLimits]] = []


class Own:
    """What a package brings."""

    def __init__(self, address: str, jobs: int, limits: BatchLimits) -> None:
        MADE.append((address, jobs, limits))


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    group = executors.ENTRY_POINTS
    found = [EntryPoint("own", f"{__name__}:Own", group), EntryPoint("broken", "no_such_module:Own", group)]
    monkeypatch.setattr(executors, "entry_points", lambda *, group: found if group == executors.ENTRY_POINTS else [])


def test_an_installed_package_provides_an_executor() -> None:
    assert executors.ENTRY_POINTS == "surgery.executors"
    limits = BatchLimits(timeout=3.0)
    assert isinstance(executors.maker("own:host:1234")(3, limits), Own)
    assert MADE.pop() == ("host:1234", 3, limits)


def test_an_executor_that_cannot_be_loaded() -> None:
    with pytest.raises(UsageError, match=r"the executor 'broken' cannot be loaded: .*No module named 'no_such_module'"):
        executors.maker("broken")


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match="there is no executor 'x'; there are broken, dask, local, own"):
        executors.maker("x")


def test_the_local_executor() -> None:
    found = executors.maker("local")(2, BatchLimits())
    assert isinstance(found, LocalExecutor) and found.capacity == 2
    close(found)


def test_addresses() -> None:
    with pytest.raises(UsageError, match="--executor local takes no address, not '4'; use --jobs N"):
        executors.maker("local:4")
    with pytest.raises(UsageError, match="--executor dask needs the address of a scheduler; use dask:tcp://HOST:8786"):
        executors.maker("dask")


def test_a_cluster_with_a_worker_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    client = SimpleNamespace(
        status="running",
        subscribe_topic=lambda *_: None,
        wait_for_workers=lambda *_, **__: None,
        run=lambda *_, **__: {"tcp://worker": dict(on_dask.environment())},
    )
    monkeypatch.setattr(on_dask, "_connected", lambda _: client)
    assert executors.maker("dask:tcp://scheduler")(1, BatchLimits()).next(0.01) is None
