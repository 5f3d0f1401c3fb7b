"""Copy objects to local files and back, atomically."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from surgery.base.errors import OutputError, TransferError
from surgery.model.remote.filesystems import opened
from surgery.model.remote.remote_errors import is_passing, reported
from surgery.model.remote.urls import protocol, shown

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

T = TypeVar("T")

_PAUSES: Final = (0.5, 2.0)
"""Seconds before the second and the third attempt, after a connection broke."""

_DEFERRING: Final = ("s3", "s3a", "gs", "gcs", "memory")
"""Protocols whose files are uploaded first, and appear when they are committed."""

_READ_ONLY: Final = ("http", "https", "zip", "tar", "libarchive", "github", "gist", "git", "data", "reference")
_STEP: Final = 1 << 22


def exists(url: str, *, output: bool = False) -> bool:
    """Return whether an object exists. Raises SurgeryError if that cannot be determined."""
    files, path = opened(url, output=output)
    with reported(url, "reached", output=output):
        files.invalidate_cache()
        return bool(_again(lambda: files.exists(path)))


def fetch(url: str, target: Path) -> None:
    """Copy an object to a local file, which is then complete, or does not exist.

    Retries after a broken connection. Raises ModelFileError if the object does not exist or may not be read, and
    TransferError if the connection breaks each time.
    """
    files, path = opened(url)
    part = target.with_name(f"{target.name}.part")
    try:
        with reported(url, "read"):
            _again(lambda: files.get_file(path, str(part)))
            if not part.is_file():
                raise IsADirectoryError
        with reported(url, "read"):
            _require_size(files, path, part, url)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _require_size(files: AbstractFileSystem, path: str, part: Path, url: str) -> None:
    """Raise TransferError if the number of received bytes differs from the object size; http checks it itself."""
    if protocol(url) in ("http", "https"):
        return
    size = files.info(path).get("size")
    found = part.stat().st_size
    if size is not None and size != found:
        raise TransferError(f"{found:,} of its {size:,} bytes arrived", where=shown(url), todo="try again")


def check_writable(url: str, *, force: bool = False) -> None:
    """Raise OutputError if an object cannot be written: its protocol is read-only, or it exists and `force` is off."""
    require_writing(url)
    try:
        found = exists(url, output=True)
    except OutputError as error:
        # Write permission does not imply read permission.
        if not force or not isinstance(error.__cause__, PermissionError):
            raise
        found = False
    if found and not force:
        raise OutputError("the object exists", where=shown(url), todo="name another one, or use --force")


def require_writing(url: str) -> None:
    """Raise OutputError for a protocol that is read-only."""
    if protocol(url) in _READ_ONLY:
        raise OutputError(f"'{protocol(url)}' is read-only", where=shown(url), todo="write to s3, gs, az or a file")


def put(contents: Sequence[tuple[Path, str]], *, force: bool = False) -> None:
    """Upload files in this order; the file that refers to the others must come last.

    Each object appears completely, or not at all. With s3, gs and memory, all are uploaded before the first one
    appears, so that a broken connection changes nothing. The URLs have the same protocol. Raises OutputError and
    TransferError.
    """
    for _, url in contents:
        check_writable(url, force=force)
    if not contents:
        return
    if all(protocol(url) in _DEFERRING for _, url in contents):
        _put_together(contents)
        return
    for source, url in contents:
        files, path = opened(url, "written", output=True)
        with reported(url, "written", output=True):
            files.put_file(str(source), path)


def _put_together(contents: Sequence[tuple[Path, str]]) -> None:
    """Upload files that appear one after another when all are complete."""
    files, _ = opened(contents[0][1], "written", output=True)
    last = contents[-1][1]
    with reported(last, "written", output=True), files.transaction:
        for source, url in contents:
            with source.open("rb") as data, files.open(opened(url)[1], "wb") as target:
                shutil.copyfileobj(data, target, _STEP)
    with suppress(Exception):
        files.invalidate_cache()


def _again(call: Callable[[], T]) -> T:
    """Return the result of a call, which is repeated after a pause if a connection broke."""
    for pause in _PAUSES:
        try:
            return call()
        except Exception as error:
            if not is_passing(error):
                raise
            time.sleep(pause)
    return call()
