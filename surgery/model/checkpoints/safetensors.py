"""The safetensors format: eight bytes with the length of a header, the header in JSON, then the tensors without gaps.

https://huggingface.co/docs/safetensors: offsets count from the end of the header; the data has no gaps; the header
starts with "{", may be padded with spaces, and has at most 100 MB. Shards are listed in an index next to them,
`model.safetensors.index.json`, as written by transformers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir

from surgery.base.errors import ModelFileError
from surgery.model.checkpoints.named_tensors import Checkpoint, Named, TensorEntry, broken, require_types
from surgery.model.storage.files import NewFile, write_together
from surgery.model.storage.saving import check_target, spare_input
from surgery.model.wire.weights import MappedFile, Weights
from surgery.model.wire.wire import Piece, Reference

_Type = ir.DataType
NAMES: Final = {
    _Type.BOOL: "BOOL",
    _Type.UINT8: "U8",
    _Type.INT8: "I8",
    _Type.FLOAT8E4M3FN: "F8_E4M3",
    _Type.FLOAT8E4M3FNUZ: "F8_E4M3FNUZ",
    _Type.FLOAT8E5M2: "F8_E5M2",
    _Type.FLOAT8E5M2FNUZ: "F8_E5M2FNUZ",
    _Type.FLOAT8E8M0: "F8_E8M0",
    _Type.UINT16: "U16",
    _Type.INT16: "I16",
    _Type.FLOAT16: "F16",
    _Type.BFLOAT16: "BF16",
    _Type.UINT32: "U32",
    _Type.INT32: "I32",
    _Type.FLOAT: "F32",
    _Type.UINT64: "U64",
    _Type.INT64: "I64",
    _Type.DOUBLE: "F64",
    _Type.COMPLEX64: "C64",
}
"""The types in both formats. Types of 4 and 6 bits are packed differently, or not supported."""
_TYPES: Final = {name: dtype for dtype, name in NAMES.items()}
_LENGTH: Final = 8
_LONGEST: Final = 100_000_000
_METADATA: Final = "__metadata__"


def read(path: Path, weights: Weights) -> Checkpoint:
    """Read the header of a file."""
    source = weights.referable(weights.open(path))
    return Checkpoint(path, dict(_entries(path, source, weights)), weights)


def _entries(path: Path, source: MappedFile, weights: Weights) -> Iterator[tuple[str, TensorEntry]]:
    """Check a header, and yield its entries in the order of their data."""
    header, start = _header(path, source)
    expected = 0
    for name, (dtype, dims, begin, end) in sorted(header.items(), key=lambda item: item[1][2:]):
        if begin != expected:
            what = "overlaps the previous tensor" if begin < expected else "has a gap before it"
            raise broken(path, f"the data of '{name}' {what}")
        if end - begin != math.prod(dims) * dtype.bitwidth // 8:
            raise broken(path, f"'{name}' has {end - begin:,} bytes, which its type and dims {list(dims)} do not need")
        expected = end
        reference = Reference(source.location, start + begin, end - begin)
        yield name, TensorEntry(dtype, dims, _aligned(reference, dtype, weights))
    if start + expected > source.size:
        raise broken(path, f"the file is truncated: it has {source.size:,} of {start + expected:,} bytes")
    if start + expected < source.size:
        raise broken(path, f"{source.size - start - expected:,} bytes at the end belong to no tensor")


def _aligned(reference: Reference, dtype: ir.DataType, weights: Weights) -> Callable[[], Reference]:
    """Return a function that returns the location of data: in the file, or in a copy if it is not aligned there."""
    if reference.offset % (dtype.bitwidth // 8) == 0:
        return lambda: reference
    return lambda: weights.spill(weights.view(reference))


def _header(path: Path, source: MappedFile) -> tuple[dict[str, tuple[ir.DataType, tuple[int, ...], int, int]], int]:
    """Return the header entry of each tensor, and the start of the data."""
    length = int.from_bytes(source.view(0, min(_LENGTH, source.size)), "little")
    if source.size < _LENGTH or length > min(_LONGEST, source.size - _LENGTH):
        raise broken(path, "it is truncated, or not a safetensors file")
    text = bytes(source.view(_LENGTH, length))
    try:
        found = json.loads(text, object_pairs_hook=lambda pairs: unique(path, pairs))
    except (ValueError, RecursionError) as error:
        raise broken(path, f"its header is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise broken(path, "its header is not a JSON object")
    found.pop(_METADATA, None)
    return {name: _described(path, name, entry) for name, entry in found.items()}, _LENGTH + length


def unique(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the dict of the pairs of a JSON object. Raises ModelFileError if a key occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise broken(path, f"it lists '{twice}' twice")
    return found


def _described(path: Path, name: str, entry: Any) -> tuple[ir.DataType, tuple[int, ...], int, int]:
    """Read the entry of a tensor: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}."""
    try:
        text, dims, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        numbers = [*dims, begin, end]
        sound = isinstance(text, str) and all(type(number) is int and number >= 0 for number in numbers)
    except (LookupError, TypeError, ValueError):
        sound = False
    if not sound or begin > end:
        raise broken(path, f"its entry '{name}' is not recognized")
    if text not in _TYPES:
        raise ModelFileError(f"'{name}' has the type {text}, which ONNX does not support", where=str(path))
    return _TYPES[text], dims, begin, end


def write(
    path: Path, tensors: Sequence[Named], weights: Weights, *, shard_size: int | None = None, force: bool = False
) -> list[Path]:
    """Write tensors, largest elements first for alignment; no file is moved into place before all are complete."""
    require_types("safetensors", tensors, NAMES, "exclude it with --names")
    ordered = sorted(tensors, key=lambda tensor: (-tensor.dtype.bitwidth, tensor.name))
    shards = _shards(ordered, shard_size)
    if len(shards) == 1:
        files = {check_target(path, force=force): shards[0]}
        index = None
    else:
        names = [f"{path.stem}-{n:05}-of-{len(shards):05}{path.suffix}" for n in range(1, len(shards) + 1)]
        targets = [check_target(path.with_name(name), force=force) for name in names]
        files = dict(zip(targets, shards, strict=True))
        index = check_target(path.with_name(f"{path.name}.index.json"), force=force)
    for target in files:
        spare_input(target, weights)
    contents: dict[Path, Callable[[NewFile], None]] = {
        target: partial(NewFile.write, parts=_pieces(shard), weights=weights) for target, shard in files.items()
    }
    if index is not None:
        contents[index] = partial(NewFile.write_text, text=_index(files))
    write_together(contents, index)
    return list(contents)


def _shards(tensors: Sequence[Named], limit: int | None) -> list[list[Named]]:
    """Divide tensors into shards, in order; a tensor above the limit gets a separate file."""
    shards: list[list[Named]] = [[]]
    size = 0
    for tensor in tensors:
        if limit is not None and shards[-1] and size + tensor.length > limit:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += tensor.length
    return shards


def _pieces(tensors: Sequence[Named]) -> Iterator[Piece]:
    """Yield the parts of a file."""
    header: dict[str, Any] = {_METADATA: {"format": "pt"}}
    end = 0
    for tensor in tensors:
        start, end = end, end + tensor.length
        header[tensor.name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.dims),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH)
    yield len(text).to_bytes(_LENGTH, "little") + text
    yield from (tensor.data for tensor in tensors)


def _index(files: dict[Path, list[Named]]) -> str:
    places = {tensor.name: path.name for path, tensors in files.items() for tensor in tensors}
    total = sum(tensor.length for tensors in files.values() for tensor in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    return f"{json.dumps(index, indent=2, ensure_ascii=False)}\n"
