"""Profile lookup: shipped profiles and those of installed packages by name, files by path."""

from __future__ import annotations

import importlib.resources
from functools import cache
from pathlib import Path

from surgery.base.errors import UsageError
from surgery.model.targets import entry_points
from surgery.model.targets.target import STANDARD, Target

SUFFIXES = (".yaml", ".yml")
ENTRY_POINTS = "surgery.targets"
"""The group of entry points with which packages add profiles: each refers to a package with YAML files."""


def folder() -> Path:
    """Return the folder of the shipped profiles."""
    return Path(str(importlib.resources.files("surgery.model.targets"))) / "profiles"


@cache
def names() -> tuple[str, ...]:
    """List the names of the shipped targets, and of those that installed packages add."""
    return tuple(sorted({*_own(), *entry_points.files(ENTRY_POINTS)}))


def problems() -> list[str]:
    """List the targets that installed packages add in vain, one per line."""
    return entry_points.problems(ENTRY_POINTS, _own())


@cache
def _own() -> frozenset[str]:
    """Return the names of the shipped targets, which packages cannot override."""
    return frozenset({STANDARD.name, *(path.stem for path in folder().glob("*.yaml"))})


def find(text: str) -> Target:
    """Return the target of that name, or the profile at that path; raise UsageError if there is none."""
    if text in _own() or text in names():
        return _shipped(text)
    if not text.endswith(SUFFIXES):
        missing = entry_points.broken(ENTRY_POINTS)
        todo = f"there are {', '.join(names())}, or name a file: ./{text}.yaml"
        raise UsageError(f"no target '{text}'{missing}", todo=todo)
    from surgery.model.targets.profile import read

    return read(Path(text))


@cache
def _shipped(name: str) -> Target:
    if name == STANDARD.name:
        return STANDARD
    from surgery.model.targets.profile import read

    if name in _own():
        return read(folder() / f"{name}.yaml", shipped=True)
    return read(entry_points.files(ENTRY_POINTS)[name])
