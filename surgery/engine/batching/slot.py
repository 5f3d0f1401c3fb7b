"""A slot for one model at a time: a warm process, which is replaced if a model crashes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from surgery.base.errors import WorkerError
from surgery.base.workers import OUT_OF_MEMORY, TIMEOUT, Worker, WorkerRaised, shorten
from surgery.base.workers.process_memory import private_bytes, private_bytes_below
from surgery.engine.batching.job import FUNCTION
from surgery.engine.batching.model_entry import BatchLimits

_PRELOAD = ("surgery.engine.batching.warm",)
_KEEP = 1 << 30
"""Private memory, in bytes, above which a process is replaced after a model."""


INTERVAL = 0.1
"""Interval of memory checks, in seconds."""


class LostError(Exception):
    """The process ended through no fault of the model."""


class Slot:
    """Runs models one after another in a separate process; child processes end with it.

    The memory is the private memory in use by the process and all of its descendants; it is checked ten times a second.
    In addition, the limit is a hard one for each single process. `kill` may be called from another thread; `run` then
    returns a failure with the given reason.
    """

    def __init__(self, limits: BatchLimits, on_stage: Callable[[str], object] | None = None) -> None:
        self.limits = limits
        self._worker = Worker(
            timeout=limits.timeout,
            memory=limits.memory,
            preload=_PRELOAD,
            prepare=False,
            whole=True,
            on_stage=self._noted,
            on_note=self._found,
        )
        self.on_stage = on_stage
        self._stage = ""
        self._source: Mapping[str, Any] = {}
        self._killed = ""
        self._ended = False
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The ID of the process that runs the model, or None."""
        return self._worker.pid

    def run(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Run a job and return the result of `surgery.engine.batching.job.run`. `LostError` if the model is not to
        blame."""
        self._stage, self._source = "starting", {}
        with self._lock:
            if self._ended:
                raise LostError("the batch has ended")
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
        """Kill the running model if it and its child processes exceed the memory limit for one model."""
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
        """Kill the running model, for a given reason. If its process is only starting, it ends at its first stage."""
        with self._lock:
            self._killed = reason
        self._worker.kill()

    def end(self) -> None:
        """Kill the running model, and run no other: `run` raises `LostError`. Called from another thread."""
        with self._lock:
            self._ended = True
        self.kill("the batch has ended")

    @property
    def killed(self) -> str:
        """The reason passed to `kill` during the last job; empty if it was not called."""
        with self._lock:
            return self._killed

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def _noted(self, stage: str) -> None:
        self._stage = stage
        if self.killed:
            self._worker.kill()
        if self.on_stage is not None:
            self.on_stage(stage)

    def _found(self, source: Mapping[str, Any]) -> None:
        """Keep the columns about the files of the model, which a job sends as soon as it knows them."""
        self._source = source

    def _died(self, error: WorkerError) -> dict[str, Any]:
        """Return the outcome of a job whose process died; `LostError` if neither the model nor a limit is the cause."""
        if self._ended:
            raise LostError("the batch has ended") from error
        if self.killed:
            return self._failed("memory", self.killed)
        if error.signal == TIMEOUT:
            return self._failed("time", f"took more than {self.limits.timeout or 0:g} s")
        if error.killed or error.stage == WorkerError.START:
            raise LostError("its process was killed" if error.killed else str(error)) from error
        return self._failed("memory" if error.signal == OUT_OF_MEMORY else "crash", error.what)

    def _failed(self, kind: str, reason: str) -> dict[str, Any]:
        return {
            **self._source,
            "state": "failed",
            "stage": self._stage,
            "kind": kind,
            "reason": shorten(reason),
        }


def mib(size: int) -> str:
    """Format a number of bytes in MiB for messages about limits."""
    return f"{size / (1 << 20):,.0f} MiB"


def _size(pid: int) -> int:
    try:
        return private_bytes(pid)
    except (OSError, ValueError):
        return 0
