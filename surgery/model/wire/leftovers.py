"""Recognize temporary files of killed processes, and remove them on the next write.

Every file with a temporary name is locked by the process that writes it. The kernel releases a lock when the process
ends, however it ends. So a temporary file that is not locked is a leftover, and a locked one is in use. The lock is
taken right after the file is created. If another process finds the file before that, it takes the lock and removes the
file; the creator detects this and creates another file. On file systems without locks, nothing is removed.

A process that ends normally removes its own files: it records each name before creating the file, and until after
removing it, so that a signal in between does no harm.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import mmap
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PASSING: Final = re.compile(r"\..+\.surgery-[0-9a-f]{8}\.(tmp|files)")
_JOURNAL: Final = ".files"
_SCRATCH: Final = "surgery-scratch-"
_SCRATCHES: Final = re.compile(f"{_SCRATCH}[a-z0-9_]{{8}}")
_LOCK: Final = "surgery.lock"
_LONGEST: Final = 200  # maximum bytes of the target name, so that the additions fit into the 255 bytes of a file name

Stamp = list[int]
"""The identity of a file under any name: its inode, size and modification time."""

Noted = tuple[str, Stamp, bool]
"""A recorded file: its name, its identity, and whether this is the name it is to have in the end."""


_begun: Final[dict[Path, int]] = {}
"""Temporary paths that may exist, with the process that created them."""


def begin(path: Path) -> Path:
    """Record a path that is about to be created, so that it is removed when the process ends; return it."""
    _begun[path] = os.getpid()
    return path


def gone(path: Path) -> None:
    """Record that a temporary path was removed or moved into place."""
    _begun.pop(path, None)


@atexit.register
def _remove_begun() -> None:
    """Remove recorded paths that still exist, because an interrupt came during their creation or removal."""
    for path, owner in list(_begun.items()):
        if owner == os.getpid():
            with suppress(OSError):
                _remove(path)
            gone(path)


def _remove(path: Path) -> None:
    """Remove a temporary file, journal or folder."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        return
    if path.name.endswith(_JOURNAL):
        with suppress(FileNotFoundError), path.open("rb") as file:
            _finish(path, file.fileno())
        return
    path.unlink(missing_ok=True)


def passing_name(target: str, suffix: str = ".tmp") -> str:
    """Return a unique temporary name for a file that will become `target`."""
    return f".{os.fsdecode(os.fsencode(target)[:_LONGEST])}.surgery-{secrets.token_hex(4)}{suffix}"


def create(target: Path, suffix: str = ".tmp") -> tuple[Path, int]:
    """Create a locked file next to its target; return its path and a descriptor. Raises OSError."""
    while True:
        path = begin(target.with_name(passing_name(target.name, suffix)))
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError:
            gone(path)
            raise
        if _hold(fd):
            return path, fd
        os.close(fd)
        gone(path)


@contextmanager
def passing_folder(parent: Path, name: str) -> Iterator[Path]:
    """Create a locked folder that is removed at the end, with everything that was not moved out. Raises OSError."""
    sweep(parent)
    path = begin(parent / passing_name(name))
    fd = -1
    try:
        path.mkdir()
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        _hold(fd)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        gone(path)
        if fd >= 0:
            os.close(fd)


def _hold(fd: int) -> bool:
    """Lock a new file while this process has it open; return False if another process removed it before."""
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX)
    return os.fstat(fd).st_nlink > 0


@contextmanager
def _abandoned(path: Path) -> Iterator[int | None]:
    """Open and lock a path that no living process has locked, and yield its descriptor; None if that is not certain."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        found = os.fstat(fd)
        mine = found.st_uid == os.geteuid() and (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode))
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            mine = False
        yield fd if mine else None
    finally:
        os.close(fd)


def sweep(folder: Path) -> None:
    """Remove the temporary files of killed processes from a folder."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if _PASSING.fullmatch(entry.name)]
    except OSError:
        return
    # Journals come last: they do not depend on the files removed here, but the current model must be complete.
    for name in sorted(names, key=lambda name: name.endswith(_JOURNAL)):
        path = folder / name
        with suppress(OSError), _abandoned(path) as fd:
            if fd is None:
                continue
            if name.endswith(_JOURNAL):
                _finish(path, fd)
            elif stat.S_ISDIR(os.fstat(fd).st_mode):
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


