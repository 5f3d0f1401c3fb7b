"""URLs as text: recognition, URLs of siblings, and the parts that may be shown.

A URL is `protocol://path`, or a chain of fsspec: in `zip://bert/model.onnx::s3://bucket/models.zip` the part before
`::` is a path inside the object after it.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import quote, unquote

# At least two letters, so that a Windows drive is not a protocol.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(://|::[A-Za-z])")
_WITHIN_TEXT: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://[^\s'\"<>)\]}]+")
_CHAIN: Final = "::"
_WEB: Final = ("http", "https")


def is_url(text: object) -> bool:
    """Return whether an argument is a URL, and not the path of a local file: `./s3:` is a path."""
    return isinstance(text, str) and _URL.match(text) is not None


def local_path(url: str) -> Path | None:
    """Return the path of a `file://` URL; None for other URLs."""
    if _CHAIN in url or protocol(url) not in ("file", "local"):
        return None
    return Path(unquote(url.partition("://")[2]))


def protocol(url: str) -> str:
    """Return the protocol of the outermost part, in lower case."""
    return re.split(r"://|::", url, maxsplit=1)[0].lower()


def shown(url: str) -> str:
    """Return a URL without user, password, query and fragment, which may contain credentials."""
    return _CHAIN.join(_plain(part) for part in url.split(_CHAIN))


def scrubbed(text: str) -> str:
    """Return a message of another package on one line, with each URL as returned by `shown`."""
    return _WITHIN_TEXT.sub(lambda found: shown(found[0]), " ".join(text.split()))


def name_of(url: str) -> str:
    """Return the last name in the path of a URL: `model.onnx` of `s3://bucket/model.onnx`."""
    path = _path(url.split(_CHAIN)[0])[1]
    return unquote(PurePosixPath(path).name) if protocol(url) in _WEB else PurePosixPath(path).name


def joined(folder: str, location: str) -> str:
    """Return the URL of a relative path below the URL of a folder."""
    first, *rest = folder.split(_CHAIN)
    head, path, tail = _path(first)
    name = quote(location) if protocol(folder) in _WEB else location
    return _CHAIN.join([f"{head}{path.rstrip('/')}/{name}{tail}" if path else f"{head}{name}{tail}", *rest])


def sibling(url: str, location: str) -> str:
    """Return the URL of a relative path next to an object, with the same query."""
    first, *rest = url.split(_CHAIN)
    head, path, tail = _path(first)
    folder = path.rpartition("/")[0]
    return joined(_CHAIN.join([f"{head}{folder}{tail}", *rest]), location)


def _path(part: str) -> tuple[str, str, str]:
    """Split a part of a chain into the prefix of its path, the path, and the query, which only http has."""
    head, mark, rest = part.partition("://")
    if head.lower() not in _WEB:
        return f"{head}{mark}", rest, ""
    path, tail = re.fullmatch(r"([^?#]*)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{head}{mark}", path, tail


def _plain(part: str) -> str:
    head, mark, rest = part.partition("://")
    if not mark:
        return part
    place, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    if head.lower() not in _WEB:
        # An object key may contain these characters; credentials only follow a question mark.
        path = rest.partition("/")[2].partition("?")[0]
    return f"{head}{mark}{place.rpartition('@')[2]}{slash}{path}"
