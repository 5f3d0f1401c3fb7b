"""Files of named tensors: safetensors, in one file or in shards with an index, and npz. Read and written in a stream.

.safetensors                    all types of ONNX but string, complex128 and those below 8 bits
.safetensors.index.json         the same, in several files
.npz                            the types that numpy itself has: no bfloat16, no float8, no string
.npy                            one tensor, of the same types; read only
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from surgery.errors import ModelFileError, UsageError
from surgery.storage import npy, npz, safetensors
from surgery.storage.named_tensors import Checkpoint, Named
from surgery.storage.weights import Weights

__all__ = ["Checkpoint", "Named", "read_checkpoint", "write_checkpoint"]

FORMATS = (".safetensors", ".npz")


def read_checkpoint(path: Path, weights: Weights) -> Checkpoint:
    """List the tensors of a file, unread; `weights` keeps the file open for as long as they are used.

    Raises ModelFileError for a file that is missing, damaged or cut short, and for what is listed twice.
    """
    if not path.is_file():
        what = "this is a directory" if path.is_dir() else "no such file"
        raise ModelFileError(what, where=str(path), todo=f"name a file ({', '.join(FORMATS)}, .safetensors.index.json)")
    if path.name.endswith(".index.json"):
        return safetensors.read_shards(path, weights)
    if path.suffix == ".safetensors":
        return safetensors.read(path, weights)
    if path.suffix == ".npz":
        return npz.read(path, weights)
    if path.suffix == npy.SUFFIX:
        return npy.read(path, weights)
    raise UsageError(f"'{path.name}' has no suffix of a tensor file", todo=f"use {', '.join(FORMATS)}")


def write_checkpoint(
    path: Path, tensors: Sequence[Named], weights: Weights, *, shard_size: int | None = None, force: bool = False
) -> list[Path]:
    """Write tensors into a file, or into files of `shard_size` bytes at most with an index; return the files.

    The suffix says which format. Raises UsageError for a type that the format does not have, before anything is
    written, and OutputError when something cannot be written.
    """
    if path.suffix == ".safetensors":
        return safetensors.write(path, tensors, weights, shard_size=shard_size, force=force)
    if path.suffix != ".npz":
        raise UsageError(f"'{path.name}' names no format", todo=f"use the suffix {' or '.join(FORMATS)}")
    if shard_size is not None:
        raise UsageError("npz files have no shards", todo="use .safetensors")
    return npz.write(path, tensors, weights, force=force)
