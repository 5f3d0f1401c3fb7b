"""Pairs of matrices that are the transposes of each other."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import numpy as np

from surgery import Value

Array = np.ndarray[Any, Any]

_SAMPLES = 8
"""Rows and columns in which two matrices are compared first."""

_PIECE = 1 << 22
"""Number of elements compared at a time."""

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def turned_pairs(values: Iterable[Value]) -> Iterator[tuple[Value, Value]]:
    """Yield pairs of initializers of which each is the other one transposed, bit by bit; no value is in two pairs."""
    groups: dict[Hashable, list[tuple[Value, Array]]] = defaultdict(list)
    for value in values:
        bits = _bits(value)
        if bits is not None:
            groups[_key(value, bits)].append((value, bits))
    for group in groups.values():
        while group:
            value, bits = group.pop(0)
            match = next((one for one in group if _are_turned(bits, one[1])), None)
            if match is not None:
                group.remove(match)
                yield value, match[0]


def _bits(value: Value) -> Array | None:
    """Return a matrix as integers, as a view of the file that it is stored in; None for other tensors."""
    tensor, shape = value.held, value.static_shape
    if tensor is None or shape is None or len(shape) != 2 or 1 in shape or tensor.dtype.bitwidth % 8:
        return None
    array = tensor.numpy()
    kind = _UNSIGNED.get(array.dtype.itemsize) if array.dtype != object else None
    return None if kind is None else array.view(kind)


def _key(value: Value, bits: Array) -> Hashable:
    """Return a key that a matrix and its transpose share: the type, the dims, and a few elements, in both orders."""
    samples = sorted(_sample(one) for one in (bits, bits.T))
    return str(value.dtype), frozenset(bits.shape), *samples


def _sample(bits: Array) -> bytes:
    rows, columns = (np.linspace(0, extent - 1, _SAMPLES, dtype=np.int64) for extent in bits.shape)
    return bits[np.ix_(rows, columns)].tobytes()


def _are_turned(one: Array, other: Array) -> bool:
    if one.shape != other.shape[::-1]:
        return False
    step = max(1, _PIECE // one.shape[1])
    return all(np.array_equal(one[row : row + step], other[:, row : row + step].T) for row in range(0, len(one), step))
