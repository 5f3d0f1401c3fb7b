"""The npz format of NumPy: a zip archive with a .npy file for each tensor."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from numpy.lib import format as npy

from surgery.base.errors import ModelFileError
from surgery.model.checkpoints.named_tensors import DAMAGED, Checkpoint, Named, TensorEntry, broken, require_types
from surgery.model.storage import staging
from surgery.model.storage.files import NewFile, output_errors
from surgery.model.storage.saving import check_target, spare_input
from surgery.model.wire.weights import Weights
from surgery.model.wire.wire import Reference

try:
    from lzma import LZMAError
except ImportError:  # Python may be built without it, and zipfile then refuses such members.
    LZMAError = EOFError  # type: ignore[misc,assignment]

_Type = ir.DataType
DTYPES: Final = {
    dtype: dtype.numpy().newbyteorder("<")
    for dtype in (
        *(_Type.BOOL, _Type.UINT8, _Type.INT8, _Type.UINT16, _Type.INT16, _Type.UINT32, _Type.INT32, _Type.UINT64),
        *(_Type.INT64, _Type.FLOAT16, _Type.FLOAT, _Type.DOUBLE, _Type.COMPLEX64, _Type.COMPLEX128),
    )
}
TYPES: Final = {dtype.newbyteorder("="): known for known, dtype in DTYPES.items()}
_SUFFIX: Final = ".npy"
_CHUNK: Final = 1 << 22
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_ERRORS: Final = (zipfile.BadZipFile, zlib.error, LZMAError, struct.error, EOFError, RuntimeError, ValueError)
"""Exceptions of zipfile for damaged members, and for encrypted ones and unknown methods (RuntimeError)."""


def read(path: Path, weights: Weights) -> Checkpoint:
    """Read the list of the archive, and the header of each tensor."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = Counter(info.filename for info in archive.infolist())
            for name in (name for name, count in names.items() if count > 1):
                raise broken(path, f"it lists '{name.removesuffix(_SUFFIX)}' twice")
            entries = {name.removesuffix(_SUFFIX): _entry(path, archive, name, weights) for name in names}
    except _ERRORS as error:
        raise broken(path, f"it is truncated, damaged, or not an npz file ({error})") from error
    return Checkpoint(path, entries, weights)


def _entry(path: Path, archive: zipfile.ZipFile, name: str, weights: Weights) -> TensorEntry:
    with archive.open(name) as file:
        dims, _, dtype = head(path, name, file)
    if dtype.newbyteorder("=") not in TYPES:
        label = name.removesuffix(_SUFFIX)
        raise ModelFileError(f"'{label}' has the type {dtype}, which is not a tensor type", where=str(path))
    return TensorEntry(TYPES[dtype.newbyteorder("=")], dims, _unpacking(path, name, weights))


def head(path: Path, name: str, file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of a .npy file; return the dims, whether it is column-major, and the type."""
    try:
        version = npy.read_magic(file)
        reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        dims, fortran, dtype = reader(file)
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise ModelFileError(f"'{name}' is not an array: {reason}", where=str(path), todo=DAMAGED) from error
    return tuple(dims), bool(fortran), dtype


def _unpacking(path: Path, name: str, weights: Weights) -> Callable[[], Reference]:
    """Return a function that unpacks a tensor to the scratch file, a chunk at a time."""

    def place() -> Reference:
        try:
            with zipfile.ZipFile(path) as archive, archive.open(name) as file:
                dims, fortran, dtype = head(path, name, file)
                if fortran and len(dims) > 1:
                    array = np.frombuffer(file.read(), dtype).reshape(dims, order="F")
                    return weights.spill(np.ascontiguousarray(array))
                reference = weights.spill(_chunks(file, dtype))
        except (OSError, *_ERRORS) as error:
            raise broken(path, f"'{name.removesuffix(_SUFFIX)}' cannot be read ({error})") from error
        if reference.length != int(np.prod(dims, dtype=np.int64)) * dtype.itemsize:
            raise broken(
                path, f"'{name.removesuffix(_SUFFIX)}' has {reference.length:,} bytes, which does not fit its dims"
            )
        return reference

    return place


def _chunks(file: Any, dtype: np.dtype[Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the elements of a file as little-endian arrays."""
    while chunk := file.read(_CHUNK):
        yield np.frombuffer(chunk, dtype).astype(dtype.newbyteorder("<"), copy=False)


def write(path: Path, tensors: Sequence[Named], weights: Weights, *, force: bool = False) -> list[Path]:
    """Write tensors without compression; equal tensors give equal bytes."""
    require_types("npz", tensors, DTYPES, "use .safetensors, or exclude it with --names")
    target = check_target(path, force=force)
    spare_input(target, weights)
    with output_errors(target), NewFile(target) as file:
        with file.stream() as stream, zipfile.ZipFile(stream, "w", allowZip64=True) as archive:
            for tensor in tensors:
                with archive.open(zipfile.ZipInfo(f"{tensor.name}{_SUFFIX}", _EPOCH), "w", force_zip64=True) as member:
                    member.write(_npy_header(tensor))
                    for chunk in _bytes(tensor, weights):
                        member.write(chunk)
        file.commit(target)
    staging.publish([target])
    return [target]


def _npy_header(tensor: Named) -> bytes:
    head = io.BytesIO()
    described = {"descr": npy.dtype_to_descr(DTYPES[tensor.dtype]), "fortran_order": False, "shape": tensor.dims}
    npy.write_array_header_1_0(head, described)
    return head.getvalue()


def _bytes(tensor: Named, weights: Weights) -> Iterator[bytes | memoryview]:
    if not isinstance(tensor.data, Reference):
        yield tensor.data
        return
    view = weights.view(tensor.data)
    for start in range(0, len(view), _CHUNK):
        yield view[start : start + _CHUNK]
