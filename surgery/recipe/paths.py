"""The paths of a recipe."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def configuration_folder() -> Path:
    """Return the folder of the user's configuration, which need not exist."""
    given = os.environ.get("XDG_CONFIG_HOME", "")
    # The rule of the XDG base directories: a relative path there is ignored.
    home = Path(given) if Path(given).is_absolute() else Path.home() / ".config"
    return home / "surgery"


def below(folder: Path, name: str) -> Path:
    """Resolve a path of a recipe against its folder, and shorten `a/../b` where no link makes that wrong."""
    joined = folder / name
    short = Path(os.path.normpath(joined))
    try:
        return short if short.resolve() == joined.resolve() else joined
    except (OSError, RuntimeError, ValueError):
        return joined


def mode(path: Path) -> int:
    """Give the mode bits of what is there, 0 for nothing; a name that no file can have is nothing."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def is_file(path: Path) -> bool:
    """Say whether a regular file is there."""
    return stat.S_ISREG(mode(path))
