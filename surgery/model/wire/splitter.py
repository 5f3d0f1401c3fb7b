"""Split a model at the wire level: leave each large tensor in place, and refer to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from surgery.model.wire.stored_lists import FROM, run_of, standing
from surgery.model.wire.tensors import EXTERNAL, payload_size
from surgery.model.wire.weights import Encoding, Weights
from surgery.model.wire.wire import (
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    ByteRanges,
    Field,
    Reference,
    Rewriter,
    WireError,
    decode_varint,
    encode_tag,
    encode_varint,
    fields,
)

# Fields of TensorProto
_DIMS: Final = 1
_DATA_TYPE: Final = 2
_SEGMENT: Final = 3
_STRING_DATA: Final = 6
RAW_DATA: Final = 9
_EXTERNAL_DATA: Final = 13
_DATA_LOCATION: Final = 14

# The wire type of an unpacked element, for each field with typed data
_ELEMENT_WIRE: Final = {4: FIXED32, 10: FIXED64, 5: VARINT, 7: VARINT, 11: VARINT}
_FIXED_SIZE: Final = {FIXED32: 4, FIXED64: 8}

# The element type in raw data, for each typed field and each data type that may use it
_RAW_ELEMENT: Final[dict[int, dict[int, str]]] = {
    4: {1: "<u4", 14: "<u4"},
    10: {11: "<u8", 15: "<u8"},
    7: {7: "<u8"},
    11: {12: "<u4", 13: "<u8"},
    5: {
        6: "<u4",
        **dict.fromkeys((4, 5, 10, 16), "<u2"),
        # Types of two and four bits are packed into bytes in int32_data.
        **dict.fromkeys((2, 3, 9, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26), "u1"),
    },
}

_CHUNK: Final = 1 << 20


class FieldRun(NamedTuple):
    """Adjacent fields with the same number: `start` to `stop` includes the tags, `spans` are the packed payloads.

    A run of unpacked elements has no spans.
    """

    number: int
    start: int
    stop: int
    spans: tuple[tuple[int, int], ...]


class Scan:
    """The facts about a TensorProto, read at the wire level."""

    def __init__(self, data: memoryview, start: int, stop: int) -> None:
        self.data_type = 0
        self.dims: list[int] = []
        self.external = False
        self.default_location = False
        self.plain = True
        self.runs: list[FieldRun] = []
        for field in fields(data, start, stop):
            self._take(data, field)
            if not self.plain:
                # A million strings may follow.
                break

    def _take(self, data: memoryview, field: Field) -> None:
        number, wire, _, payload, stop = field
        if number == RAW_DATA or number in _ELEMENT_WIRE:
            self._take_payload(field)
        elif number == _DIMS and wire == VARINT:
            self.dims.append(decode_varint(data, payload, stop)[0])
        elif number == _DIMS and wire == LENGTH:
            while payload < stop:
                dim, payload = decode_varint(data, payload, stop)
                self.dims.append(dim)
        elif number == _DATA_TYPE and wire == VARINT:
            self.data_type = decode_varint(data, payload, stop)[0]
        elif number == _DATA_LOCATION and wire == VARINT:
            self.external = decode_varint(data, payload, stop)[0] == EXTERNAL
            self.default_location = not self.external
        elif number in (_SEGMENT, _STRING_DATA, _EXTERNAL_DATA):
            self.plain = False

    def _take_payload(self, field: Field) -> None:
        number, wire, start, payload, stop = field
        spans: tuple[tuple[int, int], ...] = ()
        if wire == LENGTH:
            spans = ((payload, stop),)
        elif number == RAW_DATA or wire != _ELEMENT_WIRE[number]:
            self.plain = False
        last = self.runs[-1] if self.runs else None
        if last and last.number == number and last.stop == start and bool(last.spans) == bool(spans):
            self.runs[-1] = FieldRun(number, last.start, stop, last.spans + spans)
        else:
            self.runs.append(FieldRun(number, start, stop, spans))


class Splitter(Rewriter):
    """Replaces each large tensor by a reference, and records in `weights` how it was encoded; also each long list.

    `locate` returns the location of the data and the offset of its first byte there; it is called once, for the first
    large tensor. A tensor is large if its payload has at least `limit` bytes. `lists` counts the replaced lists.
    """

    def __init__(
        self, data: memoryview | bytes, weights: Weights, locate: Callable[[], tuple[str, int]], limit: int
    ) -> None:
        super().__init__(data)
        self.weights = weights
        self.limit = max(limit, 1)
        self.references: set[Reference] = set()
        self.lists = 0
        self._locate = locate
        self._place: tuple[str, int] | None = None

    def wanted(self, start: int, stop: int) -> bool:
        """Visit only large messages."""
        return stop - start >= self.limit

    def tensor(self, start: int, stop: int, attached: bool) -> ByteRanges | None:
        """Replace the payload of a tensor if it is large and regular; otherwise leave it to protobuf."""
        scan = Scan(self.data, start, stop)
        numbers = {run.number for run in scan.runs}
        if scan.external or not scan.plain or len(numbers) != 1:
            return None
        size = payload_size(scan.data_type, scan.dims)
        wire_size = sum(run.stop - run.start for run in scan.runs)
        if size is None or min(size, wire_size) < self.limit:
            return None
        number = numbers.pop()
        reference = self._raw(scan, size) if number == RAW_DATA else self._typed(scan, number, size)
        if reference is None:
            return None
        self.references.add(reference)
        return self._referring(scan, start, stop, reference)

    def attribute(self, start: int, stop: int) -> ByteRanges | None:
        """Replace the list of an attribute if it is long and regular."""
        least = max(self.limit, FROM)
        run = run_of(self.data, start, stop, least) if stop - start >= least else None
        if run is None:
            return None
        self.lists += 1
        return standing(self.data, start, stop, run, self._here(*run))

    def _raw(self, scan: Scan, size: int) -> Reference | None:
        """Refer to `raw_data`; if the field is repeated, the last one counts."""
        start, stop = scan.runs[-1].spans[-1]
        if stop - start != size:
            return None
        reference = self._here(start, stop)
        self.weights.encodings[reference] = Encoding(scan.data_type, RAW_DATA, default_location=scan.default_location)
        return reference

    def _typed(self, scan: Scan, number: int, size: int) -> Reference | None:
        """Refer to packed floats in place; write other elements to the scratch file as raw data."""
        element = _RAW_ELEMENT[number].get(scan.data_type)
        if element is None:
            return None
        itemsize = np.dtype(element).itemsize
        count = sum(_count(self.data, run) for run in scan.runs)
        if count * itemsize != size:
            return None
        only = scan.runs[0].spans if len(scan.runs) == 1 else ()
        wire: tuple[Reference, ...] = ()
        if len(only) == 1 and _ELEMENT_WIRE[number] in _FIXED_SIZE:
            reference = self._here(*only[0])
        else:
            try:
                reference = self.weights.spill(_elements(self.data, scan.runs, number, element))
            except WireError:
                return None
            wire = tuple(self._here(run.start, run.stop) for run in scan.runs)
        self.weights.encodings[reference] = Encoding(scan.data_type, number, wire, scan.default_location)
        return reference

    def _here(self, start: int, stop: int) -> Reference:
        """Return the reference of a range of the data."""
        if self._place is None:
            self._place = self._locate()
        location, base = self._place
        return Reference(location, base + start, stop - start)

    def _referring(self, scan: Scan, start: int, stop: int, reference: Reference) -> ByteRanges:
        """Return the message with its payload replaced by external data."""
        out = ByteRanges()
        position = start
        for run in scan.runs:
            out.add(self.data[position : run.start])
            position = run.stop
        out.add(self.data[position:stop])
        entries = zip(reference._fields, reference, strict=True)
        tail = b"".join(_length_field(_EXTERNAL_DATA, _entry(key, str(value))) for key, value in entries)
        out.add(tail + encode_tag(_DATA_LOCATION, VARINT) + encode_varint(EXTERNAL))
        return out


def _entry(key: str, value: str) -> bytes:
    """Encode a StringStringEntryProto."""
    return _length_field(1, key.encode()) + _length_field(2, value.encode())


def _length_field(number: int, payload: bytes) -> bytes:
    return encode_tag(number, LENGTH) + encode_varint(len(payload)) + payload


def _count(data: memoryview, run: FieldRun) -> int:
    """Count the elements of a run. Only the last byte of each number on the wire is below 0x80."""
    wire = _ELEMENT_WIRE[run.number]
    size = _FIXED_SIZE.get(wire)
    if not run.spans:
        if size is not None:
            return (run.stop - run.start) // (1 + size)
        return _count_numbers(data, run.start, run.stop) // 2
    if size is not None:
        return sum((stop - start) // size for start, stop in run.spans)
    return sum(_count_numbers(data, start, stop) for start, stop in run.spans)


def _count_numbers(data: memoryview, start: int, stop: int) -> int:
    count = 0
    for position in range(start, stop, _CHUNK):
        chunk = np.frombuffer(data[position : min(position + _CHUNK, stop)], np.uint8)
        count += int(np.count_nonzero(chunk < 0x80))
    return count


def _elements(data: memoryview, runs: list[FieldRun], number: int, element: str) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the elements of a typed field as raw data, piece by piece. Raises WireError."""
    size = _FIXED_SIZE.get(_ELEMENT_WIRE[number])
    for run in runs:
        for start, stop in run.spans:
            if size is None:
                for numbers in _numbers(data, start, stop):
                    yield numbers.astype(element)
            elif (stop - start) % size:
                raise WireError("packed elements are cut off", start)
            else:
                yield np.frombuffer(data[start:stop], np.uint8)
        if not run.spans:
            yield from _single_elements(data, run, element)


