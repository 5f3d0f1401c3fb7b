"""The style sheets and scripts of pages: read from the package, and hashed for the policy of a page."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_ORDER = "order.txt"
"""The names of the viewer's files in their order, one a line."""


@cache
def style(*, viewer: bool) -> str:
    """Return the style sheet of pages, with that of the graph view if the page has one."""
    sheets = [_static("page.css"), *(_viewer(".css") if viewer else ())]
    return "\n".join(sheets)


@cache
def script(*, viewer: bool) -> str:
    """Return the script of pages: the graph view, if the page has one, before what starts it."""
    parts = [*(_viewer(".js") if viewer else ()), _static("page.js")]
    joined = "\n;\n".join(parts)
    # This would end the element that the script is in; escaped so it means the same in a string or pattern.
    return joined.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def integrity(text: str) -> str:
    """Return the hash of an inline script or style as a Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def has_viewer() -> bool:
    """Return whether the package has the files of the graph view."""
    return any(name.endswith(".js") for name in _names(_folder("viewer")))


def _viewer(suffix: str) -> list[str]:
    home = _folder("viewer")
    return [(home / name).read_text(encoding="utf-8") for name in _names(home) if name.endswith(suffix)]


def _names(home: Traversable) -> list[str]:
    if not home.is_dir():
        return []
    listed = home / _ORDER
    if listed.is_file():
        return [line.strip() for line in listed.read_text(encoding="utf-8").splitlines() if line.strip()]
    return sorted(item.name for item in home.iterdir() if item.name.endswith((".js", ".css")))


def _folder(name: str) -> Traversable:
    return files("surgery.pages") / "static" / name


def _static(name: str) -> str:
    return _folder(name).read_text(encoding="utf-8")
