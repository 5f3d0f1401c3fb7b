"""Helpers for the index arrays of the layout."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def offsets(keys: Ints, count: int) -> Ints:
    """Return the start of each key in the sorted `keys`, followed by the total: `count + 1` entries."""
    found = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=count), out=found[1:])
    return found


def ranges(starts: Ints, counts: Ints) -> Ints:
    """Return the concatenation of `arange(start, start + count)` for all pairs."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    found: Ints = np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - counts), counts)
    return found


def inverse(order: Ints) -> Ints:
    """Return the inverse of a permutation."""
    found = np.empty_like(order)
    found[order] = np.arange(len(order), dtype=np.int64)
    return found


def distinct(values: Ints) -> Ints:
    """Return the distinct values, sorted. `np.unique` hashes integers first, which is slower."""
    ordered = np.sort(values)
    new: Mask = np.diff(ordered, prepend=ordered[:1] - 1) != 0
    return ordered[new]


def unique_pairs(first: Ints, second: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the distinct pairs, sorted; `count` is larger than each second member."""
    keys = distinct(first * count + second)
    return keys // count, keys % count