def _single_elements(data: memoryview, run: FieldRun, element: str) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the unpacked elements of a run, each with its own one-byte tag. Raises WireError."""
    wire = _ELEMENT_WIRE[run.number]
    tag = run.number << 3 | wire
    if wire in _FIXED_SIZE:
        stride = 1 + _FIXED_SIZE[wire]
        if (run.stop - run.start) % stride:
            raise WireError("a tag is longer than necessary", run.start)
        rows = np.frombuffer(data[run.start : run.stop], np.uint8).reshape(-1, stride)
        if (rows[:, 0] != tag).any():
            raise WireError("a tag is longer than necessary", run.start)
        yield rows[:, 1:]
        return
    first = 0
    for numbers in _numbers(data, run.start, run.stop):
        # A chunk may begin with a tag or with an element.
        if (numbers[first::2] != tag).any():
            raise WireError("a tag is longer than necessary", run.start)
        yield numbers[1 - first :: 2].astype(element)
        first = (first + len(numbers)) % 2


def _numbers(data: memoryview, start: int, stop: int) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the varints of a range as uint64 arrays, about a mebibyte of wire data at a time."""
    position = start
    while position < stop:
        chunk = np.frombuffer(data[position : min(position + _CHUNK, stop)], np.uint8)
        ends = np.flatnonzero(chunk < 0x80)
        if not len(ends):
            raise WireError("a number is cut off", position)
        starts = np.concatenate(([0], ends[:-1] + 1))
        lengths = ends - starts + 1
        if lengths.max() > 10:
            raise WireError("a number is longer than ten bytes", position)
        values = np.zeros(len(ends), np.uint64)
        for index in range(int(lengths.max())):
            more = lengths > index
            byte = (chunk[starts[more] + index] & 0x7F).astype(np.uint64)
            values[more] |= byte << np.uint64(7 * index)
        yield values
        position += int(ends[-1]) + 1
