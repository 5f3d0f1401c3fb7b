"""Recipe lookup: shipped recipes and those of installed packages by name, files by path."""

from __future__ import annotations

import importlib.resources
import re
import stat
from pathlib import Path
from typing import BinaryIO

from surgery.base.errors import UsageError
from surgery.engine.recipe.recipe_paths import below, mode
from surgery.engine.yaml.spelling import nearest
from surgery.engine.yaml.yaml_nodes import quoted
from surgery.model.targets import entry_points

MAX_BYTES = 128 * 1024
SUFFIXES = (".yaml", ".yml")
ENTRY_POINTS = "surgery.recipes"
"""The group of entry points with which packages add recipes: each refers to a package with YAML files."""
_PLAN = re.compile(rb"\s*\{\s*\"format\":\s*\"surgery-plan\"")
"""The beginning of a plan, see `surgery.features.planning.plan_document`."""


def folder() -> Path:
    """Return the folder of the shipped recipes."""
    return Path(str(importlib.resources.files("surgery.recipes")))


def is_shipped(path: Path) -> bool:
    """Return whether a file is in the folder of the shipped recipes."""
    return path.resolve().parent == folder().resolve()


def names() -> tuple[str, ...]:
    """List the names of the shipped recipes, and of those that installed packages add."""
    return tuple(sorted({*_own(), *entry_points.files(ENTRY_POINTS)}))


def is_name(text: str) -> bool:
    """Return whether a text is in `names`; installed packages are only searched for names that are not shipped."""
    return text in _own() or text in entry_points.files(ENTRY_POINTS)


def problems() -> list[str]:
    """List the recipes that installed packages add in vain, one per line."""
    return entry_points.problems(ENTRY_POINTS, _own())


def _own() -> frozenset[str]:
    """Return the names of the shipped recipes, which packages cannot override."""
    return frozenset(path.stem for path in folder().glob("*.yaml"))


def locate(text: str, base: Path) -> Path:
    """Return the path of a recipe: a shipped one if `text` is its name, or else a file, relative to `base`.

    Names take precedence over files; `./tidy` is always a file. Raises UsageError with a suggestion if it is not found.
    """
    if is_name(text):
        return folder() / f"{text}.yaml" if text in _own() else entry_points.files(ENTRY_POINTS)[text]
    path = below(base, text)
    found = mode(path)
    if stat.S_ISDIR(found):
        raise UsageError(f"{quoted(text)} is a directory, not a recipe")
    if found:
        return path
    if "/" in text or text.endswith(SUFFIXES):
        raise UsageError(f"recipe {quoted(text)} does not exist", todo=_other_path(text, path))
    near = _near(text, path)
    if near:
        raise UsageError(f"no recipe {quoted(text)}", todo=f"did you mean '{near}'?")
    missing = entry_points.broken(ENTRY_POINTS)
    raise UsageError(f"no recipe {quoted(text)}{missing}", todo=f"shipped are {', '.join(names()) or 'none'}")


def _other_path(text: str, path: Path) -> str:
    """Return a remedy for the path of a file that does not exist."""
    # A file in another folder is a shipped recipe only if it has exactly that name.
    named = nearest(path.stem, names()) if "/" not in text else path.stem if path.stem in names() else None
    near = _near_file(text, path) or named
    if near:
        return f"did you mean '{near}'?"
    return "check the path" if mode(path.parent) else f"there is no folder {quoted(str(path.parent))}"


def _near(text: str, path: Path) -> str | None:
    """Return the name or the file that is most similar to a name that does not exist."""
    near = nearest(text, names())
    is_name = re.fullmatch(r"[\w-]+", text) is not None
    return near if near and is_name else _near_file(text, path) or near


def _near_file(text: str, path: Path) -> str | None:
    """Return the most similar path of a recipe in the folder of a path that does not exist."""
    file = nearest(path.name, {found.name for found in _neighbours(path)})
    return None if file is None else str(Path(text).parent / file)


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
    """Read a recipe from an open file; raise UsageError if it is too large, or a plan."""
    data = file.read(MAX_BYTES + 1)
    if _PLAN.match(data):
        raise UsageError(f"{name} is a plan, not a recipe", todo="apply it: surgery apply PLAN")
    if len(data) > MAX_BYTES:
        raise UsageError(f"{name} is too large for a recipe (more than {MAX_BYTES // 1024} KiB)")
    return data
