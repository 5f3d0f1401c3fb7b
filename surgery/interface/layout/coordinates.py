"""The x coordinates: columns move towards the center of their neighbors as far as possible."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surgery.interface.layout.alignment import Alignment
from surgery.interface.layout.arrays import Floats, Ints, offsets
from surgery.interface.layout.long_edges import LanedRows

GAP = 16
"""Gap between two boxes of a row, in px."""
LANE_GAP = 10
"""Gap next to places of a lane, in px."""
FINE = 16
"""Steps per px, the unit of computation."""
FAR = 1 << 40
"""An offset larger than the width of any row, which separates rows that are processed at once."""
ROUNDS = 24
"""Maximum number of rounds in which columns push each other. More would go through the whole drawing."""
BANDS = (1 << 40, 64, 16, 4, 1)
"""Numbers of rows after which all columns end; the first one for which `ROUNDS` rounds suffice is used."""
NEAR = 24
"""Maximum distance, in px, that a column moves to become straight."""


@dataclass(frozen=True)
class _Field:
    """Vertices sorted by row and place. `least[i]` is the minimum distance of vertex i from the first of its row."""

    sequence: Ints
    row: Ints
    least: Ints
    by_column: Ints
    bounds: Ints
    column: Ints

    def at_vertex(self) -> Ints:
        """Return the column of each vertex."""
        found = np.empty_like(self.column)
        found[self.sequence] = self.column
        return found

    def push(self, wanted: Ints, direction: int) -> Ints | None:
        """Move columns as little as needed in one direction, so that rows keep order and gaps; return x by column.

        Alternates between rows, in which each vertex pushes the next ones, and columns, which follow their foremost
        vertex, until nothing moves. Returns None if that takes too long because columns push each other through the
        whole drawing.
        """
        x = wanted
        for _ in range(ROUNDS):
            spread = self.spread(x[self.column], direction) * direction
            moved = np.maximum.reduceat(spread[self.by_column], self.bounds) * direction
            if np.array_equal(moved, x):
                return x
            x = moved
        return None

    def settle(self, wanted: Floats) -> Ints | None:
        """Return the x of the columns close to the wanted one, with rows in order: the mean of both directions."""
        near = np.floor(wanted).astype(np.int64)
        right, left = self.push(near, 1), self.push(near, -1)
        return None if right is None or left is None else (right + left) // 2

    def compact(self) -> Ints | None:
        """Return the x of columns halfway between their leftmost and rightmost positions."""
        left = self.push(np.zeros(len(self.bounds), np.int64), 1)
        if left is None:
            return None
        right = self.push(np.full(len(self.bounds), int(left.max(initial=0)), np.int64), -1)
        return None if right is None else (left + right) // 2

    def slide(self, x: Ints, move: Ints, direction: int) -> Ints:
        """Move columns in one direction by `move`, limited by the gap to the next columns."""
        at = x[self.column]
        room = np.full(len(at), FAR, np.int64)
        gap = np.diff(at - self.least)
        gap[np.diff(self.row) > 0] = FAR
        if direction > 0:
            room[:-1] = gap
        else:
            room[1:] = gap
        free = np.minimum.reduceat(room[self.by_column], self.bounds)
        return x + direction * np.clip(move * direction, 0, free)

    def spread(self, x: Ints, direction: int) -> Ints:
        """Push within rows only; `x` and the result are in the order of the sequence."""
        free = x - self.least
        if direction > 0:
            return np.maximum.accumulate(free + self.row * FAR) - self.row * FAR + self.least
        return np.minimum.accumulate((free + self.row * FAR)[::-1])[::-1] - self.row * FAR + self.least


def coordinates(rows: LanedRows, place: Ints, alignment: Alignment, widths: Ints) -> Ints:
    """Return the centre of each vertex in px, separately for each component. `widths` has the widths of all vertices.

    Boxes of a row are at least `GAP` apart, in order.
    """
    turns = _turns(len(place))
    for band in BANDS:
        field = _field(rows, place, alignment.strict(band), widths)
        start = field.compact()
        if start is not None:
            break
    assert start is not None  # the last band has columns of one vertex, so pushing ends
    x = _relaxed(rows, field, start, turns)
    at = x[field.column]
    joined = _field(rows, place, alignment.joined(x[field.at_vertex()], NEAR * FINE), widths)
    again = joined.settle(np.bincount(joined.column, at) / np.bincount(joined.column))
    if again is not None:
        at = _relaxed(rows, joined, again, turns)[joined.column]
    found = np.empty(len(place), np.int64)
    found[field.sequence] = field.spread(at, 1) // FINE
    return found


def _relaxed(rows: LanedRows, field: _Field, x: Ints, turns: int) -> Ints:
    """Slide columns towards the mean of their neighbors, alternately to the right and to the left."""
    column, count = field.at_vertex(), len(x)
    inner = column[rows.upper] != column[rows.lower]
    upper, lower = column[rows.upper[inner]], column[rows.lower[inner]]
    weight = np.where((rows.lane[rows.upper] < 0) & (rows.lane[rows.lower] < 0), 2.0, 1.0)[inner]
    total = np.maximum(np.bincount(upper, weight, count) + np.bincount(lower, weight, count), 1)
    for turn in range(2 * turns):
        pull = weight * (x[lower] - x[upper])
        move = (np.bincount(upper, pull, count) - np.bincount(lower, pull, count)) / total
        x = field.slide(x, np.trunc(move).astype(np.int64), 1 if turn % 2 == 0 else -1)
    return x


def _turns(vertices: int) -> int:
    return 30 if vertices < 4_000 else 15 if vertices < 40_000 else 8


def _field(rows: LanedRows, place: Ints, column: Ints, widths: Ints) -> _Field:
    sequence = np.argsort(place)
    row = rows.row[sequence]
    boxes = rows.lane[sequence] < 0
    half = np.where(boxes, (widths[sequence] + 1) // 2 + GAP // 2, LANE_GAP // 2) * FINE
    edge = np.cumsum(2 * half) - half
    begin = rows.starts[row]
    by_column = np.argsort(column[sequence], kind="stable")
    bounds = offsets(column, int(column.max(initial=-1)) + 1)[:-1]
    return _Field(sequence, row, edge - edge[begin], by_column, bounds, column[sequence])
