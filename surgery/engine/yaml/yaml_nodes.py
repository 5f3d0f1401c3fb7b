"""The tree of a YAML text, in which every key and every value has its position."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

# The core schema of YAML 1.2.2, section 10.3.2, where underscores, `yes`, `on`, 0777 and 1:30 are text or decimal.
_NULL = re.compile(r"~|null|Null|NULL|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]{1,300}")
_OCTAL = re.compile(r"0o[0-7]{1,300}")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,200}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"[-+]?\.(inf|Inf|INF)")
_NAN = re.compile(r"\.(nan|NaN|NAN)")

SHOWN = 40
"""Maximum number of characters of a text that are quoted in a message."""

_LONGEST = 300


def resolve(text: str) -> str | int | float | bool | None:
    """Return the value of a plain scalar according to YAML 1.2."""
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text) or _FALSE.fullmatch(text):
        return text.lower() == "true"
    for pattern, base in ((_INT, 10), (_OCTAL, 8), (_HEX, 16)):
        if pattern.fullmatch(text):
            return int(text, base)
    if _INFINITY.fullmatch(text) or _NAN.fullmatch(text):
        return float(text.replace(".", ""))
    return float(text) if _FLOAT.fullmatch(text) else text


def one_line(text: str, longest: int = _LONGEST) -> str:
    """Return a message on one line, with limited length, whatever user text it contains."""
    shown = "".join(char if char.isprintable() else " " for char in text[: longest + 1])
    return shown if len(text) <= longest else f"{shown[:longest]}…"


def quoted(text: str) -> str:
    """Return a text of the user in quotes, for a message."""
    return f"'{one_line(text, SHOWN)}'"


@dataclass(eq=False)
class YamlNode:
    """A node with a position; `line` and `column` count from 1, the column in characters.

    `size` is its number of nodes and `height` their maximum nesting, with aliases expanded. `open` says that a syntax
    error truncated it, so that missing parts are not mistakes of their own.
    """

    line: int
    column: int
    size: int = field(default=1, kw_only=True)
    height: int = field(default=0, kw_only=True)
    open: bool = field(default=False, kw_only=True)


@dataclass(eq=False)
class Scalar(YamlNode):
    """A text, number, bool or null; `text` is its written form, `styled` whether it is quoted or a block."""

    value: str | int | float | bool | None
    text: str
    styled: bool = False
    style: str | None = None
    """The mark of a quoted text (' or ") or a block (| or >)."""
    source: tuple[str, ...] = ()
    """The lines of the file that contain it, from the line where it begins."""


@dataclass(eq=False)
class Listing(YamlNode):
    """A YAML sequence."""

    items: list[YamlNode] = field(default_factory=list)


@dataclass(eq=False)
class Table(YamlNode):
    """A YAML mapping with its pairs in order, including those with a duplicate key."""

    pairs: list[tuple[YamlNode, YamlNode]] = field(default_factory=list)


def describe(node: YamlNode) -> str:
    """Return a description of a value for a message."""
    if isinstance(node, Listing):
        return "a list"
    if not isinstance(node, Scalar):
        return "a mapping"
    if node.value is None:
        return "nothing"
    return quoted(node.text) if isinstance(node.value, str) else one_line(node.text, SHOWN)


def is_null(node: YamlNode) -> bool:
    """Return whether a value is null or missing."""
    return isinstance(node, Scalar) and node.value is None


def key_text(node: YamlNode) -> str | None:
    """Return the text of a key; None if it is not text."""
    return node.value if isinstance(node, Scalar) and isinstance(node.value, str) else None


def plain(node: YamlNode) -> Any:
    """Return a node as a plain Python value; the first of two equal keys counts."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Listing):
        return [plain(item) for item in node.items]
    assert isinstance(node, Table)
    found: dict[Any, Any] = {}
    for key, value in node.pairs:
        found.setdefault(plain(key) if isinstance(key, Scalar) else None, plain(value))
    return found
