"""The location of a step in a plan, independent of the location of the recipe file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.engine.recipe import recipe_lookup

if TYPE_CHECKING:
    from surgery.engine.recipe.schema import Recipe


def place(where: str, recipe: Recipe) -> str:
    """Return `path:line`, relative to the folder of the recipe, or `shipped:NAME:line` for a shipped recipe."""
    path, _, line = where.rpartition(":")
    if not path:
        return where
    file = Path(path)
    if recipe_lookup.is_shipped(file):
        return f"shipped:{file.stem}:{line}"
    base = recipe.path.parent if recipe.path is not None else Path()
    return f"{Path(os.path.relpath(file, base)).as_posix()}:{line}"
