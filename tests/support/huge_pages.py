"""Huge pages for the memory of a process that lives long, and is forked often.

A fork copies the table of pages of its parent, entry by entry: 2 ms for a server of workers, 5 ms for pytest after it
has collected the tests. With huge pages, there are fewer entries.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

_COLLAPSE = 25
"""`MADV_COLLAPSE` of Linux 6.1; older kernels refuse it."""
_SIZE = 2 << 20


def merge() -> None:
    """Merge the pages of this process that belong to no file into huge ones, as far as the system can."""
    maps = Path("/proc/self/maps")
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if advise is None or not maps.is_file():
        return
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in maps.read_text(encoding="utf-8").splitlines():
        place, access, _, _, inode, *name = line.split()
        if access == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            start, end = (int(number, 16) for number in place.split("-"))
            for at in range(-(-start // _SIZE) * _SIZE, end - _SIZE + 1, _SIZE):
                advise(at, _SIZE, _COLLAPSE)
