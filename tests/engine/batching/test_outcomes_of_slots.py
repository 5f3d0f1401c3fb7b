"""What a slot makes of the end of a process, without one."""

from __future__ import annotations

import time
from typing import Any

import pytest
from support.batches import close

from surgery.base.errors import WorkerError
from surgery.base.workers import OUT_OF_MEMORY, TIMEOUT, WorkerRaised
from surgery.engine.batching import local, slot
from surgery.engine.batching.events import Event
from surgery.engine.batching.local import LocalExecutor
from surgery.engine.batching.model_entry import BatchLimits
from surgery.engine.batching.slot import LostError, Slot


class Process:
    """A worker whose calls are scripted."""

    pid: int | None = 7
    ends: Any = None

    def __init__(self, **options: Any) -> None:
        self.options, self.kills, self.closed = options, 0, 0

    def call(self, function: str, job: dict[str, Any]) -> Any:
        assert function == "surgery.engine.batching.job:run"
        self.options["on_note"]({"input_sha256": "1234"})
        self.options["on_stage"]("check")
        found = type(self).ends
        found = found() if callable(found) else found
        if isinstance(found, Exception):
            raise found
        return found

    def kill(self) -> None:
        self.kills += 1

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> type[Process]:
    made = type("Made", (Process,), {})
    monkeypatch.setattr(slot, "Worker", made)
    monkeypatch.setattr(slot, "private_bytes", lambda pid: 1000)
    return made


def died(signal: str | None = None, *, stage: str = "check", killed: bool = False) -> WorkerError:
    return WorkerError("it died", stage=stage, signal=signal, killed=killed)


@pytest.mark.parametrize(
    ("end", "kind", "reason"),
    [
        (died("SIGSEGV"), "crash", "it died"),
        (died(TIMEOUT), "time", "took more than 1.5 s"),
        (died(OUT_OF_MEMORY), "memory", "it died"),
        (WorkerRaised("ValueError", "no\nreason", stage="check"), "internal", "check failed: no"),
        (WorkerRaised("MemoryError", "", stage="check"), "memory", "check failed: MemoryError"),
    ],
)
def test_a_model_that_ends_its_process_fails(end: Exception, kind: str, reason: str, process: type[Process]) -> None:
    process.ends = end
    found = Slot(BatchLimits(timeout=1.5)).run({"model": "a.onnx"})
    assert found == {"input_sha256": "1234", "state": "failed", "stage": "check", "kind": kind, "reason": reason}


@pytest.mark.parametrize(
    ("end", "reason"),
    [(died(killed=True), "its process was killed"), (died(stage=WorkerError.START), "it died")],
)
def test_a_process_that_ends_by_itself_is_lost(end: Exception, reason: str, process: type[Process]) -> None:
    process.ends = end
    with pytest.raises(LostError, match=f"^{reason}$"):
        Slot(BatchLimits()).run({})


def test_a_large_process_is_replaced_after_a_model(process: type[Process], monkeypatch: pytest.MonkeyPatch) -> None:
    made, process.ends = Slot(BatchLimits()), {"state": "done"}
    for size, closed in ((1 << 30, 0), ((1 << 30) + 1, 1)):
        monkeypatch.setattr(slot, "private_bytes", lambda pid, size=size: size)
        assert made.run({}) == {"state": "done"}
        assert made._worker.closed == closed  # type: ignore[attr-defined]

    def gone(pid: int) -> int:
        raise OSError

    monkeypatch.setattr(slot, "private_bytes", gone)
    process.pid = None
    assert made.run({}) == {"state": "done"}
    process.pid = 7
    assert made.run({}) == {"state": "done"} and made._worker.closed == 1  # type: ignore[attr-defined]


def test_a_killed_model_fails_for_the_reason_that_is_given(process: type[Process]) -> None:
    stages: list[str] = []
    made = Slot(BatchLimits(), on_stage=stages.append)

    def is_killed() -> Exception:
        made.kill("took too much")
        made._noted("parity")  # the process was only starting
        return died(killed=True)

    process.ends = is_killed
    found = made.run({})
    assert (found["kind"], found["reason"], found["stage"]) == ("memory", "took too much", "parity")
    assert stages == ["check", "parity"] and made._worker.kills == 2  # type: ignore[attr-defined]
    process.ends = {"state": "done"}
    assert made.run({}) == {"state": "done"} and made.killed == ""
    made.end()
    with pytest.raises(LostError, match="the batch has ended"):
        made.run({})


def test_a_batch_that_ends_meanwhile_loses_its_model(process: type[Process]) -> None:
    made = Slot(BatchLimits())
    process.ends = lambda: made.end() or died("SIGKILL", killed=True)
    with pytest.raises(LostError, match="the batch has ended"):
        made.run({})


