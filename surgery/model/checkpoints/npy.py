"""The npy format of NumPy: a header, then the elements of one array."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from surgery.base.errors import ModelFileError
from surgery.model.checkpoints.named_tensors import Checkpoint, TensorEntry, broken
from surgery.model.checkpoints.npz import TYPES, head
from surgery.model.wire.weights import Weights
from surgery.model.wire.wire import Reference

SUFFIX = ".npy"


def read(path: Path, weights: Weights) -> Checkpoint:
    """Read the header; the single tensor has the name of the file."""
    with path.open("rb") as file:
        dims, fortran, dtype = head(path, path.stem, file)
        start = file.tell()
    source = weights.referable(weights.open(path))
    plain = dtype.newbyteorder("=")
    if plain not in TYPES:
        raise ModelFileError(f"it has the type {dtype}, which is not a tensor type", where=str(path))
    length = int(np.prod(dims, dtype=np.int64)) * dtype.itemsize
    if start + length != source.size:
        what = f"it has {source.size - start:,} bytes of elements, but its type and dims need {length:,}"
        raise broken(path, what)
    there = Reference(source.location, start, length)
    as_stored = dtype.newbyteorder("<") == dtype and not (fortran and len(dims) > 1)
    place = (lambda: there) if as_stored else _turned(there, dims, fortran, dtype, weights)
    return Checkpoint(path, {path.stem: TensorEntry(TYPES[plain], dims, place)}, weights)


def _turned(
    there: Reference, dims: tuple[int, ...], fortran: bool, dtype: np.dtype[np.generic], weights: Weights
) -> Callable[[], Reference]:
    """Return a function that copies the elements to the ONNX layout: row-major, little-endian."""

    def place() -> Reference:
        array = np.frombuffer(weights.view(there), dtype).reshape(dims, order="F" if fortran else "C")
        return weights.spill(np.ascontiguousarray(array))

    return place
