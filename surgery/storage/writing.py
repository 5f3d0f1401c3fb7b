"""Weights in another order, written to the scratch file by a worker process while this one continues.

A transposed weight is a view over a mapped file. To turn it takes as long as to copy it, in which a pass can do
something else: only who reads it has to wait. That is whoever looks at that part of the scratch file (`Source`), each
call of a worker with a model that names the file, and each fork of this process.
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

from surgery.errors import WorkerError
from surgery.workers import Worker, before_call

Array = np.ndarray[Any, Any]

_ROWS: Final = 64  # read at once by a transposition, so that a page is not read for one element
_FEWEST_ROWS: Final = 16  # of float32 they fill a cache line
_BUFFER: Final = 4 << 20  # bytes of rows that are read at once, while they are more than the fewest
_GAP: Final = 16  # elements between columns that are read at once: a power of two apart, they would share a cache line
_SIZES: Final = (1, 2, 4, 8)  # bytes of an element
_LEAST: Final = 1 << 20  # bytes: below, to tell a worker is not worth it


def rows_of(view: Array) -> Iterator[Array]:
    """Yield an array in the order of its elements, some rows at a time, which hold until the next are asked for."""
    return _turned(view) if view.T.flags.c_contiguous else _in_rows(view)


def _in_rows(view: Array) -> Iterator[Array]:
    return (np.ascontiguousarray(view[row : row + _ROWS]) for row in range(0, len(view), _ROWS))


def _turned(view: Array) -> Iterator[Array]:
    """Yield some rows at a time of an array whose columns are in memory one after the other.

    They are copied as they lie, and turned where the cache holds them: that takes a third of the time.
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
    """A mapped file: its path, its device and inode there, and its bytes."""

    path: str
    inode: tuple[int, int]
    data: memoryview


class Moved(NamedTuple):
    """Elements in a file, in the order that they are to have: `strides` as numpy has them, `size` bytes each."""

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
        """Find the elements of an array in one of these mapped files; None where it is not worth a worker's while."""
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
    """What is still to be written to a file, in the order in which it was asked for."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._jobs: deque[tuple[int, int, Moved, Array]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        _everything.add(self)

    def begin(self, moved: Moved, view: Array, at: int) -> None:
        """Write elements, which are those of a view, at an offset of the file, later."""
        with self._changed:
            self._jobs.append((at, at + moved.length, moved, view))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()

    def wait(self, start: int = 0, stop: float = math.inf) -> None:
        """Wait until a range of the file is there. Raises what kept something from being written, OSError mostly."""
        if self._jobs:
            with self._changed:
                self._changed.wait_for(lambda: not any(low < stop and start < high for low, high, *_ in self._jobs))
        if self._error is not None:
            raise self._error

    def wait_for_use(self, arguments: object) -> None:
        """Wait for everything, if it is about a model that names the file."""
        if self._jobs and _names(arguments, self._path.lstrip("/").encode()):
            self.wait()

    def stop(self) -> None:
        """Leave out what was not begun: nobody wants the file any more."""
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
                        worker.call("surgery.storage.writing:write", **moved._asdict(), target=self._path, at=at)
                except WorkerError:
                    calls = False  # what it could not do is done here, or fails here
                try:
                    if not calls:
                        _pour(view, self._path, at)
                except Exception as error:
                    self._error = error
                with self._changed:
                    self._jobs.popleft()
                    self._changed.notify_all()


def write(
    path: str, inode: list[int], offset: int, size: int, shape: list[int], strides: list[int], target: str, at: int
) -> None:
    """Write elements of one file to another that exists, see `Moved`. Raises OSError, also for another file there."""
    view: Array = np.ndarray(tuple(shape), f"u{size}", _mapped(path, *inode), offset, tuple(strides))
    _pour(view, target, at)


def _pour(view: Array, target: str, at: int) -> None:
    """Write the elements of an array at an offset of a file that exists. Raises OSError."""
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
    with open(path, "rb") as file:  # noqa: PTH123 - not worth a path for each weight
        found = os.fstat(file.fileno())
        if (found.st_dev, found.st_ino) != (device, number):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _names(what: object, text: bytes) -> bool:
    """Return whether a text is in the arguments of a call."""
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
    """Wait before a fork, whose child has no thread to wait for. What fails is told to who reads it."""
    for writing in list(_everything):
        with suppress(Exception):
            writing.wait()


before_call(_wait_for_use)
os.register_at_fork(before=_wait_for_all)
