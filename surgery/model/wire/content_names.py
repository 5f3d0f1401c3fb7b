"""Files named by their content: `{sha256:12}` in a name stands for 12 digits of the digest of the written content.

The digest of a model in one file is the digest of the file, as `sha256sum` computes it. If weights are in other files,
whose names are part of the model, it covers the model with the data files called `data`, `data_1`, ..., followed by
these files. So the same content has the same name, wherever it is written.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from surgery.base.errors import UsageError
from surgery.model.wire.wire import Piece, Reference

if TYPE_CHECKING:
    from surgery.model.wire.join import DataFile
    from surgery.model.wire.weights import Weights

FEWEST_DIGITS: Final = 8
MOST_DIGITS: Final = 64

_FIELD: Final = re.compile(r"\{sha256(?::(\d{1,3}))?\}")
_PIECE: Final = 8 << 20


def neutral_name(number: int) -> str:
    """Return the name of a data file in the model when the digest is computed."""
    return f"data_{number}" if number else "data"


def is_by_content(path: Path) -> bool:
    """Return whether a file is to be named by its content. Raises UsageError for an invalid field."""
    if _FIELD.search(str(path.parent)):
        raise UsageError(
            f"'{path}': a folder name cannot contain a digest", todo="use {sha256:12} in the name of the file"
        )
    found = list(_FIELD.finditer(path.name))
    for field in found:
        if not FEWEST_DIGITS <= _digits(field) <= MOST_DIGITS:
            raise UsageError(
                f"'{field[0]}' in '{path.name}' does not have {FEWEST_DIGITS} to {MOST_DIGITS} digits",
                todo="use {sha256:12}",
            )
    return bool(found)


def named(path: Path, digest: str) -> Path:
    """Return the path with the digest in its name."""
    return path.with_name(_FIELD.sub(lambda field: digest[: _digits(field)], path.name))


def content_digest(pieces: Iterable[Piece], files: Iterable[DataFile], weights: Weights) -> str:
    """Return the digest of a model with neutral file names, and of its data files. Weights are read in pieces."""
    digest = hashlib.sha256()
    for piece in pieces:
        _add(digest, piece, weights)
    for file in files:
        end = 0
        for reference, offset in sorted(file.parts.items(), key=lambda part: part[1]):
            digest.update(bytes(offset - end))
            _add(digest, reference, weights)
            end = offset + reference.length
        digest.update(bytes(file.end - end))
    return digest.hexdigest()


def _add(digest: hashlib._Hash, piece: Piece, weights: Weights) -> None:
    if not isinstance(piece, Reference):
        digest.update(piece)
        return
    for start in range(0, piece.length, _PIECE):
        length = min(_PIECE, piece.length - start)
        digest.update(weights.view(Reference(piece.location, piece.offset + start, length)))


def _digits(field: re.Match[str]) -> int:
    return int(field[1]) if field[1] is not None else MOST_DIGITS
