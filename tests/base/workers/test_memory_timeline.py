"""Memory over time: of this process, and of its workers."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from surgery.base import workers
from surgery.base.workers import client, process_memory

MIB = 1 << 20


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for a sampling thread that a busy machine may run late, for at most a minute."""
    end = time.monotonic() + 60
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)


def test_allocated_memory_is_measured() -> None:
    with process_memory.MemoryTimeline(interval=0.005) as found:
        time.sleep(0.05)
        taken = np.ones(64 * MIB, np.uint8)
        time.sleep(0.05)
        found.note("took")
    data = found.to_json()
    own = [sample[1] for sample in data["samples"]]
    assert max(own) - own[0] >= 60 * MIB and data["peak"] >= max(own) and taken.size
    times = [sample[0] for sample in data["samples"]]
    assert times == sorted(times) and data["steps"][0][1] == "took" and 0.09 < data["steps"][0][0] <= times[-1] + 0.01


def test_live_workers_are_counted() -> None:
    with workers.Worker() as worker:
        worker.call("surgery.base.workers.drill:echo", value=None)
        alive = client.processes()
        assert len(alive) >= 2
        with process_memory.MemoryTimeline(interval=0.005) as found:
            wait_until(lambda: any(sample[2] for sample in found.to_json()["samples"]))
    assert max(sample[2] for sample in found.to_json()["samples"]) > 0
    assert len(client.processes()) == len(alive) - 1


def test_long_runs_keep_few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_memory, "_MOST", 20)
    with process_memory.MemoryTimeline(interval=0.001) as found:
        wait_until(lambda: found.to_json()["interval"] > 0.001)
    data = found.to_json()
    assert 2 <= len(data["samples"]) <= 21 and data["interval"] > 0.001


def test_a_system_without_memory_information(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(pid: int) -> int:
        raise FileNotFoundError(pid)

    monkeypatch.setattr(process_memory, "private_bytes", missing)
    with process_memory.MemoryTimeline() as found:
        pass
    assert found.to_json()["samples"] == [] and found.to_json()["peak"] == 0
