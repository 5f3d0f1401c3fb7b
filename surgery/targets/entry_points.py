"""Files that installed packages add, in the folders of the packages that their entry points refer to."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from functools import cache
from pathlib import Path

SUFFIX = ".yaml"


@cache
def files(group: str) -> dict[str, Path]:
    """Return the YAML files of the packages in a group of entry points, by name without suffix.

    An entry point refers to a package, as in `acme = "acme.recipes"`. Packages are found without importing them; a
    missing package adds nothing. Of two files with the same name, the file of the first entry point by name counts.
    """
    found: dict[str, Path] = {}
    for entry in sorted(importlib.metadata.entry_points(group=group), key=lambda one: (one.name, one.value)):
        for folder in _folders(entry.module):
            for path in sorted(folder.glob(f"*{SUFFIX}")):
                found.setdefault(path.stem, path)
    return found


def _folders(package: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):
        return []
    return [Path(place) for place in (spec.submodule_search_locations or [])] if spec is not None else []
