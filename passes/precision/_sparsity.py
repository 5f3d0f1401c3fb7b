"""Which weights are pruned: those of the least magnitude, by themselves, in groups of four, or by channels."""

from __future__ import annotations

import numpy as np

from ._integers import Array, blocks


def least(array: Array, share: float) -> Array:
    """Return an array without its elements of the least magnitude; of equal ones the first go first."""
    size = np.abs(array.astype(np.float32)).reshape(-1)
    count = int(share * size.size)
    if not count:
        return array
    threshold = np.partition(size, count - 1)[count - 1]
    below, equal = size < threshold, np.flatnonzero(size == threshold)
    below[equal[: count - int(below.sum())]] = True
    pruned = array.reshape(-1).copy()
    pruned[below] = 0
    return pruned.reshape(array.shape)


def two_of_four(array: Array, axis: int) -> Array:
    """Return an array without the two least of each four elements in a row along an axis; a rest of less stays."""
    pruned = array.copy()
    rows = np.moveaxis(pruned, axis, -1)
    whole = rows.shape[-1] // 4 * 4
    for block in blocks(rows):
        held = rows[block][..., :whole]
        groups = held.reshape(-1, 4)
        order = np.argsort(np.abs(groups.astype(np.float32)), axis=-1, kind="stable")
        np.put_along_axis(groups, order[:, :2], 0, axis=-1)
        held[...] = groups.reshape(held.shape)
    return pruned


def weakest(array: Array, axis: int, share: float) -> Array:
    """Return the indices along an axis with the least sums of squares, in order; at least one index is left."""
    lengths = array.shape[axis]
    totals = np.zeros(lengths)
    for index in range(lengths):
        totals[index] = np.square(array.take(index, axis=axis).astype(np.float64)).sum()
    count = min(int(share * lengths), lengths - 1)
    return np.sort(np.argsort(totals, kind="stable")[:count])
