"""A slot for one model at a time: a warm process, which is replaced if a model ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from surgery.batching.entry import Limits
from surgery.batching.job import FUNCTION
from surgery.errors import WorkerError
from surgery.workers import OUT_OF_MEMORY, TIMEOUT, Worker, WorkerRaised, shorten
from surgery.workers.memory import private_bytes, private_bytes_below

_PRELOAD = ("surgery.batching.warm",)
_KEEP = 1 << 30
"""The private memory, in bytes, above which a process is replaced after a model."""


INTERVAL = 0.1
"""Seconds between two looks at the memory of a process."""


class LostError(Exception):
    """The process ended through no fault of the model."""


class Slot:
    """Runs one model after the other in a separate process; the processes that this one starts end with it.

    Memory is what is private to the process and to all that it has started, as far as it is in use; it is looked at ten
    times a second, and the limit is a hard one for each single process besides. `kill` may be called by another thread:
    the call of `run` then says so with the reason that was given.
    """

    def __init__(self, limits: Limits, on_stage: Callable[[str], object] | None = None) -> None:
        self.limits = limits
        self._worker = Worker(
            timeout=limits.timeout,
            memory=limits.memory,
            preload=_PRELOAD,
            prepare=False,
            whole=True,
            on_stage=self._noted,
        )
        self.on_stage = on_stage
        self._stage = ""
        self._killed = ""
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process that runs the model; None between processes."""
        return self._worker.pid

    def run(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Run a job; return what `surgery.batching.job.run` returns. `LostError` if the model is not to blame."""
        self._stage = "starting"
        with self._lock:
            self._killed = ""
        try:
            with self._watched():
                found: dict[str, Any] = self._worker.call(FUNCTION, job=dict(job))
        except WorkerRaised as error:
            return self._failed("memory" if error.signal == OUT_OF_MEMORY else "internal", str(error))
        except WorkerError as error:
            return self._died(error)
        if (pid := self.pid) is not None and _size(pid) > _KEEP:
            self._worker.close()
        return found

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Kill the model that runs when it and all that it has started take more memory than one model may."""
        most = self.limits.memory
        if most is None:
            yield
            return
        ended = threading.Event()

        def watch(most: int) -> None:
            while not ended.wait(INTERVAL):
                pid = self.pid
                if pid is not None and (size := private_bytes_below(pid)) > most:
                    self.kill(f"took {mib(size)}, more than the {mib(most)} of --memory")
                    return

        watcher = threading.Thread(target=watch, args=(most,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def kill(self, reason: str) -> None:
        """End the model that runs, for a reason."""
        with self._lock:
            self._killed = reason
        self._worker.kill()

    @property
    def killed(self) -> str:
        """The reason that `kill` was given for the job that ran last; empty if it was not called."""
        with self._lock:
            return self._killed

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def _noted(self, stage: str) -> None:
        self._stage = stage
        if self.on_stage is not None:
            self.on_stage(stage)

    def _died(self, error: WorkerError) -> dict[str, Any]:
        """Say what ended the process: the model, a limit, or nothing that has to do with it."""
        if self.killed:
            return self._failed("memory", self.killed)
        if error.signal == TIMEOUT:
            return self._failed("time", f"took more than {self.limits.timeout or 0:g} s")
        if error.killed or error.stage == "start":
            raise LostError("its process was killed" if error.killed else str(error)) from error
        return self._failed("memory" if error.signal == OUT_OF_MEMORY else "crash", error.what)

    def _failed(self, kind: str, reason: str) -> dict[str, Any]:
        return {"state": "failed", "stage": self._stage, "kind": kind, "reason": shorten(reason)}


def mib(size: int) -> str:
    """Return a number of bytes in MiB, as messages about limits write it."""
    return f"{size / (1 << 20):,.0f} MiB"


def _size(pid: int) -> int:
    try:
        return private_bytes(pid)
    except (OSError, ValueError):
        return 0
