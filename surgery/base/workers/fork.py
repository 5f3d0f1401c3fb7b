"""Calls in a fork of this process, which sees the state of its caller but cannot change it.

For third-party code that works on objects of this process, such as passes. Native code that does not need them runs in
a `Worker`, which inherits no threads and locks.
"""

from __future__ import annotations

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
from typing import IO, Any, NamedTuple, NoReturn

from surgery.base.errors import PassError, SurgeryError, pack_error, place_of, raised, unpack_error
from surgery.base.workers import messages
from surgery.base.workers.ending import LAST_WORDS, died, end_for_lack_of_memory, last_line, reap
from surgery.base.workers.limits import end_with_parent, limit_memory

_STATUS = "/proc/self/statm"
_NO_RESULT = 70


class _Limits(NamedTuple):
    """The limits of a child, in seconds and in bytes."""

    timeout: float | None
    memory: int | None


def call_in_fork(
    function: Callable[[], Any], *, stage: str, timeout: float | None, memory: int | None, home: str = ""
) -> tuple[Any, str]:
    """Call a function in a fork of this process; return its result and its output.

    `timeout` is in seconds, and `memory` in bytes in addition to the memory of this process. The result is plain data
    (see `workers.wire`). If the function raises an error of surgery, an equal one is raised here; any other exception
    becomes a PassError with `stage` and the place (see `raised` for `home`). What ends the process otherwise (a signal,
    the time limit, memory, an exit) raises `WorkerError` with `stage`, after the process and all processes that it
    started have ended. Each of these errors has the output.
    """
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryFile() as log, ours:
        with theirs:
            child = forking()
            if child == 0:
                _serve(function, theirs, log, _Limits(timeout, memory), home)
        try:
            answer = _answer(ours, child, log, stage, timeout)
            if "error" in answer:
                raise unpack_error(answer["error"])
            if "raised" in answer:
                raise PassError(f"{stage} raised {answer['raised']}")
        except SurgeryError as error:
            error.printed = _output(log)
            raise
        return answer["result"], _output(log)


def _answer(channel: socket.socket, child: int, log: IO[bytes], stage: str, timeout: float | None) -> dict[str, Any]:
    """Return what the child sends, and wait for its end; raise WorkerError if it dies."""
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        answer: dict[str, Any] = messages.receive(channel, deadline)
    except messages.ExpiredError:
        raise died(stage, reap(child, kill=True), last_line(log), timeout, expired=True) from None
    except messages.ClosedError:
        raise died(stage, reap(child, kill=False), last_line(log), timeout) from None
    except BaseException:
        reap(child, kill=True)
        raise
    reap(child, kill=True)
    if "exit" in answer:
        ended = died(stage, answer["exit"], "", timeout)
        ended.what += f" ({answer['place']})" if answer["place"] else ""
        raise ended
    return answer


def _output(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode(errors="replace").removesuffix(LAST_WORDS)


def forking() -> int:
    """Fork; an interrupt waits until the callbacks of other modules have run."""
    with warnings.catch_warnings():
        # The threads of this process, such as a progress display, are lost in the child, which does not need them.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _serve(function: Callable[[], Any], channel: socket.socket, log: IO[bytes], limits: _Limits, home: str) -> NoReturn:
    """Run the child: confine this process, call the function, send its result or exception, and exit."""
    status = _NO_RESULT
    try:
        _confine(log, limits)
        pieces = messages.pack(_outcome(function, home))
        sys.stdout.flush()
        messages.send(channel, pieces)
        status = 0
    except MemoryError:
        end_for_lack_of_memory(log.fileno())
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        os._exit(status & 0xFF)


def _outcome(function: Callable[[], Any], home: str) -> dict[str, Any]:
    """Call a function; return its result, or what it raised."""
    try:
        return {"result": function()}
    except MemoryError:
        raise
    except SurgeryError as error:
        return {"error": pack_error(error)}
    except SystemExit as error:
        if isinstance(error.code, str):
            sys.stderr.write(f"{error.code}\n")  # as Python does at the end of a process
        status = error.code if isinstance(error.code, int) else 1
        return {"exit": status & 0xFF, "place": place_of(error, home)}
    except Exception as error:
        return {"raised": raised(error, home)}


def _confine(log: IO[bytes], limits: _Limits) -> None:
    """Put this process in a separate session and process group, with limits, and redirect its output to the log."""
    os.setsid()
    end_with_parent()
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
    if limits.memory is not None:
        limit_memory(limits.memory + _data_bytes())
    if limits.timeout is not None:
        # A fallback if no process is left to enforce the time limit.
        seconds = int(time.process_time() + limits.timeout * (os.cpu_count() or 1)) + 10
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def _data_bytes() -> int:
    """Return the size of the writable private data of this process in bytes."""
    try:
        with open(_STATUS, "rb") as file:  # noqa: PTH123 - a kernel file
            return int(file.read().split()[5]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 1 << 30
