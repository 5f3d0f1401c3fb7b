"""Checkpoints as torch.save writes them, by hand: opcodes of pickle protocol 2, zip archives, files from before 1.6."""

from __future__ import annotations

import pickle
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

STORAGES = {"f4": "FloatStorage", "f2": "HalfStorage", "f8": "DoubleStorage", "i8": "LongStorage", "u1": "ByteStorage"}


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", value)


def numbers(values: Sequence[int]) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def mapping(items: Mapping[str, bytes]) -> bytes:
    """A dict of values that are opcodes already."""
    return b"}(" + b"".join(text(name) + value for name, value in items.items()) + b"u"


def ordered(items: Mapping[str, bytes]) -> bytes:
    """An OrderedDict with the attribute `_metadata`, as state_dict() gives it."""
    pairs = b"(" + b"".join(text(name) + value for name, value in items.items()) + b"u"
    return b"ccollections\nOrderedDict\n)R" + pairs + mapping({"_metadata": b"ccollections\nOrderedDict\n)R"}) + b"b"


def storage(key: str, kind: str, elements: int, *, old: bool = False) -> bytes:
    """A persistent id; files from before 1.6 have one more entry."""
    return (
        b"(" + text("storage") + b"ctorch\n" + kind.encode() + b"\n" + text(key) + text("cpu") + number(elements)
    ) + (b"NtQ" if old else b"tQ")


def tensor(
    key: str,
    dims: Sequence[int],
    *,
    kind: str = "FloatStorage",
    elements: int | None = None,
    strides: Sequence[int] | None = None,
    offset: int = 0,
    parameter: bool = False,
    old: bool = False,
) -> bytes:
    """A call of _rebuild_tensor_v2."""
    if strides is None:
        strides = [int(np.prod(dims[axis + 1 :], dtype=np.int64)) for axis in range(len(dims))]
    count = int(np.prod(dims, dtype=np.int64)) if elements is None else elements
    hooks = b"\x89ccollections\nOrderedDict\n)R"
    made = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage(key, kind, count, old=old) + number(offset)
    made += numbers(dims) + numbers(strides) + hooks + b"tR"
    return b"ctorch._utils\n_rebuild_parameter\n(" + made + hooks + b"tR" if parameter else made


def program(value: bytes) -> bytes:
    return b"\x80\x02" + value + b"."


def archive(path: Path, data: bytes, storages: Mapping[str, bytes] | None = None, **more: Any) -> Path:
    """A zip archive with a pickle and storages; `more` are other members, `compressed` those that are."""
    compressed = more.pop("compressed", ())
    with zipfile.ZipFile(path, "w") as file:
        members = {"m/data.pkl": data, **{f"m/data/{key}": part for key, part in (storages or {}).items()}}
        for name, content in {**members, **more}.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED if name in compressed else zipfile.ZIP_STORED
            # As torch pads them, so that elements begin at multiples of 64 bytes.
            pad = -(file.start_dir + 30 + len(name) + 4) % 64
            info.extra = b"FB" + struct.pack("<H", pad) + b"Z" * pad
            file.writestr(info, content)
    return path


def state_dict(arrays: Mapping[str, np.ndarray[Any, Any]], *, old: bool = False) -> tuple[bytes, dict[str, bytes]]:
    """The pickle of a state dict, and its storages."""
    items, storages = {}, {}
    for index, (name, array) in enumerate(arrays.items()):
        key = str(index)
        items[name] = tensor(key, array.shape, kind=STORAGES[array.dtype.str[1:]], elements=array.size, old=old)
        storages[key] = array.tobytes()
    return ordered(items), storages


def saved(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Path:
    """torch.save(module.state_dict(), path)."""
    value, storages = state_dict(arrays)
    return archive(path, program(value), storages, **{"m/byteorder": "little", "m/version": "3\n"})


def saved_old(path: Path, value: bytes, storages: Mapping[str, tuple[int, bytes]]) -> Path:
    """A file from before PyTorch 1.6: five pickles, then the storages, each after the number of its elements."""
    head = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True, "type_sizes": {"int": 4}}]
    data = b"".join(pickle.dumps(part, 2) for part in head) + program(value) + pickle.dumps(list(storages), 2)
    data += b"".join(struct.pack("<q", count) + part for count, part in storages.values())
    path.write_bytes(data)
    return path
