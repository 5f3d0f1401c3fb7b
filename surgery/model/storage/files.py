"""Atomic writing of files: a reader finds the old file or the new file, never a partial one."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from surgery.base.errors import ModelFileError, OutputError
from surgery.model.storage import staging
from surgery.model.wire.leftovers import create, gone, sweep
from surgery.model.wire.wire import Piece, Reference

if TYPE_CHECKING:
    from surgery.model.wire.weights import MappedFile, Weights

_BUFFER: Final = 1 << 22
_COPY_STEP: Final = 1 << 25

# Errors of the kernel if it cannot copy between two files; the bytes are then copied through memory.
_NO_KERNEL_COPY: Final = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF, errno.ETXTBSY}
)

_REMEDIES: Final = {
    errno.ENOSPC: "free some space, or name an output on another disk",
    errno.EDQUOT: "free some space, or name an output on another disk",
    errno.EFBIG: "use the layout 'external', or name an output on another disk",
    errno.EACCES: "name an output in a folder that you may write to",
    errno.EPERM: "name an output in a folder that you may write to",
    errno.EROFS: "name an output in a folder that you may write to",
    errno.ENOENT: "create the folder first",
    errno.ENAMETOOLONG: "use a shorter name",
}


@contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Convert an error of the operating system to an OutputError about `path`."""
    try:
        yield
    except OSError as error:
        todo = _REMEDIES.get(error.errno or 0)
        reason = error.strerror or str(error)
        raise OutputError(f"cannot be written: {reason}", where=str(path), todo=todo) from error


class NewFile:
    """A temporary file next to its target; `commit` moves it into place, and leaving the block without it removes it.

    Its mode is that of `like`, or of the replaced file, or else 0666 without the umask. Leftovers of killed processes
    in the folder are removed first.
    """

    def __init__(self, target: Path, like: Path | None = None) -> None:
        sweep(target.parent)
        self._path, self._fd = create(target)
        with suppress(FileNotFoundError):
            os.fchmod(self._fd, stat.S_IMODE((like or target).stat().st_mode))
        self._on_its_way = 0  # the bytes before this offset are being written to disk

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.discard()

    def discard(self) -> None:
        """Remove the file, unless it was committed."""
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            gone(self._path)
        self._close()

    @property
    def fd(self) -> int:
        """The descriptor of the open file."""
        return self._fd

    def seek(self, offset: int) -> None:
        """Continue writing at `offset`; skipped bytes read as zeros."""
        self._on_its_way = os.lseek(self._fd, offset, os.SEEK_SET)

    def write(self, parts: Iterable[Piece], weights: Weights) -> None:
        """Write bytes and copy ranges of files, in order."""
        small = bytearray()
        for part in parts:
            if not isinstance(part, Reference):
                small += part
            if isinstance(part, Reference) or len(small) >= _BUFFER:
                _write_all(self._fd, small)
                small = bytearray()  # a profiler that looks at frames keeps views of the old one
            if isinstance(part, Reference):
                source = weights.source(part.location)
                for done in range(0, part.length, _COPY_STEP):
                    copy_range(source, part.offset + done, min(part.length - done, _COPY_STEP), self._fd)
                    self._send()
        _write_all(self._fd, small)

    def _send(self) -> None:
        """Start writing the copied bytes to disk, so that the disk is not idle until everything is copied."""
        here = os.lseek(self._fd, 0, os.SEEK_CUR)
        if here - self._on_its_way >= _COPY_STEP:
            # The advice drops only clean pages from memory; dirty pages are kept, and their writeback starts.
            with suppress(OSError):
                os.posix_fadvise(self._fd, self._on_its_way, here - self._on_its_way, os.POSIX_FADV_DONTNEED)
            self._on_its_way = here

    def stream(self) -> BinaryIO:
        """Open the file a second time, for writers that need a file object."""
        return os.fdopen(os.dup(self._fd), "wb")

    def write_text(self, text: str) -> None:
        """Write text as UTF-8."""
        _write_all(self._fd, text.encode())

    def sync(self) -> None:
        """Make the bytes durable."""
        os.fsync(self._fd)

    def commit(self, target: Path) -> None:
        """Make the bytes durable, and replace `target` by the file."""
        self.sync()
        # It stays locked until it has its final name, and is recorded before, in case a signal arrives.
        _placed[target] = os.fstat(self._fd).st_ino
        self._path.replace(target)
        gone(self._path)
        self._close()
        sync_folder(target.parent)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_placed: dict[Path, int] = {}
