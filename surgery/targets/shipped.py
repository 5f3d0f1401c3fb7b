"""Where profiles come from: the shipped ones and those of installed packages by name, files by path."""

from __future__ import annotations

import importlib.resources
from functools import cache
from pathlib import Path

from surgery.errors import UsageError
from surgery.targets import entry_points
from surgery.targets.target import STANDARD, Target

SUFFIXES = (".yaml", ".yml")
ENTRY_POINTS = "surgery.targets"
"""The group of entry points by which packages add profiles: each names a package with YAML files."""


def folder() -> Path:
    """Return the folder of the shipped profiles."""
    return Path(str(importlib.resources.files("surgery.targets"))) / "profiles"


@cache
def names() -> tuple[str, ...]:
    """List the shipped targets, and those that installed packages add."""
    return tuple(sorted({*_own(), *entry_points.files(ENTRY_POINTS)}))


@cache
def _own() -> frozenset[str]:
    """Return the shipped targets. A package cannot take their names."""
    return frozenset({STANDARD.name, *(path.stem for path in folder().glob("*.yaml"))})


def find(text: str) -> Target:
    """Return the target of that name, or the profile at that path; UsageError when there is none."""
    if text in names():
        return _shipped(text)
    if not text.endswith(SUFFIXES):
        raise UsageError(f"no target '{text}'", todo=f"there are {', '.join(names())}, or name a file: ./{text}.yaml")
    from surgery.targets.profile import read

    return read(Path(text))


@cache
def _shipped(name: str) -> Target:
    if name == STANDARD.name:
        return STANDARD
    from surgery.targets.profile import read

    return read(folder() / f"{name}.yaml" if name in _own() else entry_points.files(ENTRY_POINTS)[name])
