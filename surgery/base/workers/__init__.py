"""Native code in worker processes with limits.

ONNX Runtime, onnx's C++ checker and inference, and third-party optimizers can crash, hang or exhaust memory on a model
of 200 bytes. They run in processes forked from a preloaded server, with limits on time and memory; if such a process
dies, a `WorkerError` with the current stage and the signal is raised.

    with Worker(timeout=60) as worker:
        findings = worker.call("surgery.verification.verdict.checks:run_checker", skeleton=data)

multiprocessing is not used because it imports the caller's main script again, and uses pickle.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Any, Self

from surgery.base.errors import WorkerError
from surgery.base.workers import client, messages
from surgery.base.workers.client import allow_fork, forkserver, shutdown
from surgery.base.workers.ending import OUT_OF_MEMORY, TIMEOUT, died, last_line, shorten, tells_of_memory
from surgery.base.workers.forked_server import ForkedServer
from surgery.base.workers.server import after_call, note, stage

__all__ = [
    "OUT_OF_MEMORY",
    "TIMEOUT",
    "Worker",
    "WorkerRaised",
    "after_call",
    "allow_fork",
    "before_call",
    "default_memory",
    "note",
    "shorten",
    "shutdown",
    "stage",
    "start",
    "tells_of_memory",
]


class WorkerRaised(WorkerError):  # noqa: N818 - the name says what the worker did
    """The function raised an ordinary exception; the process is still alive.

    `type_name` is the name of the exception class, and `message` its full text.
    """

    def __init__(self, type_name: str, message: str, *, stage: str) -> None:
        lack = type_name == "MemoryError" or tells_of_memory(message)
        super().__init__(
            f"{stage} failed: {shorten(message) or type_name}", stage=stage, signal=OUT_OF_MEMORY if lack else None
        )
        self.type_name = type_name
        self.message = message


def _hung_up(channel: socket.socket) -> bool:
    try:
        return not channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def default_memory() -> int:
    """Return the default memory limit of a worker in bytes: 8 GiB, or half of the memory of a smaller machine."""
    return min(8 << 30, half_of_memory())


def half_of_memory() -> int:
    """Return half of the memory of this machine, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


_before: list[Callable[[object], object]] = []


def before_call(prepare: Callable[[object], object]) -> None:
    """Register a function that is called with the arguments of each call before they are sent."""
    _before.append(prepare)


def start() -> None:
    """Start the fork server now, without waiting for it, so that its imports overlap with other work."""
    client.start(ForkedServer)


class Worker:
    """One worker process, started at the first call, and restarted after it died.

    State that a function keeps in its module persists between calls while the process lives. `timeout` is in seconds
    for each stage of a call (or the whole call, if its function reports no stages), or None for no limit; it may be
    changed between calls. `memory` bounds the writable private memory in bytes (mapped files count only if mapped for
    writing). `preload` has modules that the fork server imports first, so that later workers have them too. `prepare`
    says whether the functions registered with `before_call` are called.
    """

    def __init__(
        self,
        *,
        timeout: float | None = 300,
        memory: int | None = None,
        preload: Sequence[str] = (),
        prepare: bool = True,
        whole: bool = False,
        on_stage: Callable[[str], object] | None = None,
        on_note: Callable[[Any], object] | None = None,
    ) -> None:
        self.timeout = timeout
        self.whole = whole
        self.on_stage = on_stage
        self.on_note = on_note
        self.prepare = prepare
        self.memory = memory if memory is not None else default_memory()
        self.preload = tuple(preload)
        self.pid: int | None = None
        self._channel: socket.socket | None = None
        self._log: IO[bytes] | None = None
        self._lock = threading.Lock()
        self._is_ended = False  # by `kill`

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def call(self, function: str, /, **arguments: object) -> Any:
        """Run "package.module:function" in the worker and return its result.

        Arguments and results are plain data: None, numbers, strings, bytes, NumPy arrays, and lists and dicts of them;
        a tuple arrives as a list. Raises `WorkerRaised` if the function raised, and `WorkerError` with a stage and a
        signal if the process died or exceeded the time limit.
        """
        for prepare in _before if self.prepare else ():
            prepare(arguments)
        with self._lock:
            if self._channel is not None and _hung_up(self._channel):
                # It died between calls, so no call is to blame.
                self._stop(kill=True)
            channel = self._channel or self._start()
            deadline = self._deadline()
            current = function.rpartition(":")[2]
            message = messages.pack({"function": function, "arguments": arguments, "timeout": self.timeout})
            try:
                messages.send(channel, message)
                while "stage" in (answer := self._received(channel, deadline)):
                    current = answer["stage"]
                    deadline = deadline if self.whole else self._deadline()
                    if self.on_stage is not None:
                        self.on_stage(current)
            except messages.ExpiredError:
                raise self._died(current, expired=True) from None
            except messages.ClosedError:
                raise self._died(current) from None
            except BaseException:
                self._stop(kill=True)
                raise
        if "raised" in answer:
            raise WorkerRaised(answer["raised"], answer["message"], stage=current)
        return answer["result"]

    def kill(self) -> None:
        """Kill the process while another thread waits for its answer; that call then raises `WorkerError`."""
        pid = self.pid
        if pid is not None:
            self._is_ended = True
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process, and all processes that it started."""
        with self._lock:
            self._stop(kill=False)

    def _received(self, channel: socket.socket, deadline: float | None) -> Any:
        """Return the next message that is not a note."""
        while "note" in (message := messages.receive(channel, deadline)):
            if self.on_note is not None:
                self.on_note(message["note"])
        return message

    def _deadline(self) -> float | None:
        return None if self.timeout is None else time.monotonic() + self.timeout

    def _start(self) -> socket.socket:
        self._is_ended = False
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the worker
        try:
            with theirs:
                self.pid = forkserver().fork(theirs, self._log, self.memory, self.preload)
        except BaseException:
            ours.close()
            self._log.close()
            self._log = None
            raise
        self._channel = ours
        return ours

    def _stop(self, kill: bool) -> tuple[int | None, str]:
        """End the process; return its exit code or negative signal number, if known, and its last line of output."""
        if self._channel is None or self.pid is None or self._log is None:
            return None, ""
        self._channel.close()
        status = forkserver().end(self.pid, kill)
        last = last_line(self._log)
        self._log.close()
        self._channel = self.pid = self._log = None
        return status, last

    def _died(self, stage: str, expired: bool = False) -> WorkerError:
        """Clean up after the process, and return the error for its end."""
        status, last = self._stop(kill=expired)
        error = died(stage, status, last, self.timeout, expired)
        error.killed = error.killed and not self._is_ended
        return error
