"""The GGUF format of llama.cpp, read with its own package, which also dequantizes quantized tensors to float32.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md: dims are stored from the innermost one outwards, so they are
reversed here; the elements are in the same order as in ONNX.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir

from surgery.base.errors import ModelFileError, UsageError
from surgery.model.checkpoints.named_tensors import Checkpoint, TensorEntry, broken
from surgery.model.wire.weights import MappedFile, Weights
from surgery.model.wire.wire import Reference

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor

SUFFIX: Final = ".gguf"
_Type = ir.DataType
_PLAIN: Final = {
    "F32": _Type.FLOAT,
    "F16": _Type.FLOAT16,
    "BF16": _Type.BFLOAT16,
    "F64": _Type.DOUBLE,
    "I8": _Type.INT8,
    "I16": _Type.INT16,
    "I32": _Type.INT32,
    "I64": _Type.INT64,
}
_PIECE: Final = 1 << 22


def read(path: Path, weights: Weights) -> Checkpoint:
    """List the tensors of a file. Raises UsageError without the package gguf, ModelFileError for a damaged file."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise UsageError("GGUF files need the package gguf", todo="pip install 'onnx-surgery[gguf]'") from error
    try:
        source = weights.referable(weights.open(path))
        if bytes(source.view(0, min(4, source.size))) != b"GGUF":
            raise broken(path, "this is not a GGUF file")
        reader = GGUFReader(path)
    except (ValueError, LookupError, TypeError, OverflowError, MemoryError) as error:
        raise broken(path, f"it is truncated or damaged ({' '.join(str(error).split())[:120]})") from error
    is_big = (reader.byte_order == "S") == (sys.byteorder == "little")
    entries = {}
    for tensor in reader.tensors:
        if tensor.name in entries:
            raise broken(path, f"it lists '{tensor.name}' twice")
        entries[tensor.name] = _entry(path, tensor, source, weights, is_big=is_big)
    return Checkpoint(path, entries, weights, metadata=_metadata(reader))


def _metadata(reader: GGUFReader) -> dict[str, Any]:
    """Return the architecture and its hyperparameters, without the tokens."""
    kept = {"general.architecture"}
    field = reader.fields.get("general.architecture")
    architecture = "" if field is None else str(field.contents())
    kept |= {name for name in reader.fields if architecture and name.startswith(f"{architecture}.")}
    return {name: reader.fields[name].contents() for name in sorted(kept & reader.fields.keys())}


def _entry(path: Path, tensor: ReaderTensor, source: MappedFile, weights: Weights, *, is_big: bool) -> TensorEntry:
    dims = tuple(int(dim) for dim in reversed(tensor.shape))
    kind = tensor.tensor_type.name
    there = Reference(source.location, int(tensor.data_offset), int(tensor.n_bytes))
    if there.offset + there.length > source.size:
        raise broken(path, f"'{tensor.name}' is outside of the file")
    dtype = _PLAIN.get(kind)
    if is_big and dtype in (None, _Type.BFLOAT16):
        # The package gguf swaps neither blocks nor bfloat16 when it writes such a file, other writers do.
        what = f"'{tensor.name}' is {kind} in a big-endian file, where its byte order is not certain"
        raise ModelFileError(what, where=str(path), todo="convert the file to little-endian, or to F16")
    if dtype is None:
        return TensorEntry(_Type.FLOAT, dims, _dequantized(path, tensor, dims, weights))
    if there.length != math.prod(dims) * (dtype.bitwidth // 8):
        raise broken(path, f"'{tensor.name}' has {there.length:,} bytes, which does not fit its type and dims")
    if is_big and dtype.bitwidth > 8:
        return TensorEntry(dtype, dims, lambda: weights.spill(_swapped(weights.view(there), dtype.bitwidth // 8)))
    if there.offset % (dtype.bitwidth // 8):
        return TensorEntry(dtype, dims, lambda: weights.spill(weights.view(there)))
    return TensorEntry(dtype, dims, lambda: there)


def _swapped(data: memoryview, size: int) -> Iterator[np.ndarray[Any, Any]]:
    """Yield big-endian elements of `size` bytes as little-endian ones."""
    elements = np.frombuffer(data, f">u{size}")
    for start in range(0, len(elements), _PIECE):
        yield elements[start : start + _PIECE].astype(f"<u{size}")


def _dequantized(path: Path, tensor: ReaderTensor, dims: tuple[int, ...], weights: Weights) -> Callable[[], Reference]:
    """Return a function that writes the dequantized elements to the scratch file, a few rows at a time."""

    def place() -> Reference:
        reference = weights.spill(_rows(path, tensor))
        if reference.length != math.prod(dims) * 4:
            raise broken(
                path, f"'{tensor.name}' has {reference.length:,} bytes of elements, which does not fit its dims"
            )
        return reference

    return place


def _rows(path: Path, tensor: ReaderTensor) -> Iterator[np.ndarray[Any, Any]]:
    from gguf.quants import dequantize

    data = np.asarray(tensor.data)
    rows = data.reshape(-1, data.shape[-1])
    count = max(1, _PIECE // max(1, rows.shape[1]))
    for start in range(0, len(rows), count):
        try:
            yield np.asarray(dequantize(rows[start : start + count], tensor.tensor_type), np.float32)
        except (NotImplementedError, ValueError) as error:
            kind = tensor.tensor_type.name
            raise ModelFileError(
                f"'{tensor.name}' is {kind}, which the package gguf does not convert",
                where=str(path),
                todo="use another quantization, or F16",
            ) from error
