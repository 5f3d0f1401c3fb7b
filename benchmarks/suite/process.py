"""Run a command with a time limit, and watch the private memory of the command and all its descendants."""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_BENCHMARKS = Path(__file__).resolve().parent.parent
_INTERVAL = 0.02
_LONGEST_REASON = 160
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_FRAME = re.compile("[─-╿]+")
_ERROR = re.compile(r"\w*(Error|Exception|Fail)\b.*:|^\[?error", re.IGNORECASE)


@dataclass(frozen=True)
class Ran:
    """The result of a command. `failure` is empty on success; `private` is the peak private memory, in bytes.

    `cpu` is the CPU time of the command and the descendants it waited for, in seconds; it says more than `seconds` on a
    busy machine.
    """

    seconds: float
    cpu: float
    private: int
    failure: str
    output: str


def run(command: list[str], *, timeout: float, folder: Path) -> Ran:
    """Run a command with its output saved in `folder`; kill it and all its descendants after the timeout."""
    out, err = folder / "stdout", folder / "stderr"
    paths = filter(None, (os.environ.get("PYTHONPATH"), str(_BENCHMARKS)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with out.open("wb") as stdout, err.open("wb") as stderr:
        begin, before = time.perf_counter(), _cpu()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=environment, cwd=folder
        )
        peak, expired = _watch(process, begin + timeout)
        seconds, cpu = time.perf_counter() - begin, _cpu() - before
    printed = out.read_text(errors="replace")
    if expired:
        return Ran(seconds, cpu, peak, f"not done in {timeout:.0f} s", printed)
    messages = err.read_text(errors="replace") if err.stat().st_size else printed
    return Ran(seconds, cpu, peak, reason(process.returncode, messages) if process.returncode else "", printed)


def tree(pid: int) -> list[int]:
    """Return the ids of a process and all its descendants."""
    found = [pid]
    for parent in found:
        with suppress(OSError):
            for thread in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, _read(f"{thread}/children").split())
    return found


def _read(path: str) -> bytes:
    """Read a small kernel file with few calls, since watching takes time from the watched processes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1 << 14)
    finally:
        os.close(descriptor)


def _watch(process: subprocess.Popen[bytes], deadline: float) -> tuple[int, bool]:
    """Wait for a process to end; return the peak private memory of its tree, and whether it was killed."""
    handle, peak = os.pidfd_open(process.pid), 0
    try:
        while not select.select([handle], [], [], _INTERVAL)[0]:
            peak = max(peak, sum(map(_private, tree(process.pid))))
            if time.perf_counter() > deadline:
                return peak, True
        return peak, False
    finally:
        os.close(handle)
        if process.poll() is None:
            _kill(process.pid)
        process.wait()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _private(pid: int) -> int:
    """Return the bytes of memory not backed by files; 0 for a process that has ended."""
    with suppress(OSError):
        _, _, rest = _read(f"/proc/{pid}/status").partition(b"RssAnon:")
        return int(rest.split(None, 1)[0]) * 1024 if rest else 0
    return 0


def _kill(pid: int) -> None:
    for each in reversed(tree(pid)):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def reason(code: int, messages: str) -> str:
    """Return in one line why a command failed: its last line that mentions an error, else its last line."""
    if code < 0:
        return f"died of {signal.Signals(-code).name}"
    lines = [" ".join(_FRAME.sub(" ", _COLOUR.sub("", line)).split()) for line in messages.splitlines()]
    lines = [line for line in lines if line]
    telling = [line for line in lines if _ERROR.search(line)] or lines or [f"exit code {code}"]
    return telling[-1][:_LONGEST_REASON]
