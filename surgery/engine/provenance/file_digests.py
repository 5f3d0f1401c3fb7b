"""Digests of the files of a recipe, a package or a pass."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from surgery.base.errors import UsageError
from surgery.model.wire.digests import file_digest


def digest_of(value: Any) -> str:
    """Return the digest of a plain value: mappings in any order, lists, strings, numbers, None."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def file_or_folder(path: Path) -> str:
    """Return the digest of a file, or of the names and contents of all files in a folder. Raises UsageError."""
    try:
        if path.is_dir():
            return digest_of(tree(path, (found for found in path.rglob("*") if found.is_file())))
        return file_digest(path)
    except OSError as error:
        raise UsageError(f"'{path}' cannot be read: {error.strerror or error}") from error


def tree(folder: Path, files: Iterable[Path]) -> Mapping[str, str]:
    """Return the digests of files by their paths relative to a folder."""
    return {file.relative_to(folder).as_posix(): file_digest(file) for file in sorted(files)}
