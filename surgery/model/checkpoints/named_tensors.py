"""The common interface of tensor files: tensors by name, and the location of their bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx_ir as ir

from surgery.base.errors import ModelFileError, UsageError
from surgery.model.storage.ir_tensors import StoredTensor
from surgery.model.storage.skeleton import INLINE_LIMIT
from surgery.model.wire.weights import Weights, array_of
from surgery.model.wire.wire import Reference

DAMAGED = "fetch or write it again"


@dataclass(frozen=True)
class Named:
    """A tensor to write: its name, type and dims, and its bytes or their location."""

    name: str
    dtype: ir.DataType
    dims: tuple[int, ...]
    data: Reference | bytes

    @property
    def length(self) -> int:
        """The number of bytes."""
        return self.data.length if isinstance(self.data, Reference) else len(self.data)


@dataclass(frozen=True)
class TensorEntry:
    """A tensor in a file: its type and dims. `place` returns the location of its raw bytes, in the file or a copy."""

    dtype: ir.DataType
    dims: tuple[int, ...]
    place: Callable[[], Reference]


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a file by name, not read yet.

    `aliases` maps the names of tensors to other tensors with the same range of the file: tied weights. `metadata` has
    the values that describe the model, of formats with such values.
    """

    path: Path
    entries: Mapping[str, TensorEntry]
    weights: Weights
    aliases: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def tensor(self, name: str) -> ir.TensorProtocol:
        """Return a tensor: small ones in memory, others mapped."""
        entry = self.entries[name]
        reference = entry.place()
        if reference.length >= INLINE_LIMIT:
            return StoredTensor(reference, entry.dtype, ir.Shape(entry.dims), name=name, weights=self.weights)
        view = self.weights.view(reference) if reference.length else memoryview(b"")
        array = array_of(view, int(entry.dtype), entry.dims).copy()
        return ir.Tensor(array, dtype=entry.dtype, name=name)


def require_types(kind: str, tensors: Sequence[Named], known: Mapping[ir.DataType, object], todo: str) -> None:
    """Raise UsageError for the first tensor of a type that a format does not support."""
    for tensor in tensors:
        if tensor.dtype not in known:
            raise UsageError(f"{kind} has no type for {tensor.dtype.name.lower()}, which '{tensor.name}' is", todo=todo)


def broken(path: Path, what: str) -> ModelFileError:
    """Return the error for an incomplete or damaged file."""
    return ModelFileError(what, where=str(path), todo=DAMAGED)
