"""One model's crash, hang or memory ends with its own process, and is not mistaken for a process that was lost."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from surgery.base.workers.process_memory import private_bytes_below
from surgery.engine.batching import slot as slots
from surgery.engine.batching.local import LocalExecutor
from surgery.engine.batching.model_entry import BatchLimits
from surgery.engine.batching.slot import LostError, Slot

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def drills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs name a way to end, in place of a model."""
    monkeypatch.setattr(slots, "FUNCTION", "surgery.base.workers.drill:perform")


def job(drill: str, **arguments: object) -> dict[str, Any]:
    return {"drill": drill, "arguments": arguments}


def test_a_crash_is_blamed_on_the_model() -> None:
    slot = Slot(BatchLimits())
    try:
        assert slot.run(job("segfault")) == {
            "state": "failed",
            "stage": "drill",
            "kind": "crash",
            "reason": "drill crashed with SIGSEGV",
        }
        assert slot.run(job("abort"))["reason"] == "drill crashed with SIGABRT: something native went wrong"
        assert slot.run(job("vanish", code=3))["reason"] == "perform ended the process with exit code 3"
        assert slot.run(job("complain", text="bad"))["kind"] == "internal"
        assert slot.run(job("echo", value="well")) == "well"
    finally:
        slot.close()


def test_a_crash_leaves_what_is_known_of_the_files() -> None:
    source = {"input_files": [["/zoo/a.onnx", 7, 1_700_000_000_000_000_000]], "input_sha256": "digest"}
    slot = Slot(BatchLimits())
    try:
        found = slot.run(job("last_words", value=source))
        assert {**found, **source} == found and found["kind"] == "crash"
        assert "input_files" not in slot.run(job("abort"))
    finally:
        slot.close()


def test_a_hang_ends_at_the_time_limit_of_the_model() -> None:
    """Stages do not begin the time anew: the limit is for the model."""
    slot = Slot(BatchLimits(timeout=1.0))
    started = time.monotonic()
    try:
        found = slot.run(job("steps", count=100, seconds=0.1))
        assert (found["kind"], found["reason"]) == ("time", "took more than 1 s")
        assert found["stage"].startswith("step ")
        assert time.monotonic() - started < 60
    finally:
        slot.close()


def test_the_memory_limit_covers_all_processes_of_a_model() -> None:
    # Each of them stays below the hard limit for one process.
    slot = Slot(BatchLimits(memory=300 << 20))
    try:
        found = slot.run(job("family", count=3, size=150 << 20))
        assert found["kind"] == "memory"
        assert found["reason"].endswith("more than the 300 MiB of --memory")
        assert slot.run(job("allocate", size=1 << 30))["kind"] == "memory"
        assert slot.run(job("echo", value=1)) == 1
    finally:
        slot.close()


def test_a_process_killed_from_outside_is_lost() -> None:
    slot = Slot(BatchLimits())
    try:
        with pytest.raises(LostError, match="its process was killed"):
            slot.run(job("kill"))
        assert slot.run(job("echo", value=1)) == 1
    finally:
        slot.close()


def test_child_processes_of_a_job_end_with_its_slot(tmp_path: Path) -> None:
    slot = Slot(BatchLimits())
    child = slot.run(job("spawn"))
    assert private_bytes_below(slot.pid or 0) > 0
    slot.close()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()
    assert private_bytes_below(child) == 0


def collected(executor: LocalExecutor, count: int) -> dict[str, tuple[str, Any]]:
    """Return the last events of jobs by name: kind and outcome."""
    found: dict[str, tuple[str, Any]] = {}
    deadline = time.monotonic() + 120
    while len(found) < count and time.monotonic() < deadline:
        event = executor.next(0.2)
        if event is not None and event.kind != "stage":
            found[event.name] = event.kind, event.outcome if event.kind == "ended" else event.text
    return found


def test_a_crash_does_not_affect_a_parallel_job() -> None:
    executor = LocalExecutor(2, BatchLimits())
    try:
        executor.submit("slow", job("sleep", seconds=2.0))
        executor.submit("crash", job("abort"))
        found = collected(executor, 2)
        assert found["slow"] == ("ended", None)
        assert found["crash"][1]["kind"] == "crash"
    finally:
        executor.close()


def test_the_last_job_is_returned_if_memory_runs_short() -> None:
    executor = LocalExecutor(2, BatchLimits(total_memory=600 << 20))
    try:
        executor.submit("first", job("hold", size=350 << 20, seconds=6.0))
        time.sleep(0.5)
        executor.submit("second", job("hold", size=350 << 20, seconds=6.0))
        found = collected(executor, 2)
        assert found == {"first": ("ended", 350 << 20), "second": ("returned", "")}
        executor.submit("second", job("hold", size=350 << 20, seconds=0.5), alone=True)
        assert collected(executor, 1) == {"second": ("ended", 350 << 20)}
        executor.submit("third", job("hold", size=900 << 20, seconds=60.0), alone=True)
        (kind, outcome) = collected(executor, 1)["third"]
        assert (kind, outcome["kind"]) == ("ended", "memory")
        assert outcome["reason"].endswith("more than the 600 MiB of --total-memory")
    finally:
        executor.close()


def test_a_job_is_killed_above_the_total_memory_and_not_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = LocalExecutor(1, BatchLimits(total_memory=600))
    killed: list[str] = []
    monkeypatch.setattr(executor._places[0].slot, "kill", killed.append)
    try:
        executor._hold({0: 600})
        assert killed == []
        executor._hold({0: 601})
        assert len(killed) == 1
    finally:
        executor.close()


def test_a_job_ends_although_its_process_is_only_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = Slot(BatchLimits(timeout=60.0))
    started = slot._worker._start

    def start() -> socket.socket:
        assert slot.pid is None
        slot.end()
        return started()

    monkeypatch.setattr(slot._worker, "_start", start)
    try:
        for _ in range(2):
            with pytest.raises(LostError, match="the batch has ended"):
                slot.run(job("spin"))
            assert slot.pid is None
    finally:
        slot.close()


def test_closing_ends_running_jobs() -> None:
    executor = LocalExecutor(1, BatchLimits())
    executor.submit("endless", job("spin"))
    while executor.next(0.1) is None:
        pass
    place = executor._places[0]
    pid = place.slot.pid
    assert pid is not None
    closing = threading.Thread(target=executor.close)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
