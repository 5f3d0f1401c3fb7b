"""Errors about URLs, as one line with a remedy and without credentials."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from surgery.base.errors import ModelFileError, OutputError, SurgeryError, TransferError, UsageError
from surgery.model.remote.urls import protocol, scrubbed, shown

PACKAGES: Final = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "http": "aiohttp",
    "https": "aiohttp",
    "hf": "huggingface_hub",
    "ssh": "paramiko",
    "sftp": "paramiko",
    "smb": "smbprotocol",
    "webdav": "webdav4",
    "oss": "ossfs",
    "oci": "ocifs",
}
"""The package of each protocol that is common for models."""

EXTRA: Final = "pip install 'onnx-surgery[remote]'"
_CREDENTIALS: Final = ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError")
_REFUSED: Final = ("GatedRepoError", "ClientAuthenticationError", "AuthenticationException")
_ABSENT: Final = ("RepositoryNotFoundError", "EntryNotFoundError", "RevisionNotFoundError", "ResourceNotFoundError")
_NO_ARCHIVE: Final = ("BadZipFile", "ReadError", "ArchiveError")
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def missing(url: str) -> UsageError:
    """Return the error for a protocol whose package is not installed."""
    package = PACKAGES.get(protocol(url), "")
    todo = f"{EXTRA} {package}".strip() if package not in ("", "aiohttp") else EXTRA
    what = f"the protocol '{protocol(url)}' needs the package {package or 'fsspec'}, which is not installed"
    return UsageError(what, where=shown(url), todo=todo)


@contextmanager
def reported(url: str, doing: str, *, output: bool = False) -> Iterator[None]:
    """Convert exceptions of fsspec and its packages to an error about a URL; `doing` is 'read' or 'written'."""
    try:
        yield
    except SurgeryError:
        raise
    except ImportError as error:
        raise missing(url) from error
    except Exception as error:
        raise explained(error, url, doing, output=output) from error


def explained(error: Exception, url: str, doing: str, *, output: bool = False) -> SurgeryError:
    """Return the error for a failure, by its remedy: exit code 2, or 3 for network failures."""
    kind = OutputError if output else ModelFileError
    where = shown(url)
    names = {one.__name__ for one in type(error).__mro__}
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    if names.intersection(_CREDENTIALS):
        package = PACKAGES.get(protocol(url), "fsspec")
        return kind("there are no credentials for it", where=where, todo=f"configure them as for {package}")
    if isinstance(error, PermissionError) or names.intersection(_REFUSED) or status in (401, 403):
        return kind("access is denied", where=where, todo="check the credentials and their permissions")
    if isinstance(error, FileNotFoundError) or names.intersection(_ABSENT) or status in (404, 410):
        what = "there is no such bucket or folder" if output else "there is no such object"
        return kind(what, where=where, todo="check the URL")
    if names.intersection(_NO_ARCHIVE):
        return kind(f"its archive cannot be {doing}: {_reason(error)}", where=where, todo="check the URL after '::'")
    if isinstance(error, IsADirectoryError):
        return kind("this is a folder", where=where, todo="name a file in it")
    if isinstance(error, NotImplementedError):
        return kind(f"objects of the protocol '{protocol(url)}' cannot be {doing}", where=where)
    if isinstance(error, OSError) and error.errno in _FULL:
        return OutputError(f"no space for a copy: {os.strerror(error.errno)}", where=where, todo="set TMPDIR")
    return TransferError(f"cannot be {doing}: {_reason(error)}", where=where, todo="try again")


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "the connection timed out"
    text = scrubbed(str(error))
    return f"{text} ({type(error).__name__})" if text else type(error).__name__


def is_passing(error: Exception) -> bool:
    """Return whether another attempt may succeed: the connection broke, or the server is overloaded."""
    names = {one.__name__ for one in type(error).__mro__}
    status = getattr(error, "status", None)
    if status is not None:
        return int(status) == 429 or int(status) >= 500
    broken = ("ClientConnectionError", "ClientPayloadError", "IncompleteRead", "ConnectionError", "TimeoutError")
    return not names.isdisjoint(broken)