"""The files that this process committed, in order, with their inodes."""


def written() -> list[Path]:
    """Return the files that this process committed and that still exist."""
    found = []
    for path, inode in _placed.items():
        with suppress(OSError):
            if path.stat().st_ino == inode and not staging.is_pending(path):
                found.append(path)
    return found


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write small text files, each completely or not at all, and none if one of them cannot be created.

    Existing files are replaced.
    """
    write_together({path: partial(NewFile.write_text, text=staging.shown(text)) for path, text in texts.items()})


def write_together(contents: Mapping[Path, Callable[[NewFile], None]], index: Path | None = None) -> None:
    """Write files; none is moved into place before all are complete. Raises OutputError.

    An old `index`, which lists the others, is removed before any of them is replaced, and the new one comes last: a
    killed process leaves no index of files that do not belong together.
    """
    with ExitStack() as stack:
        files = {}
        for path, write in contents.items():
            with output_errors(path):
                files[path] = stack.enter_context(NewFile(path))
                write(files[path])
        if index is not None:
            index.unlink(missing_ok=True)
            files[index] = files.pop(index)
        for path, file in files.items():
            with output_errors(path):
                file.commit(path)
    for path in contents:
        staging.publish([path])


def copy_range(source: MappedFile, offset: int, length: int, target: int) -> None:
    """Copy a range of a file to the current position of a new file, in the kernel if possible.

    Holes of the source remain holes. Raises ModelFileError if the source became shorter, and OSError if the target
    cannot be written.
    """
    begin = os.lseek(target, 0, os.SEEK_CUR)
    if offset + length > os.fstat(source.fd).st_size:
        raise ModelFileError(f"{length:,} bytes are missing at {offset:,}", where=str(source.path), todo="start again")
    for start, stop in _data_ranges(source.fd, offset, offset + length):
        os.lseek(target, begin + start - offset, os.SEEK_SET)
        _copy_data(source, start, stop - start, target)
    end = os.lseek(target, begin + length, os.SEEK_SET)
    if os.fstat(target).st_size < end:
        os.ftruncate(target, end)


def _data_ranges(fd: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range that are not holes; the whole range if the file system does not support holes."""
    while start < stop:
        try:
            begin = os.lseek(fd, start, os.SEEK_DATA)
            end = os.lseek(fd, begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            begin, end = start, stop
        if begin < stop:
            yield begin, min(end, stop)
        start = end


def _copy_data(source: MappedFile, offset: int, length: int, target: int) -> None:
    in_kernel = True
    while length > 0:
        try:
            if in_kernel:
                copied = os.copy_file_range(source.fd, target, length, offset)
            else:
                chunk = os.pread(source.fd, min(length, _BUFFER), offset)
                _write_all(target, chunk)
                copied = len(chunk)
        except OSError as error:
            if not in_kernel or error.errno not in _NO_KERNEL_COPY:
                raise
            in_kernel = False
            continue
        if copied == 0 and in_kernel:
            # Some file systems return 0 instead of an error if they do not support it.
            in_kernel = False
        elif copied == 0:
            raise ModelFileError(
                f"{length:,} bytes are missing at {offset:,}", where=str(source.path), todo="start again"
            )
        offset += copied
        length -= copied


def _write_all(target: int, data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable, if the file system supports it."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
