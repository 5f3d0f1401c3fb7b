"""A second model of the opened folder, next to the one that is edited."""

from __future__ import annotations

from pathlib import Path

from surgery.base.errors import UsageError
from surgery.model import storage

_MOST_LISTED = 200


def candidates(folder: Path) -> list[str]:
    """List the models in a folder and in the folders in it."""
    found = sorted((*folder.glob("*.onnx"), *folder.glob("*/*.onnx")))
    return [str(path.relative_to(folder)) for path in found[:_MOST_LISTED]]


def opened(folder: Path, path: str) -> storage.StoredModel:
    """Open a model of a folder. Raises UsageError for a path outside of it, and ModelFileError if it is no model."""
    place = folder / path
    if not place.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"'{path}' is outside of the opened folder", todo=f"use models in {folder}")
    return storage.opened(place)
