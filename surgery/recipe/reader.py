"""Reading values out of a tree of nodes: each mistake becomes a Problem, and reading goes on."""

from __future__ import annotations

import difflib
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from surgery.errors import Problem
from surgery.recipe.nodes import Listing, Node, Scalar, Table, describe, is_null, key_text, one_line, quoted, resolve

_CONTROL = re.compile("[\x00-\x1f\x7f]")

T = TypeVar("T")
Read = Callable[[Node], Any]
Schema = Mapping[str, Any]
"""A JSON schema, or a part of one."""


@dataclass(frozen=True)
class Field:
    """One key of a mapping: how its value is read, what it is for, and how a JSON schema describes the value.

    The loader reads by these, and the JSON schema and the reference are made from them.
    """

    read: Read
    about: str = ""
    schema: Schema = field(default_factory=dict)

    def __call__(self, node: Node) -> Any:
        """Read a value."""
        return self.read(node)


def defined(name: str) -> Schema:
    """Refer to a definition of the JSON schema of recipes."""
    return {"$ref": f"#/$defs/{name}"}


def listed(schema: Schema) -> Schema:
    """Describe a list whose only member may stand alone, as `Reader.items` reads it."""
    return {"anyOf": [schema, {"type": "array", "items": schema}]}


# What people write for a key, coming from elsewhere, and no spelling aid would find.
_ALSO = {
    "passes": "steps",
    "pipeline": "steps",
    "name": "recipe",
    "description": "about",
    "options": "with",
    "args": "with",
    "params": "with",
    "if": "when",
    "on_error": "on_failure",
    "dimensions": "dims",
}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Give the known name that is most like this one, if one is."""
    known = list(known)
    if _ALSO.get(name) in known:
        return _ALSO[name]
    for spelling in (name, name.lower().replace("-", "_"), name.lower().replace("_", "-")):
        near = difflib.get_close_matches(spelling, known, n=1)
        if near:
            return near[0]
    return None


def either(names: Iterable[str]) -> str:
    """Join names for a message: "each, end or off"."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def below(folder: Path, name: str) -> Path:
    """Resolve a path of a recipe against its folder, and shorten `a/../b` where no link makes that wrong."""
    joined = folder / name
    short = Path(os.path.normpath(joined))
    try:
        return short if short.resolve() == joined.resolve() else joined
    except (OSError, RuntimeError, ValueError):
        return joined


