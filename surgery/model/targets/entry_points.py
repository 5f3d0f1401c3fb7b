"""Files that installed packages add, in the folders of the packages that their entry points refer to."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

SUFFIX: Final = ".yaml"


@dataclass(frozen=True)
class Installed:
    """The files of a group of entry points by name without suffix, and the entry points that add nothing.

    `hidden` has the names that occur twice: (name, distribution that has it, distribution whose file counts).
    """

    files: dict[str, Path]
    broken: tuple[str, ...]
    hidden: tuple[tuple[str, str, str], ...]
    origins: dict[str, str]


@cache
def installed(group: str) -> Installed:
    """Find the YAML files of the packages in a group of entry points.

    An entry point refers to a package, as in `acme = "acme.recipes"`. Packages are found without importing them. Of two
    files with the same name, the file of the first entry point by name counts.
    """
    files: dict[str, Path] = {}
    origins: dict[str, str] = {}
    broken, hidden = [], []
    for entry in sorted(importlib.metadata.entry_points(group=group), key=lambda one: (one.name, one.value)):
        origin, folders = _title(entry.dist), _folders(entry.module)
        paths = [path for folder in folders for path in sorted(folder.glob(f"*{SUFFIX}"))]
        if not paths:
            problem = f"there are no {SUFFIX} files in it" if folders else "there is no such package"
            broken.append(f"entry point '{entry.name}' of {origin} refers to '{entry.module}', but {problem}")
        for path in paths:
            if files.setdefault(path.stem, path) != path:
                hidden.append((path.stem, origin, origins[path.stem]))
            origins.setdefault(path.stem, origin)
    return Installed(files, tuple(broken), tuple(hidden), origins)


def files(group: str) -> dict[str, Path]:
    """Return the YAML files of the packages in a group of entry points, by name without suffix."""
    return installed(group).files


def problems(group: str, own: Collection[str]) -> list[str]:
    """List what packages add in vain, one per line: entry points without files, and names that are taken.

    `own` are the names of the shipped files, which count before those of packages.
    """
    found = installed(group)
    taken = [(name, origin, "surgery") for name, origin in found.origins.items() if name in own]
    hidden = [
        f"'{name}' of {origin} is ignored, because {other} has a file of that name"
        for name, origin, other in [*taken, *found.hidden]
    ]
    return [f"{group}: {text}" for text in [*found.broken, *hidden]]


def broken(group: str) -> str:
    """Return the entry points that add nothing, each after a semicolon, to follow the name of a missing file."""
    return "".join(f"; {text}" for text in installed(group).broken)


def _title(distribution: importlib.metadata.Distribution | None) -> str:
    return f"{distribution.name} {distribution.version}" if distribution is not None else "an unknown distribution"


def _folders(package: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):
        return []
    return [Path(place) for place in (spec.submodule_search_locations or [])] if spec is not None else []
