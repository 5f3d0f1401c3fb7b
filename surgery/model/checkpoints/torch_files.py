"""Files of `torch.save`: a zip archive since PyTorch 1.6, a sequence of pickles before. No code in them is run.

An archive has `NAME/data.pkl`, a pickle that refers to storages by keys, and `NAME/data/KEY` for each storage, all
uncompressed. An older file has five pickles (a magic number, the version, sizes of C types, the value, the keys of the
storages), followed by each storage: the number of its elements in 8 bytes, and its elements.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

from surgery.base.errors import ModelFileError
from surgery.model.checkpoints.named_tensors import DAMAGED, Checkpoint, broken
from surgery.model.checkpoints.pickle_reader import (
    Global,
    Persistent,
    PickleError,
    UnsafePickleError,
    nested,
    read_pickle,
)
from surgery.model.checkpoints.torch_tensors import STORAGES, StorageData, checkpoint, refusal
from surgery.model.wire.weights import MappedFile, Weights
from surgery.model.wire.wire import Reference

SUFFIXES: Final = (".pt", ".pth", ".bin", ".ckpt")
_MAGIC: Final = 0x1950A86A20F9469CFC6C
_LARGEST_PICKLE: Final = 256 << 20
_LOCAL_HEADER: Final = 30
_LOCAL_SIGNATURE: Final = b"PK\x03\x04"
_ENCRYPTED: Final = 1


def read(path: Path, weights: Weights, key: str | None = None) -> Checkpoint:
    """List the tensors of a file; `key` selects the dict with the weights if there are several.

    Raises ModelFileError for a file that is damaged, or that would import or call anything unsafe, and UsageError for a
    key that does not exist.
    """
    source = weights.referable(weights.open(path))
    head = bytes(source.view(0, min(len(_LOCAL_SIGNATURE), source.size)))
    try:
        if head == _LOCAL_SIGNATURE:
            return _Archive(path, source).read(weights, key)
        return _read_old(path, source, weights, key)
    except PickleError as error:
        raise refusal(path, error) from error


class _Archive:
    """A zip archive with uncompressed members."""

    def __init__(self, path: Path, source: MappedFile) -> None:
        self.path = path
        self.source = source
        try:
            with source.path.open("rb") as file, zipfile.ZipFile(file) as archive:
                members = archive.infolist()
        except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError, OSError) as error:
            raise broken(path, f"it is truncated, damaged, or not a PyTorch checkpoint ({error})") from error
        for name, count in Counter(info.filename for info in members).items():
            if count > 1:
                raise broken(path, f"it lists '{name}' twice")
            if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/"):
                raise ModelFileError(
                    f"its member '{name}' points outside of the archive", where=str(path), todo="do not trust it"
                )
        self.members = {info.filename: info for info in members}
        self.root = self._root()

    def _root(self) -> str:
        """Return the root folder in the archive, with a trailing slash."""
        pickles = [name for name in self.members if name == "data.pkl" or name.endswith("/data.pkl")]
        if not pickles:
            what = "it is a zip archive without data.pkl, so it is not a PyTorch checkpoint"
            todo = "surgery export reads .pt2 programs" if self._is_program else None
            raise ModelFileError(what, where=str(self.path), todo=todo)
        if len(pickles) > 1:
            what = f"it has several pickles, {' and '.join(repr(name) for name in pickles[:3])}"
            raise ModelFileError(what, where=str(self.path), todo="do not trust it")
        root = pickles[0].removesuffix("data.pkl")
        if f"{root}constants.pkl" in self.members:
            todo = "save the state_dict() of torch.jit.load(...)"
            raise ModelFileError("this is a TorchScript program, not a checkpoint", where=str(self.path), todo=todo)
        return root

    @property
    def _is_program(self) -> bool:
        return any(name.endswith("models/model.json") for name in self.members)

    def read(self, weights: Weights, key: str | None) -> Checkpoint:
        """Read the pickle, and list the tensors."""
        place = self.place(f"{self.root}data.pkl")
        if place.length > _LARGEST_PICKLE:
            raise broken(self.path, f"its pickle has {place.length:,} bytes, too many for names and dims of tensors")
        value = read_pickle(io.BytesIO(self.source.view(place.offset, place.length)))
        big = self._text("byteorder") == b"big"

        def storage(name: str, needed: int) -> StorageData:
            found = self.place(f"{self.root}data/{name}")
            if found.length < needed:
                raise broken(self.path, f"storage '{name}' has {found.length:,} of {needed:,} bytes")
            return StorageData(found, big)

        return checkpoint(self.path, value, storage, weights, key)

    def _text(self, name: str) -> bytes:
        if f"{self.root}{name}" not in self.members:
            return b""
        place = self.place(f"{self.root}{name}")
        return bytes(self.source.view(place.offset, min(place.length, 64))).strip()

    def place(self, name: str) -> Reference:
        """Return the location of a member. Raises ModelFileError if it is missing, compressed or outside the file."""
        info = self.members.get(name)
        if info is None:
            raise broken(self.path, f"'{name}' is missing")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _ENCRYPTED:
            what = f"'{name}' is compressed or encrypted, which torch.save never does"
            raise ModelFileError(what, where=str(self.path), todo="save it again with torch.save")
        start = info.header_offset
        if not 0 <= start <= self.source.size - _LOCAL_HEADER:
            raise broken(self.path, f"'{name}' is outside of the file")
        head = bytes(self.source.view(start, _LOCAL_HEADER))
        named, extra = struct.unpack("<HH", head[26:])
        begin = start + _LOCAL_HEADER + named + extra
        if head[:4] != _LOCAL_SIGNATURE or begin + info.file_size > self.source.size:
            raise broken(self.path, f"'{name}' is outside of the file")
        inside = bytes(self.source.view(start + _LOCAL_HEADER, named)).decode("utf-8", "replace")
        if inside != info.orig_filename:
            raise ModelFileError(
                f"its directory lists '{name}', but the member has the name '{inside}'",
                where=str(self.path),
                todo="do not trust it",
            )
        return Reference(self.source.location, begin, info.file_size)


def _read_old(path: Path, source: MappedFile, weights: Weights, key: str | None) -> Checkpoint:
    """Read a file from before PyTorch 1.6."""
    with source.path.open("rb") as file:
        try:
            magic = read_pickle(file)
        except UnsafePickleError:
            raise
        except PickleError as error:
            raise _no_checkpoint(path) from error
        if magic != _MAGIC:
            raise _no_checkpoint(path)
        for _ in range(2):
            read_pickle(file)
        value, keys = read_pickle(file), read_pickle(file)
        start = file.tell()
    return checkpoint(path, value, _OldStorages(path, source, keys, start, value).find, weights, key)


def _no_checkpoint(path: Path) -> ModelFileError:
    return ModelFileError("this file was not written by torch.save", where=str(path), todo=DAMAGED)


class _OldStorages:
    """The storages of an old file, in the order of the keys, each with its number of elements.

    The element size is only in the persistent ids of the pickle.
    """

    def __init__(self, path: Path, source: MappedFile, keys: Any, start: int, value: Any) -> None:
        self._path = path
        self._places: dict[str, Reference] = {}
        sizes = _element_sizes(value)
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise PickleError("its storage keys are not recognized")
        for key in keys:
            if start + 8 > source.size:
                raise broken(path, "the file is truncated")
            (count,) = struct.unpack("<q", source.view(start, 8))
            length = count * sizes.get(key, 1)
            if count < 0 or start + 8 + length > source.size:
                raise broken(path, f"the file is truncated: storage '{key}' needs {length:,} bytes")
            self._places[key] = Reference(source.location, start + 8, length)
            start += 8 + length

    def find(self, key: str, needed: int) -> StorageData:
        """Return the location of a storage."""
        found = self._places.get(key)
        if found is None or found.length < needed:
            raise broken(self._path, f"storage '{key}' is missing or too short")
        return StorageData(found)


def _element_sizes(value: Any) -> dict[str, int]:
    """Return the element size in bytes of each storage that a value refers to."""
    found: dict[str, int] = {}
    for one in nested(value):
        if isinstance(one, Persistent) and isinstance(one.value, tuple) and len(one.value) >= 5:
            kind, key = one.value[1:3]
            if isinstance(kind, Global) and isinstance(key, str) and kind.name in STORAGES:
                found[key] = STORAGES[kind.name].bitwidth // 8
    return found
