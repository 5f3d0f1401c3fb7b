"""Find initializers with the same tensor, reading weights only up to their first difference."""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

import numpy as np

from surgery.model.graph.values import Value
from surgery.model.storage import Weights

_PIECE = 1 << 22
"""Number of bytes compared at a time."""
_SAMPLES = 16
_SAMPLE_BYTES = 256

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
T = TypeVar("T")


def equal_tensors(values: Iterable[Value], weights: Weights | None = None) -> list[list[Value]]:
    """Group initializers of the same element type, dims and bits; each group has two or more, in the given order.

    `weights` are those of the model.
    """
    groups = _split([value for value in values if value.held is not None], _kind)
    with nullcontext() if weights is None else weights.in_small_bites():
        groups = [part for group in groups for part in _split(group, _sample)]
    return [part for group in groups for part in _equal(group)]


def _split(group: list[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Return the parts of a group that have the same key, and more than one member."""
    parts: dict[Hashable, list[T]] = defaultdict(list)
    for item in group:
        parts[key(item)].append(item)
    return [part for part in parts.values() if len(part) > 1]


def _kind(value: Value) -> Hashable:
    tensor = value.held
    return None if tensor is None else (tensor.dtype, tuple(tensor.shape))


def _sample(value: Value) -> Hashable:
    """Return sample bytes spread over the whole tensor."""
    data = _bytes(value)
    if data.size <= _SAMPLES * _SAMPLE_BYTES:
        return data.tobytes()
    starts = np.linspace(0, data.size - _SAMPLE_BYTES, _SAMPLES, dtype=np.int64)
    return b"".join(data[start : start + _SAMPLE_BYTES].tobytes() for start in starts)


def _equal(group: list[Value]) -> Iterator[list[Value]]:
    """Yield the parts of a group whose bytes are equal, compared piece by piece."""
    pending = deque([(0, [(value, _bytes(value)) for value in group])])
    while pending:
        start, alike = pending.popleft()
        if start >= max(data.size for _, data in alike):
            yield [value for value, _ in alike]
            continue
        piece = slice(start, start + _PIECE)
        for part in _split(alike, partial(_digest, piece=piece)):
            # A digest is no proof.
            proved = [item for item in part if np.array_equal(part[0][1][piece], item[1][piece])]
            if len(proved) > 1:
                pending.append((piece.stop, proved))


def _digest(item: tuple[Value, _Bytes], piece: slice) -> bytes:
    return hashlib.sha256(item[1][piece].data).digest()


def _bytes(value: Value) -> _Bytes:
    """Return the bytes of a tensor, as a view of the mapped file if it is stored in one."""
    tensor = value.held
    array = np.asarray(tensor.numpy() if tensor is not None else 0)
    if array.dtype == object:
        # The lengths distinguish lists of texts that are equal when joined.
        texts = [item if isinstance(item, bytes) else str(item).encode() for item in array.reshape(-1)]
        return np.frombuffer(b"".join(b"%d:%s" % (len(text), text) for text in texts), dtype=np.uint8)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
