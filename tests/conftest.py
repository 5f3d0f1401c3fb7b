"""Options of the test run."""

import gc
import logging
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from socket import socket
from typing import IO
from zlib import crc32

import pytest
from support import huge_pages, lacking
from support import short_models as short
from support.durations import Durations
from support.parts import Part

from surgery.base import workers
from surgery.base.workers import client


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite the expected half of the case files")
    about = "show the N slowest files next to their budgets"
    parser.addoption("--durations-by-file", type=int, default=0, metavar="N", help=about)
    parser.addoption("--part", metavar="K/N", help="run one of N parts of the tests")


def pytest_configure(config: pytest.Config) -> None:
    shown = config.getoption("--durations-by-file")
    is_worker = hasattr(config, "workerinput")
    if shown and not is_worker:
        config.pluginmanager.register(Durations(shown))
    if part := config.getoption("--part"):
        config.pluginmanager.register(Part(part))


def pytest_collectstart() -> None:
    """Collect no garbage while tests are collected: there is next to none, and the search takes a third of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what was collected out of further garbage collections: thousands of tests that stay to the end.

    Passes of the tests run in forks of this process, which are made faster by huge pages.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 100)  # as in a run of a recipe
    huge_pages.merge()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    with lacking.recorded(collector.path):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    with lacking.recorded(item.path), lacking.excused(item.path):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    with lacking.recorded(item.nodeid), lacking.excused(item.nodeid, item.path):
        yield


class _Raising(logging.Handler):
    """Lets a test fail whose run works around an exception of surgery."""

    def handle(self, record: logging.LogRecord) -> bool:
        raise AssertionError(record.getMessage())


@pytest.fixture(autouse=True, scope="session")
def _no_fault() -> None:
    logging.getLogger("surgery.faults").addHandler(_Raising())


@pytest.fixture(autouse=True, scope="session")
def _interruptible() -> None:
    """Commands that tests start can be interrupted, also where a shell started the tests in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _unsynced() -> Iterator[None]:
    """Nothing waits for the disk: that bytes have reached it shows only after a loss of power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which also needs an open file
        yield


@pytest.fixture(autouse=True)
def no_configuration(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nobody's own configuration has a say in the tests, and each has a cache of its own."""
    base = tmp_path_factory.getbasetemp()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(base / "no-configuration"))
    monkeypatch.setenv("XDG_STATE_HOME", str(base / f"state-{crc32(request.node.nodeid.encode()):08x}"))
    monkeypatch.setenv("SURGERY_CACHE_DIR", str(base / f"cache-{crc32(request.node.nodeid.encode()):08x}"))


@pytest.fixture(autouse=True, scope="session")
def _warm_workers() -> Iterator[None]:
    """Each server of workers begins with `warm_server`, for most tests are about models of a few nodes."""

    class Warm(client.ForkServer):
        def fork(self, channel: socket, log: IO[bytes], memory: int, preload: tuple[str, ...] = ()) -> int:
            return super().fork(channel, log, memory, (*preload, "support.warm_server"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "ForkServer", Warm)
        yield


@pytest.fixture(scope="session")
def short_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the bundled models, the transformers among them with two layers."""
    return short.write(tmp_path_factory.mktemp("short-models"))


@pytest.fixture(scope="module")
def tools_at_hand() -> Iterator[None]:
    """The tools that take a second to import are imported once for all workers, not by each that calls one."""
    tools = ("onnxoptimizer", "onnxscript.optimizer", "onnxsim", "onnxruntime.transformers.optimizer")
    with workers.Worker(preload=tools) as worker:
        worker.call("surgery.base.workers.drill:echo", value=None)
    yield
    # A larger process takes longer to fork: the next tests get another server.
    workers.shutdown()
