"""The protobuf wire format, as far as it is needed for splitting and joining models.

A model file is a tree of length-delimited fields. `Rewriter` walks only the branches that can contain a tensor, and
copies everything else unread, so that its cost grows with the number of large messages.

Source: the encoding page of the Protocol Buffers documentation, and the field numbers of onnx-ml.proto.
"""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5

# Groups are read recursively here; protobuf itself reads at most 100 levels of messages.
_MAX_GROUPS: Final = 100
_MAX_VARINT: Final = 10

# Values up to this length, such as the modes of a tree ensemble, are skipped in runs.
_SHORT: Final = 31

# Number of fields of a run that are skipped at once.
_TOGETHER: Final = 4096


class WireError(Exception):
    """Bytes that are not protobuf. `offset` counts from the start of the data."""

    def __init__(self, what: str, offset: int) -> None:
        super().__init__(f"{what} at byte {offset:,}")


class Reference(NamedTuple):
    """A range of bytes in a file; `location` is the absolute path without the leading slash."""

    location: str
    offset: int
    length: int


# One field on the wire: number, wire type, start of the tag, start of the value, end of the value
Field = tuple[int, int, int, int, int]


class MessageKind(Enum):
    """The messages that are walked."""

    MODEL = auto()
    GRAPH = auto()
    NODE = auto()
    ATTRIBUTE = auto()
    DEFAULT = auto()
    FUNCTION = auto()
    TRAINING = auto()
    SPARSE = auto()
    TENSOR = auto()


_CHILDREN: Final[dict[MessageKind, dict[int, MessageKind]]] = {
    MessageKind.MODEL: {7: MessageKind.GRAPH, 20: MessageKind.TRAINING, 25: MessageKind.FUNCTION},
    MessageKind.TRAINING: {1: MessageKind.GRAPH, 2: MessageKind.GRAPH},
    MessageKind.GRAPH: {1: MessageKind.NODE, 5: MessageKind.TENSOR, 15: MessageKind.SPARSE},
    MessageKind.NODE: {5: MessageKind.ATTRIBUTE},
    MessageKind.ATTRIBUTE: {
        5: MessageKind.TENSOR,
        6: MessageKind.GRAPH,
        10: MessageKind.TENSOR,
        11: MessageKind.GRAPH,
        22: MessageKind.SPARSE,
        23: MessageKind.SPARSE,
    },
    MessageKind.FUNCTION: {7: MessageKind.NODE, 11: MessageKind.DEFAULT},
    MessageKind.SPARSE: {1: MessageKind.TENSOR, 2: MessageKind.TENSOR},
}
# The default value of an attribute of a function
_CHILDREN[MessageKind.DEFAULT] = _CHILDREN[MessageKind.ATTRIBUTE]

# Inside these, readers of ONNX files do not support external data: such tensors must be in the model file.
_ATTACHING: Final = frozenset({MessageKind.SPARSE, MessageKind.TRAINING, MessageKind.DEFAULT})

# Fields with at most one tensor. If such a field occurs twice, protobuf merges the two, field by field.
_SINGLE: Final[dict[MessageKind, frozenset[int]]] = {
    MessageKind.ATTRIBUTE: frozenset({5, 22}),
    MessageKind.DEFAULT: frozenset({5, 22}),
    MessageKind.SPARSE: frozenset({1, 2}),
}
_NONE: Final[frozenset[int]] = frozenset()

Piece = bytes | memoryview | Reference


class ByteRanges:
    """Bytes and file ranges in order, with their total size."""

    def __init__(self) -> None:
        self.parts: list[Piece] = []
        self.size = 0

    def add(self, piece: bytes | memoryview) -> None:
        """Append bytes."""
        if len(piece):
            self.parts.append(piece)
            self.size += len(piece)

    def refer(self, reference: Reference) -> None:
        """Append a range of a file."""
        if reference.length:
            self.parts.append(reference)
            self.size += reference.length

    def extend(self, other: ByteRanges) -> None:
        """Append another sequence."""
        self.parts.extend(other.parts)
        self.size += other.size


