"""URLs of fsspec: recognizing them, and copying single objects between storage and local files.

fsspec and the package of a protocol are imported when a URL is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surgery.remote.listing import Entry as Entry
    from surgery.remote.listing import list_files as list_files
    from surgery.remote.listing import version as version
    from surgery.remote.transfer import check_writable as check_writable
    from surgery.remote.transfer import exists as exists
    from surgery.remote.transfer import fetch as fetch
    from surgery.remote.transfer import put as put
    from surgery.remote.urls import is_url as is_url
    from surgery.remote.urls import joined as joined
    from surgery.remote.urls import local_path as local_path
    from surgery.remote.urls import name_of as name_of
    from surgery.remote.urls import shown as shown
    from surgery.remote.urls import sibling as sibling

_HOMES = {
    "Entry": "listing",
    "list_files": "listing",
    "version": "listing",
    "check_writable": "transfer",
    "exists": "transfer",
    "fetch": "transfer",
    "put": "transfer",
    "is_url": "urls",
    "joined": "urls",
    "local_path": "urls",
    "name_of": "urls",
    "shown": "urls",
    "sibling": "urls",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value: object = getattr(import_module(f"surgery.remote.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