def mode(path: Path) -> int:
    """Give the mode bits of what stands there, 0 for nothing; a name that no file can have is nothing."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def is_file(path: Path) -> bool:
    """Say whether a regular file stands there."""
    return stat.S_ISREG(mode(path))


class Reader:
    """Reads the nodes of one file. `path` is how messages call it, `folder` where its paths start."""

    def __init__(self, path: str, folder: Path) -> None:
        self.path = path
        self.folder = folder
        self.problems: list[Problem] = []

    def problem(self, node: Node, message: str) -> None:
        """Note a mistake at a node."""
        self.problems.append(Problem(self.path, node.line, node.column, one_line(message)))

    def wrong(self, node: Node, name: str, wanted: str) -> None:
        """Note that a value is not what it has to be; a number or word in quotes is told to lose them."""
        hint = ""
        if isinstance(node, Scalar) and node.styled and not isinstance(resolve(node.text), str) and node.text:
            hint = "; remove the quotes"
        self.problem(node, f"{quoted(name)} takes {wanted}, not {describe(node)}{hint}")

    def fields(self, node: Node, name: str, known: Mapping[str, Read], *, example: str = "") -> dict[str, Any]:
        """Read a mapping with fixed keys. What stands under a misspelt key is read as what was meant.

        Keys without a value and values with mistakes are left out; of two equal keys the first counts, but the
        second is read too, for its mistakes.
        """
        if not isinstance(node, Table):
            self.wrong(node, name, f"a mapping{example and f' such as {example}'}")
            return {}
        given = {key_text(key) for key, _ in node.pairs}
        found: dict[str, Any] = {}
        for key, value in node.pairs:
            meant = self._key(key, given, known)
            if meant is None or is_null(value):
                continue
            result = known[meant](value)
            if result is not None:
                found.setdefault(meant, result)
        return found

    def _key(self, key: Node, given: set[str | None], known: Iterable[str]) -> str | None:
        name = self.key(key)
        if name is None or name in known:
            return name
        near = nearest(name, known)
        if near is None:
            self.problem(key, f"no key {quoted(name)}; known here: {', '.join(known)}")
            return None
        self.problem(key, f"no key {quoted(name)}; did you mean '{near}'?")
        return None if near in given else near

    def key(self, key: Node) -> str | None:
        """Give a key, which has to be text."""
        name = key_text(key)
        if name is None:
            self.problem(key, f"a key is text, not {describe(key)}{'; quote it' if isinstance(key, Scalar) else ''}")
        return name

    def entries(self, node: Node, name: str, read: Callable[[Node, str], T | None], example: str) -> dict[str, T]:
        """Read a mapping with free keys."""
        if not isinstance(node, Table):
            self.wrong(node, name, f"a mapping such as {example}")
            return {}
        found: dict[str, T] = {}
        for key, value in node.pairs:
            text = self.key(key)
            result = None if text is None else read(value, text)
            if text is not None and result is not None:
                found.setdefault(text, result)
        return found

    def text(self, name: str, wanted: str = "text", *, lines: bool = False, about: str = "") -> Field:
        """Make a reader of a text that says something, on one line unless `lines`."""

        def read(node: Node) -> str | None:
            value = node.value if isinstance(node, Scalar) else None
            if not isinstance(value, str) or not value.strip():
                self.wrong(node, name, wanted)
            elif not lines and _CONTROL.search(value.rstrip("\n")):
                self.problem(node, f"'{name}' takes {wanted} on one line, without control characters")
            else:
                return value.rstrip("\n")
            return None

        return Field(read, about, {"type": "string", "pattern": r"\S"})

    def choice(self, name: str, choices: Sequence[str], *, about: str = "") -> Field:
        """Make a reader of one of several words."""

        def read(node: Node) -> str | None:
            word = node.text if isinstance(node, Scalar) else ""
            if word in choices:
                return word
            near = nearest(word, choices)
            hint = f"; did you mean '{near}'?" if near else ""
            self.problem(node, f"'{name}' takes {either(choices)}, not {describe(node)}{hint}")
            return None

        return Field(read, about, {"enum": list(choices)})

    def number(self, name: str, *, zero: bool = True, unit: str = "", about: str = "") -> Field:
        """Make a reader of a finite number that is not negative, as a float."""

        def read(node: Node) -> float | None:
            value = node.value if isinstance(node, Scalar) else None
            if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
                self.wrong(node, name, f"a number{unit}")
            elif value < 0:
                self.problem(node, f"{quoted(name)} is never negative: {describe(node)}")
            elif value == 0 and not zero:
                self.problem(node, f"{quoted(name)} is more than 0, not {describe(node)}")
            else:
                return float(value)
            return None

        return Field(read, about, {"type": "number", "minimum" if zero else "exclusiveMinimum": 0})

    def whole(self, name: str, *, least: int = 0, wanted: str = "a whole number", about: str = "") -> Field:
        """Make a reader of a whole number."""

        def read(node: Node) -> int | None:
            value = node.value if isinstance(node, Scalar) else None
            if not isinstance(value, int) or isinstance(value, bool):
                self.wrong(node, name, wanted)
            elif value < least:
                self.problem(node, f"{quoted(name)} is at least {least}, not {describe(node)}")
            else:
                return value
            return None

        return Field(read, about, {"type": "integer", "minimum": least})

    def flag(self, name: str, *, about: str = "") -> Field:
        """Make a reader of true or false."""

        def read(node: Node) -> bool | None:
            value = node.value if isinstance(node, Scalar) else None
            if isinstance(value, bool):
                return value
            self.wrong(node, name, "true or false")
            return None

        return Field(read, about, {"type": "boolean"})

    def items(self, node: Node) -> list[Node]:
        """Give the members of a list; a value alone is a list of one."""
        return node.items if isinstance(node, Listing) else [node]
