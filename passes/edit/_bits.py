"""Bitwise comparison of tensors, a few megabytes at a time, because large ones are mapped files."""

from typing import Any

import numpy as np

_PIECE = 1 << 22
_ROWS = 256
"""Rows of a transposed matrix that are copied at a time."""


def same_bits(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Return whether two arrays of the same type and shape hold the same bits; strings are compared as such."""
    if one.dtype == object:
        return bool(one.reshape(-1).tolist() == other.reshape(-1).tolist())
    if not other.flags.c_contiguous:
        rows = range(0, len(other), _ROWS)
        return all(same_bits(one[row : row + _ROWS], np.ascontiguousarray(other[row : row + _ROWS])) for row in rows)
    mine, its = (array.reshape(-1).view(np.uint8) for array in (one, other))
    return all(np.array_equal(mine[i : i + _PIECE], its[i : i + _PIECE]) for i in range(0, mine.size, _PIECE))
