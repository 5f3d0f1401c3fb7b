"""Messages between a process and its workers: a JSON header, then the raw bytes of its buffers.

Messages are plain data, never pickles: native code may have corrupted the worker, and reading its messages must not
run code.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, cast

import numpy as np

Array = np.ndarray[Any, Any]

_LENGTH = struct.Struct("<Q")
_HEADER_LIMIT = 1 << 30
_BATCH = 1 << 16
_ALIGNMENT = 16
"""Bytes to which received arrays are aligned, as NumPy's own are."""
_KIND = "$"
_SCALARS = frozenset({bool, int, float, str, type(None)})

T = TypeVar("T")


class ClosedError(Exception):
    """The other side has closed the connection."""


class ExpiredError(Exception):
    """The message did not arrive in time."""


def pack(message: object) -> list[bytes | memoryview]:
    """Convert a message of None, numbers, strings, bytes, arrays, lists and dicts to the pieces that `send` sends.

    Raises TypeError for other objects.
    """
    buffers: list[memoryview] = []
    body = _encode(message, buffers)
    header = json.dumps({"body": body, "sizes": [buffer.nbytes for buffer in buffers]}).encode()
    return [_LENGTH.pack(len(header)) + header, *buffers]


def send(channel: socket.socket, pieces: list[bytes | memoryview]) -> None:
    """Send a packed message; raise `ClosedError` if the other side has ended."""
    try:
        for batch in _batches(pieces, [memoryview(piece).nbytes for piece in pieces]):
            channel.sendall(batch[0] if len(batch) == 1 else b"".join(batch))
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ClosedError from error


def receive(channel: socket.socket, deadline: float | None = None) -> Any:
    """Receive one message; `deadline` is a time of `time.monotonic`.

    Raises `ClosedError` if the other side has ended, even within a message, and `ExpiredError` at the deadline.
    """
    (length,) = _LENGTH.unpack(_read(channel, _LENGTH.size, deadline))
    if length > _HEADER_LIMIT:
        raise ClosedError(f"a header of {length} bytes is not ours")
    header = json.loads(_read(channel, length, deadline))
    buffers: list[memoryview] = []
    sizes: list[int] = header["sizes"]
    for batch in _batches(sizes, sizes):
        data, begin = memoryview(_read(channel, sum(batch), deadline)), 0
        for size in batch:
            buffers.append(data[begin : begin + size])
            begin += size
    return _decode(header["body"], buffers)


def _batches(items: Sequence[T], sizes: Sequence[int]) -> Iterator[list[T]]:
    """Yield batches of consecutive small items, because one system call per item would be slower than copying."""
    batch: list[T] = []
    room = _BATCH
    for item, size in zip(items, sizes):
        if batch and size > room:
            yield batch
            batch, room = [], _BATCH
        batch.append(item)
        room -= size
    if batch:
        yield batch


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype with a name, including those of ml_dtypes ("bfloat16", "int4")."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found


def _read(channel: socket.socket, size: int, deadline: float | None) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        remaining = None if deadline is None else deadline - time.monotonic()
        if remaining is not None and remaining <= 0:
            raise ExpiredError
        channel.settimeout(remaining)
        try:
            count = channel.recv_into(view)
        except TimeoutError as error:
            raise ExpiredError from error
        except ConnectionResetError as error:
            raise ClosedError from error
        finally:
            channel.settimeout(None)
        if count == 0:
            raise ClosedError
        view = view[count:]
    return data


def _encode(value: object, buffers: list[memoryview]) -> object:
    if value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, (list, tuple)):
        return [_encode(item, buffers) for item in value]
    if isinstance(value, dict):
        if _is_plain(value):
            return {_KIND: "plain", "value": value}
        items = [[_encode(key, buffers), _encode(item, buffers)] for key, item in value.items()]
        return {_KIND: "dict", "items": items}
    if isinstance(value, (bytes, bytearray, memoryview)):
        buffers.append(memoryview(value).cast("B"))
        return {_KIND: "bytes", "buffer": len(buffers) - 1}
    if isinstance(value, (np.ndarray, np.generic)):
        return _encode_array(np.asarray(value), buffers)
    raise TypeError(f"a {type(value).__name__} cannot be sent to or from a worker")


def _is_plain(value: object) -> bool:
    """Return whether JSON returns a value as it is, except for tuples."""
    kind = type(value)
    if kind is list or kind is tuple:
        return all(map(_is_plain, cast("Sequence[object]", value)))
    if kind is dict:
        found = cast("dict[object, object]", value)
        return all(type(key) is str for key in found) and all(map(_is_plain, found.values()))
    return kind in _SCALARS


def _encode_array(array: Array, buffers: list[memoryview]) -> object:
    shape = list(array.shape)
    if array.dtype.kind in "OUS":
        items = [_encode(item, buffers) for item in array.reshape(-1).tolist()]
        return {_KIND: "objects", "shape": shape, "items": items}
    if array.size > 1 and not any(array.strides):
        # A view that repeats one element.
        element = np.array(array.reshape(-1)[:1])
        return {_KIND: "repeated", "shape": shape, "element": _encode_array(element, buffers)}
    # The buffer protocol lacks the types of ml_dtypes, and memoryview.cast rejects empty arrays, so use bytes.
    flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    buffers.append(memoryview(flat) if flat.size else memoryview(b""))
    return {_KIND: "array", "dtype": array.dtype.name, "shape": shape, "buffer": len(buffers) - 1}


def _decode(value: Any, buffers: list[memoryview]) -> Any:
    if isinstance(value, list):
        # A fast path, because the shapes of all values of a model are many short lists of numbers.
        return [_decode(item, buffers) if isinstance(item, (list, dict)) else item for item in value]
    if not isinstance(value, dict):
        return value
    match value[_KIND]:
        case "plain":
            # The shapes of all values of a model are thousands of small lists, which are not visited.
            return value["value"]
        case "dict":
            return {_decode(key, buffers): _decode(item, buffers) for key, item in value["items"]}
        case "bytes":
            return bytes(buffers[value["buffer"]])
        case "repeated":
            return np.broadcast_to(_decode(value["element"], buffers).reshape(()), value["shape"])
        case "array":
            flat = np.frombuffer(buffers[value["buffer"]], dtype=dtype_of(value["dtype"]))
            # Small arrays arrive one after another. Kernels sum in another order where an input is not aligned.
            aligned = flat.__array_interface__["data"][0] % _ALIGNMENT == 0
            return (flat if aligned else flat.copy()).reshape(value["shape"])
        case _:
            objects = np.empty(len(value["items"]), dtype=object)
            objects[:] = [_decode(item, buffers) for item in value["items"]]
            return objects.reshape(value["shape"])
