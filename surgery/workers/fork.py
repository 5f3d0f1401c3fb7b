"""Calls in a fork of this process, which sees the state of its caller but cannot change it.

For third-party code that works on objects of this process, such as passes. Native code that does not need them runs in
a `Worker`, which inherits no threads and locks.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, NoReturn

from surgery.workers import wire
from surgery.workers.ending import died, end_for_lack_of_memory, last_line, reap
from surgery.workers.limits import limit_memory

_PR_SET_PDEATHSIG = 1
_STATUS = "/proc/self/statm"
_NO_RESULT = 70


def call_in_fork(
    function: Callable[[], Any], *, stage: str, timeout: float | None, memory: int | None
) -> tuple[Any, str]:
    """Call a function in a fork of this process; return its result and its output.

    `timeout` is in seconds, and `memory` in bytes in addition to the memory of this process. The result is plain data
    (see `workers.wire`). The function should catch the exceptions that it can report; anything else that ends the
    process (a signal, the time limit, memory, an exit) raises `WorkerError` with `stage`, after the process and all
    processes that it started have ended.
    """
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryFile() as log, ours:
        with theirs:
            child = _fork()
            if child == 0:
                _serve(function, theirs, log, timeout, memory)
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            answer = wire.receive(ours, deadline)
        except wire.ExpiredError:
            raise died(stage, reap(child, kill=True), last_line(log), timeout, expired=True) from None
        except wire.ClosedError:
            raise died(stage, reap(child, kill=False), last_line(log), timeout) from None
        except BaseException:
            reap(child, kill=True)
            raise
        reap(child, kill=True)
        log.seek(0)
        return answer, log.read().decode(errors="replace")


def _fork() -> int:
    with warnings.catch_warnings():
        # The threads of this process, such as a progress display, are lost in the child, which does not need them.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _serve(
    function: Callable[[], Any], channel: socket.socket, log: IO[bytes], timeout: float | None, memory: int | None
) -> NoReturn:
    """Run the child: confine this process, call the function, send its result, and exit."""
    status = _NO_RESULT
    try:
        _confine(log, timeout, memory)
        pieces = wire.pack(function())
        sys.stdout.flush()
        wire.send(channel, pieces)
        status = 0
    except MemoryError:
        end_for_lack_of_memory(log.fileno())
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        os._exit(status & 0xFF)


def _confine(log: IO[bytes], timeout: float | None, memory: int | None) -> None:
    """Put this process in a separate session and process group, with limits, and redirect its output to the log."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # A crash is reported by the parent, not in the middle of its display.
    faulthandler.disable()
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log.fileno(), 1), (log.fileno(), 2)):
        os.dup2(source, target)
    # The inherited streams are not used, because another thread may have held their locks.
    sys.stdout = sys.stderr = os.fdopen(os.dup(1), "w", buffering=1, errors="backslashreplace")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory is not None:
        limit_memory(memory + _data_bytes())
    if timeout is not None:
        # A fallback if no process is left to enforce the time limit.
        seconds = int(time.process_time() + timeout * (os.cpu_count() or 1)) + 10
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def _data_bytes() -> int:
    """Return the size of the writable private data of this process in bytes."""
    try:
        with open(_STATUS, encoding="ascii") as file:  # noqa: PTH123 - a kernel file
            return int(file.read().split()[5]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 1 << 30
