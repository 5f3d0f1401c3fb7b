"""Files of named tensors: safetensors, in one file or in shards with an index, and npz. Reading and writing stream.

PyTorch checkpoints and GGUF are only read, and code in them is never run.

.safetensors                    all ONNX types except string, complex128 and types below 8 bits
.safetensors.index.json         the same, in several files
.npz                            the types of NumPy itself: no bfloat16, no float8, no string
.npy                            one tensor, of the same types; read only
.pt, .pth, .bin, .ckpt          tensors written by torch.save; read only, also *.bin.index.json
.gguf                           the format of llama.cpp, quantized types as float32; read only, with the package gguf
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from surgery.base.errors import ModelFileError, UsageError
from surgery.model.checkpoints import gguf_files, npy, npz, safetensors, shards, torch_files
from surgery.model.checkpoints.named_tensors import Checkpoint, Named
from surgery.model.wire.weights import Weights

__all__ = ["Checkpoint", "Named", "read_checkpoint", "write_checkpoint"]

FORMATS = (".safetensors", ".npz")


def read_checkpoint(path: Path, weights: Weights, *, key: str | None = None) -> Checkpoint:
    """List the tensors of a file without reading them; `weights` keeps the file open while they are used.

    `key` is the key of the weights in a PyTorch checkpoint, if it has several dicts of tensors.

    Raises ModelFileError for a file that is missing, damaged or truncated, that would run code, or that lists a tensor
    twice, and UsageError for a key that does not exist.
    """
    if not path.is_file():
        what = "this is a directory" if path.is_dir() else "no such file"
        raise ModelFileError(what, where=str(path), todo=f"name a file ({', '.join(READ)})")
    if path.name.endswith(".index.json"):
        return shards.read(path, lambda shard: _read_one(shard, weights, key))
    return _read_one(path, weights, key)


def _read_one(path: Path, weights: Weights, key: str | None) -> Checkpoint:
    try:
        if path.suffix in torch_files.SUFFIXES:
            return torch_files.read(path, weights, key)
        if key is not None:
            raise UsageError(f"'{path.name}' is not a PyTorch checkpoint and has no key '{key}'", todo="omit the key")
        if path.suffix in _READERS:
            return _READERS[path.suffix](path, weights)
    except OSError as error:
        raise ModelFileError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    raise UsageError(f"'{path.name}' has no suffix of a tensor file", todo=f"use {', '.join(READ)}")


_READERS = {
    ".safetensors": safetensors.read,
    ".npz": npz.read,
    npy.SUFFIX: npy.read,
    gguf_files.SUFFIX: gguf_files.read,
}
READ = (*_READERS, *torch_files.SUFFIXES, ".safetensors.index.json")


def write_checkpoint(
    path: Path, tensors: Sequence[Named], weights: Weights, *, shard_size: int | None = None, force: bool = False
) -> list[Path]:
    """Write tensors to a file, or to files of at most `shard_size` bytes with an index; return the files.

    The suffix determines the format. Raises UsageError for a type that the format does not support, before anything is
    written, and OutputError if a file cannot be written.
    """
    if path.suffix == ".safetensors":
        return safetensors.write(path, tensors, weights, shard_size=shard_size, force=force)
    if path.suffix != ".npz":
        raise UsageError(f"'{path.name}' does not determine a format", todo=f"use the suffix {' or '.join(FORMATS)}")
    if shard_size is not None:
        raise UsageError("npz files cannot be sharded", todo="use .safetensors")
    return npz.write(path, tensors, weights, force=force)