def encode_varint(value: int) -> bytes:
    """Encode a non-negative number."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_tag(number: int, wire: int) -> bytes:
    """Encode the tag of a field."""
    return encode_varint(number << 3 | wire)


def decode_varint(data: memoryview | bytes, position: int, stop: int) -> tuple[int, int]:
    """Return the number at `position` and the position after it; raise WireError."""
    value = 0
    for index in range(position, min(stop, position + _MAX_VARINT)):
        byte = data[index]
        value |= (byte & 0x7F) << 7 * (index - position)
        if byte < 0x80:
            return value, index + 1
    if stop < position + _MAX_VARINT:
        raise WireError("the data ends within a number", stop)
    raise WireError("a number is longer than ten bytes", position)


def fields(data: memoryview | bytes, start: int, stop: int, wanted: Container[int] | None = None) -> Iterator[Field]:
    """Yield the fields of the message in `data[start:stop]`; raise WireError if it is not a message.

    With `wanted` numbers, runs of any other field are skipped after their first field, because an attribute may have
    millions of numbers.
    """
    position, before = start, -1
    while position < stop:
        tag = data[position]
        if tag == before and wanted is not None and tag >> 3 not in wanted:
            before, position = -1, past_run(data, position, stop, tag)
            continue
        before, payload = tag, position + 1
        if tag >= 0x80:
            tag, payload = decode_varint(data, position, stop)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise WireError("a field has the number 0", position)
        if wire == LENGTH:
            # Most lengths have one byte; this is the innermost loop of loading.
            if payload < stop and data[payload] < 0x80:
                length = data[payload]
                payload += 1
            else:
                length, payload = decode_varint(data, payload, stop)
            end = payload + length
            if end > stop:
                raise WireError(f"field {number} needs {length:,} bytes, but {stop - payload:,} are left", payload)
        else:
            end = _skip(data, number, wire, payload, stop)
        yield number, wire, position, payload, end
        position = end


def past_run(data: memoryview | bytes, position: int, stop: int, tag: int) -> int:
    """Return the position after a run of short, complete fields with this tag."""
    run = _run(tag)
    while run is not None and (found := run.match(data, position, stop)) is not None:
        position = found.end()
    return position


@functools.cache
def _run(tag: int) -> re.Pattern[bytes] | None:
    """Compile a pattern for some fields with a one-byte tag.

    A greedy repetition stores a state for each field, so their number is limited. A possessive one would not, but
    Python before 3.11.5 continues in the middle of a field after it.
    """
    short = b"|".join(re.escape(bytes([length])) + b".{%d}" % length for length in range(_SHORT + 1))
    values = {VARINT: rb"[\x80-\xff]{0,9}[\x00-\x7f]", FIXED32: b".{4}", FIXED64: b".{8}", LENGTH: b"(?:%s)" % short}
    value = values.get(tag & 7) if tag < 0x80 else None
    return (
        None
        if value is None
        else re.compile(b"(?:%s%s){1,%d}" % (re.escape(bytes([tag])), value, _TOGETHER), re.DOTALL)
    )


def _skip(data: memoryview | bytes, number: int, wire: int, payload: int, stop: int, depth: int = 0) -> int:
    """Return the position after a value that is not length-delimited."""
    if wire == VARINT:
        return decode_varint(data, payload, stop)[1]
    if wire in (FIXED32, FIXED64):
        end = payload + (4 if wire == FIXED32 else 8)
        if end > stop:
            raise WireError(f"field {number} is cut off", payload)
        return end
    if wire == GROUP and depth < _MAX_GROUPS:
        return _skip_group(data, number, payload, stop, depth)
    raise WireError(f"field {number} has the impossible wire type {wire}", payload)


def _skip_group(data: memoryview | bytes, number: int, position: int, stop: int, depth: int) -> int:
    """Return the position after the end tag of group `number`."""
    while position < stop:
        tag, payload = decode_varint(data, position, stop)
        if tag & 7 == END_GROUP:
            if tag >> 3 != number:
                break
            return payload
        if tag & 7 == LENGTH:
            length, payload = decode_varint(data, payload, stop)
            position = payload + length
        else:
            position = _skip(data, tag >> 3, tag & 7, payload, stop, depth + 1)
    raise WireError(f"group {number} has no end", position)


class Rewriter(ABC):
    """Walks a model at the wire level and replaces some of its tensors."""

    def __init__(self, data: memoryview | bytes) -> None:
        self.data = memoryview(data)

    @abstractmethod
    def wanted(self, start: int, stop: int) -> bool:
        """Return whether to visit the message in this range; otherwise it is copied unread."""

    @abstractmethod
    def tensor(self, start: int, stop: int, attached: bool) -> ByteRanges | None:
        """Return the replacement of the TensorProto in this range; None to keep it.

        `attached` says that readers expect the data of this tensor inside the model file.
        """

    def attribute(self, start: int, stop: int) -> ByteRanges | None:
        """Return the replacement of the AttributeProto in this range; None to visit what is in it."""
        return None

    def rewrite(self) -> ByteRanges:
        """Return the whole model, rewritten."""
        changed = self._message(0, len(self.data), MessageKind.MODEL, False)
        if changed is None:
            changed = ByteRanges()
            changed.add(self.data)
        return changed

    def _rewritten(self, start: int, stop: int, kind: MessageKind, attached: bool) -> ByteRanges | None:
        """Rewrite one message of any kind; return None if nothing in it changes."""
        if kind is MessageKind.TENSOR:
            return self.tensor(start, stop, attached)
        new = self.attribute(start, stop) if kind is MessageKind.ATTRIBUTE else None
        return self._message(start, stop, kind, attached) if new is None else new

    def _message(self, start: int, stop: int, kind: MessageKind, attached: bool) -> ByteRanges | None:
        """Rewrite one message; return None if nothing in it changes."""
        children, single = _CHILDREN[kind], _SINGLE.get(kind, _NONE)
        attached = attached or kind in _ATTACHING
        seen: set[int] = set()
        out = ByteRanges()
        copied = start
        for number, wire, tag, payload, end in fields(self.data, start, stop, children):
            child = children.get(number) if wire == LENGTH else None
            if child is None:
                continue
            if number in single:
                if number in seen:
                    # The parts of a merged message cannot be rewritten one by one, so it is left unchanged.
                    return None
                seen.add(number)
            if not self.wanted(payload, end):
                continue
            new = self._rewritten(payload, end, child, attached)
            if new is not None:
                out.add(self.data[copied:tag])
                out.add(encode_tag(number, LENGTH) + encode_varint(new.size))
                out.extend(new)
                copied = end
        if copied == start:
            return None
        out.add(self.data[copied:stop])
        return out
