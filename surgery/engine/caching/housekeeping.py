"""Statistics and pruning of a cache. Runs may read and write it at the same time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from surgery.base.errors import UsageError
from surgery.engine.caching.cache_folder import PASSING, CacheFolder
from surgery.engine.registry.options import parse_size

MOST_BYTES: Final = 10_000_000_000
"""The maximum size of a cache, unless set by $SURGERY_CACHE_SIZE."""
_ABANDONED: Final = 3600.0  # seconds after which a file that is not in place is considered abandoned


@dataclass(frozen=True)
class Contents:
    """The contents of a cache, in numbers.

    `sets` counts sets of runs with the same original, settings and versions. `found` and `missed` count, over all runs,
    the steps with a known outcome and the steps that had to run.
    """

    folder: str
    bytes: int
    limit: int
    sets: int
    entries: int
    tensors: int
    tensor_bytes: int
    found: int
    missed: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON report of `surgery cache info`."""
        return {"format_version": 1, **vars(self)}


@dataclass(frozen=True)
class Pruned:
    """The removed files and bytes, and the remaining bytes."""

    files: int
    bytes: int
    left: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON report of `surgery cache prune`."""
        return {"format_version": 1, **vars(self)}


@dataclass(frozen=True)
class _CacheFile:
    path: Path
    bytes: int
    used: float


def limit() -> int:
    """Return the maximum size of a cache in bytes, from $SURGERY_CACHE_SIZE ("500MB") if set. Raises UsageError."""
    text = os.environ.get("SURGERY_CACHE_SIZE")
    if not text:
        return MOST_BYTES
    try:
        return int(parse_size(text))
    except ValueError as error:
        raise UsageError(f"SURGERY_CACHE_SIZE: {error}") from error


def contents(folder: CacheFolder) -> Contents:
    """Return the statistics of a cache."""
    files = list(_files(folder))
    tensors = [one for one in files if one.path.is_relative_to(folder.tensors)]
    entries = [one for one in files if one.path.is_relative_to(folder.runs)]
    found, missed = _uses(folder)
    return Contents(
        folder=str(folder.path),
        bytes=sum(one.bytes for one in files),
        limit=limit(),
        sets=len({one.path.parent for one in entries}),
        entries=len(entries),
        tensors=len(tensors),
        tensor_bytes=sum(one.bytes for one in tensors),
        found=found,
        missed=missed,
    )


def prune(folder: CacheFolder, *, older_than: float | None = None, max_bytes: int | None = None) -> Pruned:
    """Remove files not used for `older_than` seconds; then the least recently used ones, down to `max_bytes`."""
    now, gone, gone_bytes, kept = time.time(), 0, 0, []
    for one in sorted(_files(folder), key=lambda one: one.used):
        age = now - one.used
        is_abandoned = one.path.name.startswith(PASSING) and age > _ABANDONED
        is_old = older_than is not None and age > older_than
        if (is_abandoned or is_old) and _is_removed(one):
            gone, gone_bytes = gone + 1, gone_bytes + one.bytes
        else:
            kept.append(one)
    left = sum(one.bytes for one in kept)
    for one in kept:
        if max_bytes is None or left <= max_bytes:
            break
        # Files being written are about to be used.
        if not one.path.name.startswith(PASSING) and _is_removed(one):
            gone, gone_bytes, left = gone + 1, gone_bytes + one.bytes, left - one.bytes
    _remove_empty(folder)
    return Pruned(gone, gone_bytes, left)


def remove_all(folder: CacheFolder) -> Pruned:
    """Remove everything, including the counts of found and missed steps."""
    pruned = prune(folder, max_bytes=-1)
    with suppress(OSError):
        folder.uses.unlink()
    return pruned


def bound(folder: CacheFolder) -> None:
    """Prune a cache that exceeds its limit to nine tenths of it."""
    most = limit()
    if sum(one.bytes for one in _files(folder)) > most:
        prune(folder, max_bytes=most * 9 // 10)


def _files(folder: CacheFolder) -> Iterator[_CacheFile]:
    waiting = [str(folder.root)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                    continue
                with suppress(OSError):
                    stat = entry.stat(follow_symlinks=False)
                    if entry.path != str(folder.uses):
                        yield _CacheFile(Path(entry.path), stat.st_size, stat.st_mtime)


def _is_removed(one: _CacheFile) -> bool:
    """Remove a file; return whether it is gone, also if another process was faster."""
    try:
        one.path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _remove_empty(folder: CacheFolder) -> None:
    """Remove empty folders. Writers create them again."""
    for parent in (folder.runs, folder.tensors):
        for place in parent.iterdir() if parent.is_dir() else ():
            with suppress(OSError):
                place.rmdir()


def _uses(folder: CacheFolder) -> tuple[int, int]:
    found = missed = 0
    with suppress(OSError):
        for line in folder.uses.read_text(encoding="ascii", errors="replace").splitlines():
            numbers = line.split()
            if len(numbers) == 2 and all(number.isdigit() for number in numbers):
                found, missed = found + int(numbers[0]), missed + int(numbers[1])
    return found, missed
