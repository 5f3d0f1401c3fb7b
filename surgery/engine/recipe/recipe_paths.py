"""The paths of a recipe."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def configuration_folder() -> Path:
    """Return the folder of the user's configuration, which need not exist."""
    given = os.environ.get("XDG_CONFIG_HOME", "")
    # According to the XDG base directory specification, a relative path is ignored.
    home = Path(given) if Path(given).is_absolute() else Path.home() / ".config"
    return home / "surgery"


def below(folder: Path, name: str) -> Path:
    """Resolve a path of a recipe against its folder, and shorten `a/../b` unless a symbolic link makes that wrong."""
    joined = folder / name
    short = Path(os.path.normpath(joined))
    try:
        return short if short.resolve() == joined.resolve() else joined
    except (OSError, RuntimeError, ValueError):
        return joined


def mode(path: Path) -> int:
    """Return the mode bits of a path; 0 if nothing exists there, or if the name is invalid."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def is_file(path: Path) -> bool:
    """Return whether a path is a regular file."""
    return stat.S_ISREG(mode(path))
