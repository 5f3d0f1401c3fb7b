"""Interpretation of the end of a worker process."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from typing import IO

from surgery.base.errors import WorkerError

OUT_OF_MEMORY = "out of memory"
TIMEOUT = "timeout"
LAST_WORDS = "\nout of memory\n"
"""The end of the output of a process that cannot allocate more memory."""

_NO_MEMORY = re.compile(
    r"bad.?alloc|failed to allocate memory|out of memory|cannot allocate memory|unable to allocate|"
    # Messages of the C library if it cannot map the unwinder, with which native code of Python packages is linked.
    r"failed to map segment|must be installed for unwinding",
    re.IGNORECASE,
)
_MESSAGE_LENGTH = 300


def died(stage: str, status: int | None, last: str, timeout: float | None, expired: bool = False) -> WorkerError:
    """Return the error for the end of a process.

    `status` is its exit code or negative signal number, None if unknown; `last` is its last line of output; `expired`
    says that it was ended because it took more than `timeout` seconds.
    """
    if expired or status == -signal.SIGXCPU:
        return WorkerError(f"{stage} took more than {timeout or 0:g} s", stage=stage, signal=TIMEOUT)
    if status is None or status >= 0:
        what = f"{stage} ended the process" + ("" if status is None else f" with exit code {status}")
        signalled = None if status is None else f"exit {status}"
        return WorkerError(what, stage=stage, signal=signalled, killed=status is None)
    # Only the kernel's out-of-memory killer sends this signal to a process that we did not kill.
    if status == -signal.SIGKILL or tells_of_memory(last):
        killed = status == -signal.SIGKILL
        return WorkerError(f"{stage} ran out of memory", stage=stage, signal=OUT_OF_MEMORY, killed=killed)
    name = signal.Signals(-status).name
    return WorkerError(f"{stage} crashed with {name}" + (f": {last}" if last else ""), stage=stage, signal=name)


def reap(pid: int, kill: bool) -> int:
    """Wait for a child to end, kill it if requested or if it does not end, then kill its remaining processes.

    The child leads its own process group. Returns its exit code or negative signal number.
    """
    deadline = time.monotonic() + 2.0
    while not kill and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        kill = time.monotonic() > deadline
        time.sleep(0.001)
    # The child is not reaped yet, so its id still refers to its own process group.
    for end in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def end_for_lack_of_memory(log: int) -> None:
    """End this process, with a log line for `died`, when no more memory can be allocated."""
    os.write(log, LAST_WORDS.encode())
    os.kill(os.getpid(), signal.SIGABRT)


def tells_of_memory(message: str) -> bool:
    """Return whether a native message reports a lack of memory."""
    return _NO_MEMORY.search(message) is not None


def shorten(message: str) -> str:
    """Return the first line of a native message, with at most 300 characters."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    line = lines[0] if lines else ""
    return line if len(line) <= _MESSAGE_LENGTH else line[: _MESSAGE_LENGTH - 1] + "…"


def last_line(log: IO[bytes]) -> str:
    """Return the last line that a process wrote to its stdout or stderr."""
    size = os.fstat(log.fileno()).st_size
    tail = os.pread(log.fileno(), 4096, max(0, size - 4096)).decode(errors="replace")
    lines = [line for line in tail.splitlines() if line.strip()]
    return shorten(lines[-1]) if lines else ""
