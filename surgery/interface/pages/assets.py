"""The style sheets and scripts of pages: read from the package, and hashed for the content security policy."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_ORDER = "order.txt"
"""The file that lists the names of the files of a folder in order, one per line."""


@cache
def style(*, viewer: bool) -> str:
    """Return the style sheet of pages, including that of the graph view if the page has one."""
    sheets = [_static("page.css"), *(_texts("viewer", ".css") if viewer else ())]
    return "\n".join(sheets)


@cache
def script(*, viewer: bool) -> str:
    """Return the script of pages: the graph view, if the page has one, and then the code that starts it."""
    return _joined([*(_texts("viewer", ".js") if viewer else ()), _static("page.js")])


@cache
def workbench_style() -> str:
    """Return the style sheet of the workbench."""
    return "\n".join([style(viewer=True), *_texts("workbench", ".css")])


@cache
def workbench_script() -> str:
    """Return the script of the workbench: the graph view, and what acts on the model."""
    return _joined([*_texts("viewer", ".js"), _static("page.js"), *_texts("workbench", ".js")])


def _joined(parts: list[str]) -> str:
    joined = "\n;\n".join(parts)
    # These would end the script element; the escaped forms mean the same in a string or pattern.
    return joined.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def integrity(text: str) -> str:
    """Return the hash of an inline script or style in the format of a Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def has_viewer() -> bool:
    """Return whether the package contains the files of the graph view."""
    return any(name.endswith(".js") for name in _names(_folder("viewer")))


def _texts(folder: str, suffix: str) -> list[str]:
    home = _folder(folder)
    return [(home / name).read_text(encoding="utf-8") for name in _names(home) if name.endswith(suffix)]


def _names(home: Traversable) -> list[str]:
    if not home.is_dir():
        return []
    listed = home / _ORDER
    if listed.is_file():
        return [line.strip() for line in listed.read_text(encoding="utf-8").splitlines() if line.strip()]
    return sorted(item.name for item in home.iterdir() if item.name.endswith((".js", ".css")))


def _folder(name: str) -> Traversable:
    return files("surgery.interface.pages") / "static" / name


def _static(name: str) -> str:
    return _folder(name).read_text(encoding="utf-8")
