"""Models in local folders and globs. What cannot be read is reported, because it may contain models."""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

SUFFIX: Final = ".onnx"
_WILD: Final = frozenset("*?[")
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

OnError = Callable[[OSError], None]
"""Receives the error of a folder or a file that cannot be read."""


def is_glob(source: str) -> bool:
    """Return whether a path has wildcards, and is not the path of an existing file or folder."""
    return is_wild(source) and why_unusable(source) != ""


def is_wild(text: str) -> bool:
    """Return whether a text has wildcards."""
    return bool(_WILD.intersection(text))


def is_folder(path: str | Path) -> bool:
    """Return whether a path is that of a folder that can be found."""
    try:
        return stat.S_ISDIR(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


def why_unusable(path: str | Path) -> str:
    """Return why a file or folder cannot be used, or an empty text if it can be found."""
    try:
        Path(path).stat()
    except OSError as error:
        return "no such file or folder" if error.errno in _ABSENT else f"cannot be read: {error.strerror}"
    except ValueError:  # a null character
        return "no such file or folder"
    return ""


def below(folder: Path, on_error: OnError) -> list[Path]:
    """Return the models in a folder and in all folders below it; linked folders are not searched."""
    found = []
    for path, names in _walk(folder, on_error):
        found += [path / name for name in names if name.endswith(SUFFIX) and _is_file(path / name, on_error)]
    return sorted(found)


def split_glob(source: str) -> tuple[Path, Sequence[str]]:
    """Return the folder before the first wildcard of a glob, and the other parts."""
    parts = Path(source).parts
    number = next(number for number, part in enumerate(parts) if is_wild(part))
    return Path(*parts[:number]), parts[number:]


def matches(folder: Path, parts: Sequence[str], on_error: OnError) -> list[Path]:
    """Return the models that match a glob below a folder, and those in matching folders; `**` matches any folders."""
    found: set[Path] = set()
    for path in _expand(folder, parts, on_error):
        if is_folder(path):
            found.update(below(path, on_error))
        elif path.suffix == SUFFIX:
            found.add(path)
    return sorted(found)


def _expand(folder: Path, parts: Sequence[str], on_error: OnError) -> Iterator[Path]:
    """Yield the paths below a folder that match the parts of a glob, some of them more than once."""
    if not parts:
        yield folder
        return
    first, *rest = parts
    if first == "**":
        for path, _ in _walk(folder, on_error):
            yield from _expand(path, rest, on_error)
    elif is_wild(first):
        for name in fnmatch.filter(_names(folder, on_error), first):
            yield from _expand(folder / name, rest, on_error)
    elif _exists(folder / first, on_error):
        yield from _expand(folder / first, rest, on_error)


def _walk(folder: Path, on_error: OnError) -> Iterator[tuple[Path, list[str]]]:
    """Yield a folder and those below it, each with the names of its files."""
    for path, _, names in os.walk(folder, onerror=lambda error: _report(error, on_error)):
        yield Path(path), names


def _names(folder: Path, on_error: OnError) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except OSError as error:
        _report(error, on_error)
        return []


def _exists(path: Path, on_error: OnError) -> bool:
    try:
        path.lstat()
    except OSError as error:
        _report(error, on_error)
        return False
    return True


def _is_file(path: Path, on_error: OnError) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        _report(error, on_error)
        return False


def _report(error: OSError, on_error: OnError) -> None:
    if error.errno not in _ABSENT:
        on_error(error)
