"""What a batch makes of the answers of a dask cluster, without one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from surgery.base.errors import UsageError, WorkerError
from surgery.engine.batching import on_dask
from surgery.engine.batching.events import Event
from surgery.engine.batching.input_digests import environment
from surgery.engine.batching.model_entry import BatchLimits
from surgery.engine.batching.on_dask import DaskExecutor
from surgery.engine.batching.slot import LostError

WAITING = "no worker is connected to the scheduler; start one: dask worker tcp://here:1"


class Task:
    """A task as the client sees it: what it ended with, or its error."""

    def __init__(self, key: str) -> None:
        self.key, self.status, self.found, self.released = key, "pending", None, 0
        self.done: Callable[[Task], None] | None = None

    def add_done_callback(self, done: Callable[[Task], None]) -> None:
        self.done = done

    def end(self, status: str = "finished", found: Any = None) -> None:
        self.status, self.found = status, found
        assert self.done is not None
        self.done(self)

    def result(self, timeout: float) -> Any:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def exception(self, timeout: float) -> Any:
        return self.found

    def release(self) -> None:
        self.released += 1


class Cluster:
    """The client of a scheduler: its `workers` have threads, and `installed` what is installed on each."""

    def __init__(self) -> None:
        self.workers: dict[str, dict[str, int]] = {"tcp://a": {"nthreads": 3}}
        self.installed: dict[str, Any] = {"tcp://a": dict(environment())}
        self.status, self.closed, self.tasks, self.calls = "running", 0, [], []
        self.error: Exception | None = None

    def subscribe_topic(self, topic: str, heard: Callable[[Any], None]) -> None:
        if self.error is not None:
            raise self.error
        self.heard = heard

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        assert n_workers == -1  # all of them
        return {"workers": self.workers}

    def wait_for_workers(self, count: int, timeout: float) -> None:
        if self.error is not None:
            raise self.error
        if len(self.workers) < count:
            raise TimeoutError

    def run(self, asked: Callable[[], Any], on_error: str) -> dict[str, Any]:
        assert on_error == "return" and asked() == dict(environment())
        return self.installed

    def submit(self, called: Any, *given: Any, **options: Any) -> Task:
        if self.error is not None:
            raise self.error
        assert called is on_dask.run and not options["pure"] and options["retries"] == 0
        self.calls.append(given)
        self.tasks.append(Task(options["key"]))
        return self.tasks[-1]

    def cancel(self, tasks: list[Task], force: bool) -> None:
        assert force
        self.cancelled = tasks
        if self.error is not None:
            raise self.error

    def close(self, timeout: float = 0.0) -> None:
        self.closed += 1


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster()
    monkeypatch.setattr(on_dask, "_connected", lambda address: found)
    return found


@pytest.fixture
def executor(cluster: Cluster) -> DaskExecutor:
    """Return an executor that has checked its workers."""
    made = DaskExecutor("tcp://here:1", 1, BatchLimits(timeout=9.0))
    assert made.capacity == 0 and made.next(0.0) is None
    return made


def heard(executor: DaskExecutor, cluster: Cluster, name: str, stage: str, batch: str | None = None) -> Event | None:
    """Let a task report a stage; return the event."""
    cluster.heard((0.0, {"batch": batch or executor._batch, "name": name, "stage": stage}))
    return executor.next(0.0)


def test_a_cluster_takes_two_jobs_for_each_thread(executor: DaskExecutor, cluster: Cluster) -> None:
    assert executor.capacity == 6
    cluster.workers["tcp://b"] = {"nthreads": 4}
    assert executor.capacity == 14
    cluster.workers.clear()
    assert executor.capacity == 1


def test_a_task_ends_with_its_result(executor: DaskExecutor, cluster: Cluster) -> None:
    executor.submit("a", {"model": "a.onnx"})
    (task,), (call,) = cluster.tasks, cluster.calls
    limits = {"timeout": 9.0, "memory": None, "total_memory": None}
    assert call == (executor._batch, "a", {"model": "a.onnx"}, limits)
    assert task.key == f"surgery {executor._batch} a"
    task.end(found={"state": "done"})
    assert executor.next(0.0) == Event("ended", "a", outcome={"state": "done"})
    assert task.released == 1 and executor.next(0.0) is None
    # What an older task of this name ends with is of no interest.
    executor.submit("a", {})
    task.end(found={"state": "failed"})
    assert executor.next(0.0) is None


@pytest.mark.parametrize(
    ("status", "found", "why"),
    [
        ("finished", {"lost": "killed by signal 9"}, "killed by signal 9"),
        ("finished", OSError("gone"), "OSError: gone"),
        ("error", KeyError("x"), "KeyError: 'x'"),
        ("lost", None, "its task was lost"),
    ],
)
def test_a_lost_task_says_why(status: str, found: Any, why: str, executor: DaskExecutor, cluster: Cluster) -> None:
    executor.submit("a", {})
    cluster.tasks[0].end(status, found)
    assert executor.next(0.0) == Event("lost", "a", why)
    assert cluster.tasks[0].released == 1


def test_a_task_that_begins_twice_was_restarted(executor: DaskExecutor, cluster: Cluster) -> None:
    executor.submit("a", {})
    assert heard(executor, cluster, "a", "", "of another batch") is None
    assert heard(executor, cluster, "b", "") is None
    assert heard(executor, cluster, "a", "") == Event("stage", "a", "")
    assert heard(executor, cluster, "a", "check") == Event("stage", "a", "check")
    assert heard(executor, cluster, "a", "") == Event("restarted", "a")
    assert executor.next(0.0) == Event("stage", "a", "")
    executor.submit("a", {})
    assert heard(executor, cluster, "a", "") == Event("stage", "a", "")


def test_a_batch_says_once_that_it_waits_for_workers(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_dask, "_LOOK_EVERY", 0.0)
    workers = cluster.workers
    cluster.workers = {}
    executor = DaskExecutor("tcp://here:1", 1, BatchLimits())
    assert [executor.next(0.0) for _ in range(2)] == [Event("waiting", "", WAITING), None]
    cluster.workers = workers
    assert executor.next(0.0) is None and executor.capacity == 6
    cluster.workers = {}
    assert [executor.next(0.0) for _ in range(2)] == [Event("waiting", "", WAITING), None]
    cluster.workers = workers
    assert executor.next(0.0) is None
    cluster.workers = {}
    assert executor.next(0.0) == Event("waiting", "", WAITING)
    monkeypatch.setattr(on_dask, "_LOOK_EVERY", 3600.0)
    executor._is_waiting = False
    assert executor.next(0.0) is None


def test_no_worker_within_a_minute_is_an_error(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.workers = {}
    executor = DaskExecutor("tcp://here:1", 1, BatchLimits())
    monkeypatch.setattr(on_dask, "_FIRST_WORKER", 0.0)
    with pytest.raises(UsageError, match="'tcp://here:1' has no workers"):
        executor.next(0.0)


def test_a_lost_connection_is_an_error(
    executor: DaskExecutor, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.error = OSError("reset")
    with pytest.raises(WorkerError, match="scheduler is lost: reset"):
        executor.submit("a", {})
    monkeypatch.setattr(on_dask, "_LOOK_EVERY", 0.0)
    with pytest.raises(WorkerError, match="scheduler is lost: reset"):
        executor.next(0.0)
    executor._is_checked = False
    with pytest.raises(WorkerError, match="scheduler is lost: reset"):
        executor.next(0.0)
    executor._is_checked, cluster.status = True, "closed"
    with pytest.raises(WorkerError, match="scheduler is lost;"):
        executor.next(0.0)
    cluster.status = "connecting"
    monkeypatch.setattr(on_dask, "_LOOK_EVERY", 3600.0)
    assert executor.next(0.0) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"onnx": "0.1"}, "the worker tcp://a has onnx 0.1, not"),
        ({"source": "x"}, "the worker tcp://a has another source of surgery"),
        (ImportError("no surgery"), "surgery cannot be used on the worker tcp://a: no surgery"),
    ],
)
def test_another_version_on_a_worker_is_refused(change: Any, message: str, cluster: Cluster) -> None:
    cluster.installed["tcp://a"] = change if isinstance(change, Exception) else {**environment(), **change}
    with pytest.raises(UsageError) as refused:
        DaskExecutor("tcp://here:1", 1, BatchLimits()).next(0.0)
    assert message in str(refused.value)


def test_closing_cancels_what_runs(executor: DaskExecutor, cluster: Cluster) -> None:
    for name in "ab":
        executor.submit(name, {})
    cluster.tasks[0].end(found={"state": "done"})
    assert executor.next(0.0) is not None
    cluster.error = OSError("gone")
    executor.close()
    assert cluster.cancelled == cluster.tasks[1:] and cluster.closed == 1
    with pytest.raises(OSError):
        DaskExecutor("tcp://here:1", 1, BatchLimits())
    assert cluster.closed == 2
    with pytest.raises(UsageError, match="--total-memory"):
        DaskExecutor("tcp://here:1", 1, BatchLimits(total_memory=1))


class Process:
    """A slot of a worker, which reports stages, and loses what is called so."""

    def __init__(self, limits: BatchLimits) -> None:
        self.limits, self.on_stage = limits, None

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self.on_stage is not None
        for stage in ("check", "check again"):
            self.on_stage(stage)
        if job.get("lost"):
            raise LostError("killed")
        return {"state": "done", "by": self}


def test_a_worker_keeps_its_process_for_jobs_with_the_same_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    worker = SimpleNamespace(log_event=lambda topic, message: said.append((topic, message)))
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(get_worker=lambda: worker))
    monkeypatch.setattr(on_dask, "Slot", Process)
    monkeypatch.setattr(on_dask, "_free", [])
    limits = {"timeout": 1.0, "memory": None, "total_memory": None}
    assert on_dask.run("b", "x", {"lost": True}, limits) == {"lost": "killed"}
    (free,) = on_dask._free
    assert free.on_stage is None and free.limits == BatchLimits(timeout=1.0)
    assert on_dask.run("b", "y", {}, limits)["by"] is free and on_dask._free == [free]
    assert on_dask.run("b", "z", {}, {**limits, "timeout": 2.0})["by"] is not free and len(on_dask._free) == 2
    # The start is always reported, and of the stages that follow one a second.
    assert said == [("surgery-batch", {"batch": "b", "name": name, "stage": ""}) for name in "xyz"]
    monkeypatch.setattr(on_dask, "_STAGE_EVERY", 0.0)
    on_dask.run("b", "y", {}, limits)
    assert [message["stage"] for _, message in said[3:]] == ["", "check", "check again"]
