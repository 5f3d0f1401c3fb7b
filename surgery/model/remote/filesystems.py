"""The file system of a URL, configured by the environment and the files of fsspec and of its packages."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError
from surgery.model.remote.remote_errors import EXTRA, PACKAGES, missing, reported
from surgery.model.remote.urls import protocol, scrubbed, shown

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


def opened(url: str, doing: str = "read", *, output: bool = False) -> tuple[AbstractFileSystem, str]:
    """Return the file system of a URL, and the path in it. Raises UsageError for an unknown protocol."""
    try:
        from fsspec.core import url_to_fs
        from fsspec.registry import available_protocols
    except ImportError as error:
        raise UsageError("URLs need the package fsspec", where=shown(url), todo=EXTRA) from error
    name = protocol(url)
    if name not in available_protocols():
        known = ", ".join(sorted({"s3", "gs", "az", "http", "https", "hf", "zip", "memory", "file"}))
        raise UsageError(
            f"unknown protocol '{name}'", where=shown(url), todo=f"use one that fsspec has, such as {known}"
        )
    with reported(url, doing, output=output):
        try:
            found: tuple[Any, str] = url_to_fs(url)
        except ValueError as error:
            raise UsageError(f"this is not a valid URL: {scrubbed(str(error))}", where=shown(url)) from error
        _require_package(name, url)
        return found


def _require_package(name: str, url: str) -> None:
    """Raise UsageError if a file system was created whose package is imported lazily and missing."""
    if PACKAGES.get(name) == "aiohttp" and find_spec("aiohttp") is None:
        raise missing(url)