class LeftoverJournal:
    """Records the data files of a model that is being written to `target`.

    Data files are moved into place before the model that refers to them. At the end, or at the next write to the folder
    if the process was killed, the recorded files are removed that the current model does not refer to. A journal stays
    as long as the model refers to a file that does not have its final name.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._noted: list[Noted] = []
        self._path, self._fd = create(target, _JOURNAL)

    def __enter__(self) -> LeftoverJournal:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if _remove_unnamed(self._target, self._noted):
                self._path.unlink(missing_ok=True)
            gone(self._path)
        finally:
            os.close(self._fd)

    def note(self, name: str, fd: int, *, is_final: bool) -> None:
        """Record a file that is complete and about to be moved into place."""
        noted = (name, _stamp(os.fstat(fd)), is_final)
        lines = _line(noted) if self._noted else _line(self._target.name) + _line(noted)
        self._noted.append(noted)
        os.write(self._fd, lines)
        os.fsync(self._fd)


def _line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _stamp(found: os.stat_result) -> Stamp:
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def _finish(journal: Path, fd: int) -> None:
    """Remove the recorded files that no model needs, and the journal if there will be none to remove."""
    with open(fd, "rb", closefd=False) as file:
        lines = file.read().split(b"\n")[:-1]  # the file of a truncated line was not renamed yet
    try:
        target, *noted = map(json.loads, lines)
        done = _remove_unnamed(journal.with_name(target), noted)
    except (ValueError, TypeError):
        done = True
    if done:
        journal.unlink(missing_ok=True)


def _remove_unnamed(target: Path, noted: list[Noted]) -> bool:
    """Remove the recorded data files that the current model does not name.

    Return whether those that remain have their final names.
    """
    found = [(name, is_final) for name, stamp, is_final in noted if _is(target.with_name(name), stamp)]
    needed = {name for name, _ in found if _occurs(target, name)}
    for name, _ in found:
        if name not in needed:
            target.with_name(name).unlink(missing_ok=True)
    return all(is_final for name, is_final in found if name in needed)


def _is(path: Path, stamp: Stamp) -> bool:
    try:
        return _stamp(path.lstat()) == stamp
    except OSError:
        return False


def _occurs(model: Path, name: str) -> bool:
    """Return whether a name occurs anywhere in a file, which is true at least whenever the model refers to the file."""
    try:
        with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(os.fsencode(name)) >= 0
    except FileNotFoundError:
        return False
    except ValueError:  # an empty file cannot be mapped
        return False


class ScratchFolder:
    """A folder for temporary files, locked while its process lives; folders of killed processes are removed first."""

    def __init__(self) -> None:
        _sweep_scratch(Path(tempfile.gettempdir()))
        while True:
            self.path = begin(Path(tempfile.gettempdir()).resolve() / f"{_SCRATCH}{secrets.token_hex(4)}")
            try:
                self.path.mkdir(mode=0o700)
                if self._lock():
                    return
            except OSError:
                gone(self.path)
                raise
            gone(self.path)

    def _lock(self) -> bool:
        """Lock the new folder; return False if another process removed it before, as a leftover."""
        try:
            self._fd = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return False
        if _hold(self._fd):
            return True
        os.close(self._fd)
        return False

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Delete the folder with its contents."""
        _remove_scratch(self.path)
        gone(self.path)
        self.release()

    def release(self) -> None:
        """Release the lock without deleting the folder: a fork must not delete the folder of its parent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _sweep_scratch(parent: Path) -> None:
    with suppress(OSError), os.scandir(parent) as entries:
        folders = [Path(entry.path) for entry in entries if _SCRATCHES.fullmatch(entry.name)]
        for folder in folders:
            with suppress(OSError), _abandoned(folder / _LOCK) as fd:
                if fd is not None:
                    _remove_scratch(folder)
                elif not (folder / _LOCK).exists():
                    folder.rmdir()  # fails if the folder is not empty


def _remove_scratch(folder: Path) -> None:
    """Delete a folder, its lock last, so that an interrupted deletion leaves a recognizable leftover."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != _LOCK:
                path.unlink()
        (folder / _LOCK).unlink()
        folder.rmdir()
