"""Join a skeleton and its weights at the wire level: plan the bytes of the model file without reading them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import onnx

from surgery.model.wire.splitter import RAW_DATA
from surgery.model.wire.stored_lists import restored
from surgery.model.wire.tensors import external_reference, is_external, refer
from surgery.model.wire.wire import LENGTH, ByteRanges, Reference, Rewriter, encode_tag, encode_varint, fields

if TYPE_CHECKING:
    from surgery.model.wire.weights import Encoding, Weights

_PAGE: Final = 4096
_SMALL_ALIGNMENT: Final = 64
# Tensors from this size on start at a page boundary, so that they can be mapped individually.
_PAGE_FROM: Final = 1 << 20


class DataFile:
    """The plan of a file of external data."""

    def __init__(self, name: str, alignment: int = 1) -> None:
        self.name = name
        self.parts: dict[Reference, int] = {}
        self.end = 0
        self._alignment = alignment

    def place(self, reference: Reference) -> Reference:
        """Return the location of a range in the planned file; a range requested twice is stored once."""
        if reference not in self.parts:
            alignment = max(_PAGE if reference.length >= _PAGE_FROM else _SMALL_ALIGNMENT, self._alignment)
            self.parts[reference] = -(-self.end // alignment) * alignment
            self.end = self.parts[reference] + reference.length
        return Reference(self.name, self.parts[reference], reference.length)

    def lies_in(self, path: Path, weights: Weights) -> bool:
        """Return whether the file at this path already equals the plan: each range is at its planned offset."""
        location = str(path).lstrip("/")
        if not weights.uses(path) or path.stat().st_size != self.end or weights.source(location).changed():
            return False
        return all(part.location == location and part.offset == offset for part, offset in self.parts.items())


class DataFiles:
    """The plan of all external data: one file, or several of at most `shard_size` bytes, named by their number from 0.

    A larger tensor gets a separate file.
    """

    def __init__(self, names: Callable[[int], str], shard_size: int | None = None, alignment: int = 1) -> None:
        self.files: list[DataFile] = []
        self._names = names
        self._limit = shard_size
        self._alignment = alignment
        self._homes: dict[Reference, DataFile] = {}

    def place(self, reference: Reference) -> Reference:
        """Return the planned location of a range; a range requested twice is stored once."""
        if reference not in self._homes:
            self._homes[reference] = self._with_room(reference.length)
        return self._homes[reference].place(reference)

    def _with_room(self, length: int) -> DataFile:
        if not self.files or (self._limit is not None and self.files[-1].end + length > self._limit):
            self.files.append(DataFile(self._names(len(self.files)), self._alignment))
        return self.files[-1]


class Joiner(Rewriter):
    """Puts the data of external tensors back, into their messages or into data files.

    `outside` decides, for each tensor that may be outside the model file, whether it goes there.
    """

    def __init__(
        self,
        skeleton: bytes,
        weights: Weights,
        data: DataFiles,
        outside: Callable[[Reference], bool],
    ) -> None:
        super().__init__(skeleton)
        self._bytes = skeleton
        self._weights = weights
        self._data = data
        self._outside = outside

    def wanted(self, start: int, stop: int) -> bool:
        """Follow the messages that can hold a reference."""
        return self._bytes.find(b"location", start, stop) >= 0

    def tensor(self, start: int, stop: int, attached: bool) -> ByteRanges | None:
        """Return the message of a tensor with its data inside, or with a reference to a data file."""
        tensor = onnx.TensorProto.FromString(self._bytes[start:stop])
        if not is_external(tensor):
            return None
        reference = external_reference(tensor)
        # Check that the bytes exist before anything is written.
        self._weights.view(reference)
        if not attached and self._outside(reference):
            refer(tensor, self._data.place(reference))
            out = ByteRanges()
            out.add(tensor.SerializeToString())
            return out
        return _inline(tensor, reference, self._weights.encodings.get(reference))

    def attribute(self, start: int, stop: int) -> ByteRanges | None:
        """Return the message of an attribute with its list, as in its file; None for other attributes."""
        made = restored(self.data, start, stop)
        for part in made.parts if made is not None else ():
            if isinstance(part, Reference):
                self._weights.view(part)
        return made


def _inline(tensor: onnx.TensorProto, reference: Reference, encoding: Encoding | None) -> ByteRanges:
    """Return a tensor message with its payload, in the original encoding if known, or else as raw data."""
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    number = RAW_DATA
    wire: tuple[Reference, ...] = ()
    if encoding is not None:
        if encoding.default_location:
            tensor.data_location = onnx.TensorProto.DEFAULT
        # Typed fields are valid only for their own data types, and the data type may have changed since.
        if encoding.data_type == tensor.data_type:
            number, wire = encoding.field, encoding.wire
    head, tail = _cut(tensor.SerializeToString(), number)
    out = ByteRanges()
    out.add(head)
    for part in wire:
        out.refer(part)
    if not wire:
        out.add(encode_tag(number, LENGTH) + encode_varint(reference.length))
        out.refer(reference)
    out.add(tail)
    return out


def _cut(message: bytes, number: int) -> tuple[bytes, bytes]:
    """Split a message at the position of a field of this number, in the order that protobuf itself writes."""
    for field in fields(message, 0, len(message)):
        if field[0] > number:
            return message[: field[2]], message[field[2] :]
    return message, b""
