"""The private memory of a process, of this process with its workers over time, and what returns it to the system."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from surgery.base.workers import client

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST = 600
"""Maximum number of samples; beyond it, every second sample is removed and the interval is doubled."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Parameters of `mallopt` (malloc.h of glibc)."""

_LARGE = 4 << 20
"""Number of bytes of a block from which it is returned to the system when it is freed."""


def return_free() -> None:
    """Return free memory of the heap to the system, where the C library can: it keeps what small objects took."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def return_large() -> None:
    """Have the C library, where it can, return each large block of this process to the system when it is freed.

    By default, glibc keeps blocks of up to 32 MiB in a heap once one of that size was freed, and has a heap for each
    thread: after the tensors of a few runs, more memory is free in them than in use.
    """
    configure = getattr(ctypes.CDLL(None), "mallopt", None)
    if configure is not None:
        configure(_M_ARENA_MAX, 1)
        configure(_M_MMAP_THRESHOLD, _LARGE)
        configure(_M_TRIM_THRESHOLD, _LARGE)


def private_bytes(pid: int) -> int:
    """Return the memory of a process that is not backed by a file, in bytes. Raises OSError if it has ended."""
    # As bytes: to decode them as ASCII, each new worker would import the codec.
    fields = Path(f"/proc/{pid}/statm").read_bytes().split()
    return (int(fields[1]) - int(fields[2])) * _PAGE


def private_bytes_below(pid: int) -> int:
    """Return the private memory of a process and of its descendants, in bytes; 0 if it has ended."""
    children = _children()
    total, left = 0, [pid]
    while left:
        here = left.pop()
        left += children.get(here, ())
        with suppress(OSError, ValueError, IndexError):
            total += private_bytes(here)
    return total


def _children() -> dict[int, list[int]]:
    """Return the running child processes of each process."""
    found: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                # The command name, in parentheses, may contain any characters.
                _, _, rest = Path(entry.path, "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
                found.setdefault(int(rest.split()[1]), []).append(int(entry.name))
    return found


class MemoryTimeline:
    """Samples the private memory of this process and of its workers within a `with` block.

    `note` marks the end of a step. If the system does not provide the data, there are no samples.
    """

    def __init__(self, interval: float = 0.05) -> None:
        self._interval = interval
        self._samples: list[tuple[float, int, int]] = []
        self._steps: list[tuple[float, str]] = []
        self._started = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()
        self._sample()

    def note(self, step: str) -> None:
        """Mark the end of a step."""
        self._steps.append((self._now(), step))

    def to_json(self) -> dict[str, Any]:
        """Return plain values: `samples` are seconds since the start, bytes of this process, and of its workers."""
        return {
            "interval": self._interval,
            "peak": max((own + workers for _, own, workers in self._samples), default=0),
            "samples": [list(sample) for sample in self._samples],
            "steps": [list(step) for step in self._steps],
        }

    def _now(self) -> float:
        return round(time.monotonic() - self._started, 3)

    def _watch(self) -> None:
        while not self._done.wait(self._interval):
            self._sample()

    def _sample(self) -> None:
        try:
            own = private_bytes(os.getpid())
        except (OSError, ValueError):
            return
        workers = 0
        for pid in client.processes():
            try:
                workers += private_bytes(pid)
            except (OSError, ValueError):
                continue
        self._samples.append((self._now(), own, workers))
        if len(self._samples) > _MOST:
            del self._samples[1::2]
            self._interval *= 2
