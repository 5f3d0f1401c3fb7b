"""Weights in another element order, written to the scratch file by a worker process while this process continues.

A transposed weight is a view over a mapped file. Transposing it takes as long as copying it; meanwhile a pass can
continue, and only readers have to wait: accesses to that part of the scratch file (`MappedFile`), calls of a worker
with a model that refers to the file, and forks of this process.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from surgery.base.errors import WorkerError
from surgery.base.workers import Worker, before_call

Array = np.ndarray[Any, Any]

_ROWS: Final = 64  # rows read at once by a transposition, so that a page is not read for a single element
_FEWEST_ROWS: Final = 16  # of float32 they fill a cache line
_BUFFER: Final = 4 << 20  # maximum bytes of the rows that are read at once, if they are more than the fewest
_GAP: Final = 16  # elements between buffered columns: a power of two apart, they would share a cache line
_SIZES: Final = (1, 2, 4, 8)  # bytes of an element
_LEAST: Final = 1 << 20  # bytes; calling a worker does not pay off below


def rows_of(view: Array) -> Iterator[Array]:
    """Yield an array in element order, some rows at a time; each block is valid until the next one is requested."""
    return _turned(view) if view.T.flags.c_contiguous else _in_rows(view)


def _in_rows(view: Array) -> Iterator[Array]:
    return (np.ascontiguousarray(view[row : row + _ROWS]) for row in range(0, len(view), _ROWS))


def _turned(view: Array) -> Iterator[Array]:
    """Yield some rows at a time of an array that is column-major in memory.

    They are copied in memory order first, and transposed in the cache, which takes a third of the time.
    """
    count = max(_FEWEST_ROWS, min(_ROWS, _BUFFER // (math.prod(view.shape[1:]) * view.itemsize or 1)))
    columns = np.empty((*view.shape[:0:-1], count + _GAP), view.dtype).T
    turned = np.empty((count, *view.shape[1:]), view.dtype)
    for start in range(0, len(view), count):
        rows = view[start : start + count]
        held, result = columns[: len(rows)], turned[: len(rows)]
        held[...] = rows
        result[...] = held
        yield result


class Mapped(NamedTuple):
    """A mapped file: its path, its device and inode, and its bytes."""

    path: str
    inode: tuple[int, int]
    data: memoryview


class Moved(NamedTuple):
    """Elements in a file, in the wanted order: `strides` as in NumPy, `size` in bytes per element."""

    path: str
    inode: tuple[int, int]
    offset: int
    size: int
    shape: list[int]
    strides: list[int]

    @property
    def length(self) -> int:
        """The number of bytes."""
        return math.prod(self.shape) * self.size

    @classmethod
    def of(cls, view: Array, files: Iterable[Mapped]) -> Moved | None:
        """Find the elements of an array in one of these mapped files; return None if a worker does not pay off."""
        if view.nbytes < _LEAST or view.itemsize not in _SIZES or min(view.strides) < 0 or sys.byteorder != "little":
            return None
        first = view.__array_interface__["data"][0]
        last = first + sum((extent - 1) * stride for extent, stride in zip(view.shape, view.strides)) + view.itemsize
        for path, inode, data in files:
            if data.nbytes:
                start = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
                if start <= first and last <= start + data.nbytes:
                    return cls(path, inode, first - start, view.itemsize, list(view.shape), list(view.strides))
        return None


class Writing:
    """The pending writes to a file, in the order of the requests."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._jobs: deque[tuple[int, int, Moved, Array]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        _everything.add(self)

    def begin(self, moved: Moved, view: Array, at: int) -> None:
        """Schedule writing the elements of a view at an offset of the file."""
        with self._changed:
            self._jobs.append((at, at + moved.length, moved, view))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()

    def wait(self, start: int = 0, stop: float = math.inf) -> None:
        """Wait until a range of the file is written. Raises the error of a failed write, usually OSError."""
        if self._jobs:
            with self._changed:
                self._changed.wait_for(lambda: not any(low < stop and start < high for low, high, *_ in self._jobs))
        if self._error is not None:
            raise self._error

    def wait_for_use(self, arguments: object) -> None:
        """Wait for all pending writes if the arguments mention the file."""
        if self._jobs and _names(arguments, self._path.lstrip("/").encode()):
            self.wait()

    def stop(self) -> None:
        """Cancel writes that have not started, because the file is no longer needed."""
        with self._changed:
            while len(self._jobs) > 1:
                self._jobs.pop()

    def _run(self) -> None:
        with Worker(prepare=False) as worker:
            calls = True
            while True:
                with self._changed:
                    if not self._jobs:
                        self._thread = None
                        return
                    at, _, moved, view = self._jobs[0]
                try:
                    if calls:
                        worker.call("surgery.model.wire.reordering:write", **moved._asdict(), target=self._path, at=at)
                except WorkerError:
                    calls = False  # the write is repeated in this process, or fails here
                try:
                    if not calls:
                        _pour(view, self._path, at)
                except Exception as error:
                    if isinstance(error, OSError):
                        error.filename = error.filename or self._path
                    self._error = error
                with self._changed:
                    self._jobs.popleft()
                    self._changed.notify_all()


def write(
    path: str, inode: list[int], offset: int, size: int, shape: list[int], strides: list[int], target: str, at: int
) -> None:
    """Write elements of one file to another existing file, see `Moved`. Raises OSError, also if a file was replaced."""
    view: Array = np.ndarray(tuple(shape), f"u{size}", _mapped(path, *inode), offset, tuple(strides))
    _pour(view, target, at)


def _pour(view: Array, target: str, at: int) -> None:
    """Write the elements of an array at an offset of an existing file. Raises OSError."""
    file = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
    try:
        for rows in rows_of(view):
            rest = rows.view(np.uint8).data.cast("B")
            while rest:
                written = os.pwrite(file, rest, at)
                rest, at = rest[written:], at + written
    finally:
        os.close(file)


@lru_cache(1)
def _mapped(path: str, device: int, number: int) -> mmap.mmap:
    with open(path, "rb") as file:  # noqa: PTH123 - avoid a Path object for each weight
        found = os.fstat(file.fileno())
        if (found.st_dev, found.st_ino) != (device, number):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _names(what: object, text: bytes) -> bool:
    """Return whether the arguments of a call contain a text."""
    if isinstance(what, dict):
        return any(_names(item, text) for item in what.values())
    if isinstance(what, list | tuple):
        return any(_names(item, text) for item in what)
    if isinstance(what, str):
        return text in what.encode("utf-8", "surrogateescape")
    return isinstance(what, bytes | bytearray) and text in what


_everything: weakref.WeakSet[Writing] = weakref.WeakSet()


def _wait_for_use(arguments: object) -> None:
    for writing in list(_everything):
        writing.wait_for_use(arguments)


def _wait_for_all() -> None:
    """Wait before a fork, because the child has no writing thread. Failures are reported to readers."""
    for writing in list(_everything):
        with suppress(Exception):
            writing.wait()


before_call(_wait_for_use)
os.register_at_fork(before=_wait_for_all)