def test_a_model_above_its_memory_is_killed(process: type[Process], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot, "INTERVAL", 0.001)
    sizes = iter([2 << 20, (2 << 20) + 1, 9 << 20])
    monkeypatch.setattr(slot, "private_bytes_below", lambda pid: next(sizes))
    made = Slot(BatchLimits(memory=2 << 20))

    def runs() -> Exception:
        while not made.killed:
            pass
        return died("SIGKILL", killed=True)

    process.ends = runs
    found = made.run({})
    assert (found["kind"], found["reason"]) == ("memory", "took 2 MiB, more than the 2 MiB of --memory")
    assert next(sizes) == 9 << 20


class Held:
    """A slot that notes why it is killed, and runs what is scripted."""

    def __init__(self, limits: BatchLimits) -> None:
        self.on_stage: Any = None
        self.reason, self.pid, self.closed = "", 1, False

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        self.on_stage("check")
        while job["end"] is None and not self.reason:
            time.sleep(0.001)
        if isinstance(job["end"], Exception):
            raise job["end"]
        found: dict[str, Any] = job["end"] or {"state": "failed", "reason": self.reason}
        return found

    def kill(self, reason: str) -> None:
        self.reason = reason

    def end(self) -> None:
        self.reason = "end"

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(local, "Slot", Held)
    made = LocalExecutor(3, BatchLimits())
    yield made
    close(made)
    assert all(place.slot.closed for place in made._places)


@pytest.mark.parametrize(
    ("end", "event"),
    [
        ({"state": "done"}, Event("ended", "a", outcome={"state": "done"})),
        ({"state": "failed"}, Event("ended", "a", outcome={"state": "failed"})),
        (LostError("killed"), Event("lost", "a", "killed")),
        (ValueError("why"), Event("lost", "a", "ValueError: why")),
    ],
)
def test_a_job_ends_with_an_event(end: Any, event: Event, executor: LocalExecutor) -> None:
    for _ in range(2):
        executor.submit("a", {"end": end})
        assert [executor.next(9.0), executor.next(9.0)] == [Event("stage", "a", "check"), event]
        assert all(not place.name for place in executor._places)
    assert executor.next(0.0) is None


@pytest.mark.parametrize(
    ("sizes", "total", "killed", "returned"),
    [
        ({0: 5, 1: 5}, None, None, False),
        ({0: 5 << 20, 1: 5 << 20}, 10 << 20, None, False),
        ({0: 5 << 20, 1: 6 << 20, 2: 1 << 20}, 11 << 20, 1, True),
        ({0: 5 << 20, 2: 7 << 20}, 11 << 20, 2, True),
        ({1: 12 << 20}, 11 << 20, 1, False),
    ],
)
def test_the_job_started_last_gives_way(
    sizes: dict[int, int], total: int | None, killed: int | None, returned: bool, executor: LocalExecutor
) -> None:
    executor._limits = BatchLimits(total_memory=total)
    for place, since in zip(executor._places, (1.0, 3.0, 2.0)):
        place.since = since
    executor._hold(sizes)
    assert [bool(place.slot.reason) for place in executor._places] == [number == killed for number in range(3)]
    if killed is not None:
        place = executor._places[killed]
        mib = sizes[killed] >> 20
        assert place.slot.reason == f"took {mib} MiB, more than the 11 MiB of --total-memory"
        assert place.returned is returned


def test_a_job_that_was_stopped_for_others_is_returned(
    executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = executor._places[0]
    for state, kind in (("failed", "returned"), ("done", "ended")):

        def run(job: dict[str, Any], state: str = state) -> dict[str, Any]:
            place.returned = True
            return {"state": state}

        monkeypatch.setattr(place.slot, "run", run)
        executor.submit("a", {})
        event = executor.next(9.0)
        assert event is not None and (event.kind, event.name) == (kind, "a")


def test_running_jobs_are_watched_until_one_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "Slot", Held)
    monkeypatch.setattr(local, "INTERVAL", 0.001)
    monkeypatch.setattr(local, "private_bytes_below", lambda pid: 6)
    made = LocalExecutor(3, BatchLimits(total_memory=12))
    made._places[2].slot.pid = None  # type: ignore[misc]
    for name, alone in (("a", False), ("b", False)):
        made.submit(name, {"end": None}, alone=alone)
        assert made.next(9.0) == Event("stage", name, "check")
    # Together they take all that there is, and one without a process takes nothing.
    made.submit("c", {"end": None})
    assert made.next(9.0) == Event("stage", "c", "check") and made.next(0.03) is None
    made._places[2].slot.pid = 1  # type: ignore[misc]
    assert made.next(9.0) == Event("returned", "c")
    assert [bool(place.slot.reason) for place in made._places] == [False, False, True]
    close(made)
    ended = made.next(0.0)
    assert ended is not None and ended.outcome == {"state": "failed", "reason": "end"}
    assert made._watcher is not None and not made._watcher.is_alive()
    assert not any(place.thread is not None and place.thread.is_alive() for place in made._places)
