"""Vertical alignment of vertices in neighboring rows: columns that keep chains and lanes straight."""

from __future__ import annotations

import numpy as np

from surgery.interface.layout.arrays import Ints, inverse, offsets
from surgery.interface.layout.long_edges import LanedRows

PIECE = 4
"""Number of rows of a lane that are kept in one column from the start."""
SMALL = 400
"""Maximum number of vertices of a drawing in which whole lanes stay in one column."""


class Alignment:
    """Chooses the vertical edges: first the important ones, then those that are nearly vertical anyway."""

    def __init__(self, rows: LanedRows, place: Ints, above: Ints, below: Ints) -> None:
        """Prepare. `above` and `below` are the lengths of the longest paths to and from each box, in edges."""
        lanes = np.full(len(place) - rows.boxes, -1, np.int64)
        above, below = np.concatenate([above, lanes]), np.concatenate([below, lanes])
        upper, lower = rows.lane[rows.upper], rows.lane[rows.lower]
        self._rows = rows
        self._place = place
        self._lanes = np.nonzero((upper >= 0) & (upper == lower))[0]
        self._best = [
            (_best(edges, rows.lower, rows.upper, above, place), _best(edges, rows.upper, rows.lower, below, place))
            for edges in (np.nonzero((upper < 0) & (lower < 0))[0], np.nonzero(upper != lower)[0])
        ]

    def strict(self, band: int) -> Ints:
        """Return columns of boxes that are mutual best neighbors, and of lanes, each within a band of rows.

        Longer columns would displace each other, because each spans rows in which other vertices would have to give
        way. In large drawings, lanes start as pieces for the same reason.
        """
        rows = self._rows
        self._chosen = _Chosen(rows, self._place)
        for edges in (np.intersect1d(*self._best[0]), self._lanes):
            kept = edges[(rows.row[rows.upper[edges]] + 1) % band != 0]
            if edges is self._lanes and len(rows.row) >= SMALL:
                kept = kept[rows.upper[kept] % PIECE != 0]
            self._chosen.take(kept)
        return _roots(self._chosen.above)

    def joined(self, x: Ints, near: int) -> Ints:
        """Return columns that also include vertices within `near` of their best neighbor, given their `x`."""
        rows = self._rows
        for edges in (self._lanes, *self._best[0], *self._best[1]):
            self._chosen.take(edges[np.abs(x[rows.upper[edges]] - x[rows.lower[edges]]) <= near])
        return _roots(self._chosen.above)


class _Chosen:
    """The vertical edges. Later edges may not cross earlier ones."""

    def __init__(self, rows: LanedRows, place: Ints) -> None:
        self._rows, self._place = rows, place
        self.above = np.full(len(place), -1, np.int64)
        self.below = np.full(len(place), -1, np.int64)

    def take(self, edges: Ints) -> None:
        """Take the edges with free ends that cross no edge taken before; of two crossing edges, the left one."""
        rows, place = self._rows, self._place
        edges = edges[(self.below[rows.upper[edges]] < 0) & (self.above[rows.lower[edges]] < 0)]
        taken = np.nonzero(self.above >= 0)[0]
        taken = taken[np.argsort(place[taken])]
        high, low = place[self.above[taken]], place[taken]
        upper, lower = place[rows.upper[edges]], place[rows.lower[edges]]
        # The taken edges do not cross each other, so both of their ends are in order.
        clear = np.searchsorted(high, upper) == np.searchsorted(low, lower)
        edges, upper, lower = edges[clear], upper[clear], lower[clear]
        order = np.lexsort((lower, upper))
        edges, upper, lower = edges[order], upper[order], lower[order]
        furthest = np.maximum.accumulate(lower)
        kept = np.ones(len(edges), np.bool_)
        kept[1:] = (lower[1:] > furthest[:-1]) & (upper[1:] > upper[:-1])
        self.below[rows.upper[edges[kept]]] = rows.lower[edges[kept]]
        self.above[rows.lower[edges[kept]]] = rows.upper[edges[kept]]


def _best(edges: Ints, near: Ints, far: Ints, worth: Ints, place: Ints) -> Ints:
    """Return, for each vertex in `near`, the edge to the neighbor with the highest worth; the middle one of several."""
    most = np.full(len(place), -1, np.int64)
    np.maximum.at(most, near[edges], worth[far[edges]])
    edges = edges[worth[far[edges]] == most[near[edges]]]
    order = np.lexsort((place[far[edges]], near[edges]))
    starts = offsets(near[edges], len(place))
    first, count = starts[:-1], np.diff(starts)
    there = count % 2 == 1  # an even number has no middle one: the vertex belongs between two
    return np.asarray(edges[order[(first + (count - 1) // 2)[there]]], np.int64)


def _roots(above: Ints) -> Ints:
    """Number the columns in the order of their top vertices."""
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
