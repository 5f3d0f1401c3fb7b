"""Choice of the weights to prune: those of the least magnitude, individually, in groups of four, or by channel."""

from __future__ import annotations

import numpy as np

from ._integers import Array, blocks


def least(array: Array, share: float) -> Array:
    """Return an array with its elements of the least magnitude set to zero, the first ones first if they are equal."""
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
    """Return an array with the two least of each four elements along an axis set to zero; a remainder stays."""
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
    """Return the indices along an axis with the least sums of squares, in ascending order, but never all of them."""
    lengths = array.shape[axis]
    totals = np.zeros(lengths)
    for index in range(lengths):
        totals[index] = np.square(array.take(index, axis=axis).astype(np.float64)).sum()
    count = min(int(share * lengths), lengths - 1)
    return np.sort(np.argsort(totals, kind="stable")[:count])
