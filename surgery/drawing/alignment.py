"""Which vertices of neighboring rows stand exactly below each other: columns that keep chains and lanes straight."""

from __future__ import annotations

import numpy as np

from surgery.drawing.arrays import Ints, inverse, offsets
from surgery.drawing.lanes import Rows


def columns(rows: Rows, place: Ints) -> Ints:
    """Return the column of each vertex. A column has at most one vertex in a row, and columns never cross.

    Lanes come first. Then a box and the middle one of its neighbors, when each is the middle of the other; then what
    the middle one on one side alone leaves.
    """
    inner = (rows.lane[rows.upper] >= 0) & (rows.lane[rows.upper] == rows.lane[rows.lower])
    chosen = _Chosen(rows, place)
    chosen.take(np.nonzero(inner)[0])
    boxes = np.nonzero((rows.lane[rows.upper] < 0) & (rows.lane[rows.lower] < 0))[0]
    ends = np.nonzero(~inner)[0]
    for edges in (boxes, ends):
        down, up = _middle(edges, rows.upper, rows.lower, place), _middle(edges, rows.lower, rows.upper, place)
        chosen.take(np.intersect1d(down, up))
        chosen.take(up)
        chosen.take(down)
    return _roots(chosen.above)


class _Chosen:
    """Edges that are vertical. Those taken earlier keep the others from crossing them."""

    def __init__(self, rows: Rows, place: Ints) -> None:
        self._rows, self._place = rows, place
        self.above = np.full(len(place), -1, np.int64)
        self.below = np.full(len(place), -1, np.int64)

    def take(self, edges: Ints) -> None:
        """Take those of `edges` whose ends are free and that cross no edge taken before, the left one of two that cross."""
        rows, place = self._rows, self._place
        edges = edges[(self.below[rows.upper[edges]] < 0) & (self.above[rows.lower[edges]] < 0)]
        taken = np.nonzero(self.above >= 0)[0]
        taken = taken[np.argsort(place[taken])]
        high, low = place[self.above[taken]], place[taken]
        upper, lower = place[rows.upper[edges]], place[rows.lower[edges]]
        # The edges taken do not cross each other, so both of their ends are in order.
        clear = np.searchsorted(high, upper) == np.searchsorted(low, lower)
        edges, upper, lower = edges[clear], upper[clear], lower[clear]
        order = np.lexsort((lower, upper))
        edges, upper, lower = edges[order], upper[order], lower[order]
        furthest = np.maximum.accumulate(lower)
        kept = np.ones(len(edges), np.bool_)
        kept[1:] = (lower[1:] > furthest[:-1]) & (upper[1:] > upper[:-1])
        self.below[rows.upper[edges[kept]]] = rows.lower[edges[kept]]
        self.above[rows.lower[edges[kept]]] = rows.upper[edges[kept]]


def _middle(edges: Ints, near: Ints, far: Ints, place: Ints) -> Ints:
    """Return, for each vertex that `edges` have as `near`, the edge to the middle one of its neighbors."""
    order = np.lexsort((place[far[edges]], near[edges]))
    starts = offsets(near[edges], len(place))
    first, count = starts[:-1], np.diff(starts)
    there = count > 0
    return np.asarray(edges[order[(first + (count - 1) // 2)[there]]], np.int64)


def _roots(above: Ints) -> Ints:
    """Number the columns, in the order of their top vertices."""
    top = np.where(above < 0, np.arange(len(above), dtype=np.int64), above)
    while True:
        further = top[top]
        if np.array_equal(further, top):
            break
        top = further
    heads = np.nonzero(above < 0)[0]
    number = np.empty(len(above), np.int64)
    number[heads] = inverse(np.arange(len(heads), dtype=np.int64))
    return number[top]
