"""Recipe lookup: shipped recipes and those of installed packages by name, files by path."""

from __future__ import annotations

import importlib.resources
import re
import stat
from pathlib import Path
from typing import BinaryIO

from surgery.errors import UsageError
from surgery.recipe.nodes import quoted
from surgery.recipe.paths import below, mode
from surgery.recipe.spelling import nearest
from surgery.targets import entry_points

MAX_BYTES = 128 * 1024
SUFFIXES = (".yaml", ".yml")
ENTRY_POINTS = "surgery.recipes"
"""The group of entry points with which packages add recipes: each refers to a package with YAML files."""


def folder() -> Path:
    """Return the folder of the shipped recipes."""
    return Path(str(importlib.resources.files("surgery.recipes")))


def names() -> tuple[str, ...]:
    """List the names of the shipped recipes, and of those that installed packages add."""
    return tuple(sorted({*_own(), *entry_points.files(ENTRY_POINTS)}))


def _own() -> frozenset[str]:
    """Return the names of the shipped recipes, which packages cannot override."""
    return frozenset(path.stem for path in folder().glob("*.yaml"))


def locate(text: str, base: Path) -> Path:
    """Return the path of a recipe: a shipped one if `text` is its name, or else a file, relative to `base`.

    Names take precedence over files; `./tidy` is always a file. Raises UsageError with a suggestion if it is not found.
    """
    if text in names():
        return folder() / f"{text}.yaml" if text in _own() else entry_points.files(ENTRY_POINTS)[text]
    path = below(base, text)
    found = mode(path)
    if stat.S_ISDIR(found):
        raise UsageError(f"{quoted(text)} is a directory, not a recipe")
    if found:
        return path
    raise UsageError(f"no recipe {quoted(text)}", todo=_instead(text, path))


def _instead(text: str, path: Path) -> str:
    near = nearest(path.stem, names())
    is_name = re.fullmatch(r"[\w-]+", text) is not None
    files = {} if near and is_name else {found.name: found for found in _neighbours(path)}
    file = nearest(path.name, files)
    if file is not None:
        near = str(Path(text).parent / file)
    return f"did you mean '{near}'?" if near else f"shipped are {', '.join(names()) or 'none'}"


def _neighbours(path: Path) -> list[Path]:
    try:
        return sorted(found for found in path.parent.iterdir() if found.suffix in SUFFIXES)[:200]
    except OSError:
        return []


def read(path: Path) -> bytes:
    """Read the file of a recipe; raise UsageError if it cannot be read."""
    if path.suffix == ".onnx":
        raise UsageError(f"'{path}' is a model, not a recipe", todo="the recipe comes first, then the model")
    try:
        with path.open("rb") as file:
            return read_stream(file, f"'{path}'")
    except OSError as error:
        raise UsageError(f"recipe '{path}' cannot be read: {error.strerror}") from error


def read_stream(file: BinaryIO, name: str) -> bytes:
    """Read a recipe from an open file; raise UsageError if it is too large."""
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise UsageError(f"{name} is too large for a recipe (more than {MAX_BYTES // 1024} KiB)")
    return data
