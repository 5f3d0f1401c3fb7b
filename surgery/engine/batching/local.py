"""The local executor: warm processes, and a thread that watches their memory."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from surgery.base.workers.process_memory import private_bytes_below
from surgery.engine.batching.events import Event
from surgery.engine.batching.model_entry import BatchLimits
from surgery.engine.batching.slot import INTERVAL, LostError, Slot, mib


@dataclass
class _Place:
    """A slot with the thread that waits for it, and its current job."""

    slot: Slot
    jobs: queue.SimpleQueue[tuple[str, Mapping[str, Any]] | None] = field(default_factory=queue.SimpleQueue)
    name: str = ""
    alone: bool = False
    since: float = 0.0
    returned: bool = False
    thread: threading.Thread | None = None


class LocalExecutor:
    """Runs jobs in local processes, one process for each concurrent job.

    If all jobs together exceed the total memory limit, the job started last is returned, to run alone later.
    """

    def __init__(self, jobs: int, limits: BatchLimits) -> None:
        self.capacity = jobs
        self._limits = limits
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._places = [self._place() for _ in range(jobs)]
        self._closed = threading.Event()
        self._watcher: threading.Thread | None = None
        if limits.total_memory is not None:
            self._watcher = threading.Thread(target=self._watch, daemon=True)
            self._watcher.start()

    def _place(self) -> _Place:
        place = _Place(Slot(self._limits))
        place.slot.on_stage = lambda stage: self._events.put(Event("stage", place.name, stage))
        place.thread = threading.Thread(target=self._serve, args=(place,), daemon=True)
        place.thread.start()
        return place

    def submit(self, name: str, job: Mapping[str, Any], *, alone: bool = False) -> None:
        """Start a job."""
        place = next(place for place in self._places if not place.name)
        place.name, place.alone, place.since, place.returned = name, alone, time.monotonic(), False
        place.jobs.put((name, job))

    def next(self, timeout: float) -> Event | None:
        """Return the next event; None if there is none within `timeout` seconds."""
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            return None
        if event.kind != "stage":
            next(place for place in self._places if place.name == event.name).name = ""
        return event

    def close(self) -> None:
        """Kill the running jobs, and end all processes and threads."""
        self._closed.set()
        for place in self._places:
            place.jobs.put(None)
            place.slot.end()
        for place in self._places:
            if place.thread is not None:
                place.thread.join()
        if self._watcher is not None:
            self._watcher.join()

    def _serve(self, place: _Place) -> None:
        """Run the jobs of a place one after another."""
        while (given := place.jobs.get()) is not None and not self._closed.is_set():
            name, job = given
            try:
                found = place.slot.run(job)
                stopped = place.returned and found["state"] == "failed"
                event = Event("returned", name) if stopped else Event("ended", name, outcome=found)
            except LostError as error:
                event = Event("lost", name, str(error))
            except Exception as error:  # a thread must not end without reporting its job
                event = Event("lost", name, f"{type(error).__name__}: {error}")
            self._events.put(event)
        place.slot.close()

    def _watch(self) -> None:
        while not self._closed.wait(INTERVAL):
            sizes = {}
            for number, place in enumerate(self._places):
                pid = place.slot.pid
                if place.name and pid is not None:
                    sizes[number] = private_bytes_below(pid)
            self._hold(sizes)

    def _hold(self, sizes: Mapping[int, int]) -> None:
        """Kill the job started last if all jobs together exceed the total memory limit."""
        total = self._limits.total_memory
        if total is None or sum(sizes.values()) <= total:
            return
        last = max(sizes, key=lambda number: self._places[number].since)
        place = self._places[last]
        place.returned = not place.alone and len(sizes) > 1
        place.slot.kill(f"took {mib(sizes[last])}, more than the {mib(total)} of --total-memory")
