"""The files that a URL stands for: one object, the matches of a glob, or the contents of a folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from surgery.model.remote.filesystems import opened
from surgery.model.remote.remote_errors import reported
from surgery.model.remote.urls import protocol

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_VERSIONS: Final = ("ETag", "etag", "md5Hash", "content_md5", "Content-MD5", "blob_id", "oid", "CRC", "sha256")
_TIMES: Final = ("LastModified", "last_modified", "Last-Modified", "updated", "mtime", "created")


class RemoteObject(NamedTuple):
    """An object: its URL, its size in bytes if known, and a text that changes with its content."""

    url: str
    bytes: int | None
    version: str


def list_files(url: str, suffixes: Sequence[str] = (".onnx",)) -> list[RemoteObject]:
    """Return the objects that a URL stands for, sorted by URL.

    `*`, `**` and `[...]` in the path make it a glob, and so does `?` where it does not begin a query. A folder stands
    for the objects below it, at any depth, whose names end in one of `suffixes`. Raises ModelFileError if the URL does
    not exist, and returns an empty list for a glob without matches.
    """
    files, path = opened(url)
    with reported(url, "listed"):
        files.invalidate_cache()
        if _is_glob(url):
            found = files.glob(path, detail=True)
        else:
            info = _info(files, path, url)
            if info["type"] != "directory":
                return [_entry(url, info)]
            found = files.find(path, detail=True)
            found = {name: one for name, one in found.items() if name.endswith(tuple(suffixes))}
    entries = [_entry(_url(files, name, url), info) for name, info in found.items() if info["type"] == "file"]
    return sorted(entries)


def version(url: str) -> str:
    """Return a text that changes with the content of an object. Raises ModelFileError if the object does not exist."""
    files, path = opened(url)
    with reported(url, "read"):
        files.invalidate_cache()
        return _version(_info(files, path, url))


def _info(files: AbstractFileSystem, path: str, url: str) -> Mapping[str, Any]:
    """Return the properties of an object.

    fsspec raises FileNotFoundError for any failure of http, even if no server answers; its cause is raised instead.
    """
    try:
        return dict(files.info(path))
    except FileNotFoundError as error:
        if protocol(url) in ("http", "https") and isinstance(error.__cause__, Exception):
            raise error.__cause__ from None
        raise


def _is_glob(url: str) -> bool:
    marks = "*[" if protocol(url) in ("http", "https") else "*?["
    return any(mark in url.split("::")[0] for mark in marks)


def _url(files: AbstractFileSystem, name: str, given: str) -> str:
    """Return the URL of a listed name, with the user and the chain of `given`."""
    first, *rest = given.split("::")
    if re.match(r"https?://", name):
        return name
    place = urlsplit(first).netloc if protocol(given) not in ("zip", "tar", "memory") else ""
    if "@" not in place:
        path = _stripped(files, name)
    elif name.startswith("/"):
        path = f"{place}{name}"
    else:
        # abfs://container@account.dfs.core.windows.net/a.onnx is listed as container/a.onnx.
        path = f"{place}/{name.removeprefix(place.partition('@')[0] + '/')}"
    return "::".join([f"{protocol(given)}://{path}", *rest])


def _stripped(files: AbstractFileSystem, name: str) -> str:
    return str(files._strip_protocol(name)).lstrip("/")


def _entry(url: str, info: Mapping[str, Any]) -> RemoteObject:
    size = info.get("size")
    return RemoteObject(url, int(size) if size is not None else None, _version(info))


def _version(info: Mapping[str, Any]) -> str:
    for key in _VERSIONS:
        if info.get(key):
            return str(info[key]).strip('"')
    time = next((str(info[key]) for key in _TIMES if info.get(key)), "")
    return f"{info.get('size')}-{time}"
