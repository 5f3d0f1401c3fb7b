"""The memory of a model, measured in a separate process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from surgery.base.workers.process_memory import private_bytes
from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.benchmarking.bench_worker import BenchWorker
from surgery.verification.benchmarking.measurements import Memory
from surgery.verification.benchmarking.subjects import Subject

_INTERVAL = 0.001


def measure_memory(subject: Subject, feeds: Sequence[Mapping[str, Any]], spec: BenchSpec) -> Memory:
    """Open a model and run it a few times in a separate process; return the private memory used."""
    with BenchWorker([subject], feeds, spec) as worker:
        before = private_bytes(worker.pid)
        with _Sampler(worker.pid) as opening:
            worker.open(0)
        with _Sampler(worker.pid) as running:
            worker.warm_up(0, spec.warmup)
    peak = max(opening.most, running.most)
    return Memory(max(0, peak - before), max(0, running.most - before))


class _Sampler:
    """A context manager that samples the private memory of a process."""

    def __init__(self, pid: int) -> None:
        self.most = 0
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        if kind is None:
            self._sample()

    def _watch(self) -> None:
        while not self._done.wait(_INTERVAL):
            try:
                self._sample()
            except OSError:
                # The process has ended, which the waiting call reports.
                return

    def _sample(self) -> None:
        self.most = max(self.most, private_bytes(self._pid))
