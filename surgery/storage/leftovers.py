"""Recognize temporary files of killed processes, and remove them on the next write.

Whatever is under a passing name is locked by the process that writes it. The kernel lets go of a lock when the
process ends, however it ends. So a passing name whose lock is free is a leftover, and one whose lock is held belongs
to somebody at work. A lock is taken right after the file is made: who finds the file in between takes the lock first,
removes the file, and its maker sees that and makes another one. Where a file system has no locks, nothing is removed.

A process that ends in order removes its own: it notes each name before there is anything under it, and until after that
is gone, so that no signal comes in between.
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
_LONGEST: Final = 200  # bytes of the name of a target, so that what is added fits into the 255 of a file's name

Stamp = list[int]
"""What a file is known by under whatever name: its inode, its bytes, and when they were written."""


_begun: Final[dict[Path, int]] = {}
"""What may be under a passing name, with the process that began it."""


def begin(path: Path) -> Path:
    """Note what is about to be made, so that it goes away when the process ends."""
    _begun[path] = os.getpid()
    return path


def gone(path: Path) -> None:
    """Note that it is gone, or in place."""
    _begun.pop(path, None)


@atexit.register
def _remove_begun() -> None:
    """Remove what was begun and is still there: an interrupt came before its owner had it, or while it went."""
    for path, owner in list(_begun.items()):
        if owner == os.getpid():
            with suppress(OSError):
                _remove(path)
            gone(path)


def _remove(path: Path) -> None:
    """Remove what is under a passing name, of what kind it may be."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        return
    if path.name.endswith(_JOURNAL):
        with suppress(FileNotFoundError), path.open("rb") as file:
            _finish(path, file.fileno())
    path.unlink(missing_ok=True)


def passing_name(target: str, suffix: str = ".tmp") -> str:
    """Return a name that no other file has, for what is to become `target`."""
    return f".{os.fsdecode(os.fsencode(target)[:_LONGEST])}.surgery-{secrets.token_hex(4)}{suffix}"


def create(target: Path, suffix: str = ".tmp") -> tuple[Path, int]:
    """Make a locked file next to its target; return its path and a descriptor. Raises OSError."""
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
    """Make a locked folder that is gone in the end, with all that was not moved out of it. Raises OSError."""
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
    """Lock a new file for as long as this process has it open; False when somebody has removed it before."""
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX)
    return os.fstat(fd).st_nlink > 0


@contextmanager
def _abandoned(path: Path) -> Iterator[int | None]:
    """Open and lock what no living process holds, and give its descriptor; None where one does, or nobody knows."""
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
    """Remove from a folder what killed processes were writing there."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if _PASSING.fullmatch(entry.name)]
    except OSError:
        return
    # Journals last: what they say depends on nothing that is removed here, but a model in place must be seen whole.
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


class Journal:
    """Notes which data files a model on its way to `target` brings along.

    They take their names before the model that needs them takes its own. In the end, or after the process was killed
    the next time that somebody writes into the folder, those go away that the model in place does not name.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._noted: list[tuple[str, Stamp]] = []
        self._path, self._fd = create(target, _JOURNAL)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            _remove_unnamed(self._target, self._noted)
            self._path.unlink(missing_ok=True)
            gone(self._path)
        finally:
            os.close(self._fd)

    def note(self, name: str, fd: int) -> None:
        """Note a file that is complete, and about to take its name."""
        stamp = _stamp(os.fstat(fd))
        lines = _line([name, stamp]) if self._noted else _line(self._target.name) + _line([name, stamp])
        self._noted.append((name, stamp))
        os.write(self._fd, lines)
        os.fsync(self._fd)


def _line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _stamp(found: os.stat_result) -> Stamp:
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def _finish(journal: Path, fd: int) -> None:
    """Remove what a journal notes and no model needs; the journal too, once there is nothing more to remove."""
    with open(fd, "rb", closefd=False) as file:
        lines = file.read().split(b"\n")[:-1]  # of a line that was cut off nothing was renamed yet
    try:
        target, *noted = map(json.loads, lines)
        done = _remove_unnamed(journal.with_name(target), noted)
    except (ValueError, TypeError):
        done = True
    if done:
        journal.unlink(missing_ok=True)


def _remove_unnamed(target: Path, noted: list[tuple[str, Stamp]]) -> bool:
    """Remove the noted data files that the model in place does not name; return whether it names none of them."""
    names = [name for name, stamp in noted if _is(target.with_name(name), stamp)]
    needed = [name for name in names if _occurs(target, name)]
    for name in names:
        if name not in needed:
            target.with_name(name).unlink(missing_ok=True)
    return not needed


def _is(path: Path, stamp: Stamp) -> bool:
    try:
        return _stamp(path.lstat()) == stamp
    except OSError:
        return False


def _occurs(model: Path, name: str) -> bool:
    """Return whether a name occurs in a file anywhere, which is more than naming a file, and never less."""
    try:
        with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(os.fsencode(name)) >= 0
    except FileNotFoundError:
        return False
    except ValueError:  # an empty file cannot be mapped
        return False


class ScratchFolder:
    """A folder for temporary files, locked as long as its process lives; those of killed processes go away first."""

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
        """Lock the new folder; False when somebody has removed it before, who took it for a leftover."""
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
        """Delete the folder with all that is in it."""
        _remove_scratch(self.path)
        gone(self.path)
        self.release()

    def release(self) -> None:
        """Let go of the lock, and leave the folder: a fork must not delete it under its parent."""
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
                    folder.rmdir()  # which fails where there is anything in it


def _remove_scratch(folder: Path) -> None:
    """Delete a folder, by its lock last: what is left when that is interrupted is known for what it is."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != _LOCK:
                path.unlink()
        (folder / _LOCK).unlink()
        folder.rmdir()
