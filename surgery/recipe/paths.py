"""The paths of a recipe."""

from __future__ import annotations

import os
import stat
from pathlib import Path


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
