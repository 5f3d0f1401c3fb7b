"""Run a command with a time limit, and watch the memory and CPU time of the command and all its descendants."""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_BENCHMARKS = Path(__file__).resolve().parent.parent
_INTERVAL = 0.02
_LONGEST_REASON = 160
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_FRAME = re.compile("[─-╿]+")
_FOLDER = re.compile(rf"{re.escape(tempfile.gettempdir())}/tmp\w+/")
"""A temporary folder, which has another name in each run."""
_ERROR = re.compile(r"\w*(Error|Exception|Fail)\b.*:|^\[?error", re.IGNORECASE)


@dataclass(frozen=True)
class Ran:
    """The result of a command. `failure` is empty on success.

    `private` is the peak memory not backed by files, in bytes; a page that forked processes share counts once.
    `cpu` is the CPU time of the command and all its descendants, in seconds; on a busy machine it says more than
    `seconds` does.
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
        begin, before = time.perf_counter(), _waited()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=environment, cwd=folder
        )
        watched = Watched()
        expired = watched.until_end(process, begin + timeout)
        seconds, cpu = time.perf_counter() - begin, max(_waited() - before, watched.cpu)
    printed, peak = out.read_text(errors="replace"), watched.peak
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


class Watched:
    """What a process and its descendants took, as samples show it."""

    def __init__(self) -> None:
        self.peak = 0
        self._ticks: dict[int, int] = {}

    @property
    def cpu(self) -> float:
        """CPU time in seconds up to the last sample of each process. Nobody waits for some workers, so the kernel adds
        theirs to no parent."""
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")

    def until_end(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        """Wait for a process to end, and return whether it had to be killed."""
        handle = os.pidfd_open(process.pid)
        try:
            while not select.select([handle], [], [], _INTERVAL)[0]:
                self.sample(tree(process.pid))
                if time.perf_counter() > deadline:
                    return True
            return False
        finally:
            os.close(handle)
            if process.poll() is None:
                _kill(process.pid)
            process.wait()

    def sample(self, pids: list[int]) -> None:
        """Note what these processes take now."""
        for pid in pids:
            self._ticks[pid] = max(self._ticks.get(pid, 0), _ticks(pid))
        # The exact figure takes the kernel a walk over all pages, and it is at most the sum that is read first.
        if sum(_field(f"/proc/{pid}/status", b"RssAnon:") for pid in pids) > self.peak:
            self.peak = max(self.peak, sum(_field(f"/proc/{pid}/smaps_rollup", b"Pss_Anon:") for pid in pids))


def _waited() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _ticks(pid: int) -> int:
    """Return the CPU time of a process, in clock ticks; 0 when it has ended."""
    with suppress(OSError):
        _, _, rest = _read(f"/proc/{pid}/stat").rpartition(b")")
        return sum(map(int, rest.split()[11:13])) if rest else 0
    return 0


def _field(path: str, name: bytes) -> int:
    """Return a field of a kernel file that counts kilobytes, in bytes; 0 for a process that has ended."""
    with suppress(OSError):
        _, _, rest = _read(path).partition(name)
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
    messages = _FOLDER.sub("", _FRAME.sub(" ", _COLOUR.sub("", messages)))
    lines = [" ".join(line.split()) for line in messages.splitlines()]
    lines = [line for line in lines if line]
    telling = [line for line in lines if _ERROR.search(line)] or lines or [f"exit code {code}"]
    return telling[-1][:_LONGEST_REASON]
