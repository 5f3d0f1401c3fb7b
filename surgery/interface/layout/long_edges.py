"""Edges that cross rows: each source gets one lane, a column of empty places through the rows in between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surgery.interface.layout.arrays import Ints, offsets, ranges
from surgery.interface.layout.layers import Layers

LONGEST = 512
"""Maximum number of rows that an edge may cross to get a lane."""


@dataclass(frozen=True)
class LanedRows:
    """Boxes and places of lanes in rows, and the edges from each row to the next.

    Vertices below `boxes` are boxes, the others are places of lanes. A row is one layer of one component, so different
    components have different rows. `starts[r]` is the number of vertices in rows before `r`.
    """

    boxes: int
    row: Ints
    starts: Ints
    upper: Ints
    lower: Ints
    lane: Ints
    """The box at the top of the lane of a vertex; -1 for boxes."""
    last: Ints
    """The last place that each edge of the layers passes; -1 if there is none."""


def rows(placed: Layers) -> LanedRows:
    """Insert lanes. Edges of one source share a lane, and the longest edges have none, so that memory stays linear."""
    count = len(placed.layer)
    span = placed.layer[placed.target] - placed.layer[placed.source] - 1
    taken = (span > 0) & (span <= _longest(placed.source, span, 2 * count + 1024))
    length = np.zeros(count, np.int64)
    np.maximum.at(length, placed.source[taken], span[taken])
    first = count + np.cumsum(length) - length
    owners = np.repeat(np.arange(count, dtype=np.int64), length)
    depth = ranges(np.ones(count, np.int64), length)
    last = np.where(taken, first[placed.source] + span - 1, -1)
    places = np.arange(count, count + len(owners), dtype=np.int64)
    adjacent = span == 0
    upper = np.concatenate([np.where(depth == 1, owners, places - 1), last[taken], placed.source[adjacent]])
    lower = np.concatenate([places, placed.target[taken], placed.target[adjacent]])
    row, starts = _numbered(
        np.concatenate([placed.layer, placed.layer[owners] + depth]),
        np.concatenate([placed.component, placed.component[owners]]),
    )
    lane = np.concatenate([np.full(count, -1, np.int64), owners])
    return LanedRows(count, row, starts, upper, lower, lane, last)


def _longest(source: Ints, span: Ints, budget: int) -> int:
    """Return the largest span for which the lanes together have at most `budget` places."""
    order = np.lexsort((span, source))
    increase = np.maximum(np.diff(span[order], prepend=0), 0)
    begins = np.diff(source[order], prepend=-1) != 0
    increase[begins] = span[order][begins]
    needed = np.bincount(np.minimum(span[order], LONGEST + 1), weights=increase, minlength=LONGEST + 2)
    fitting = np.nonzero(np.cumsum(needed[: LONGEST + 1]) <= budget)[0]
    return int(fitting[-1]) if len(fitting) else 0


def _numbered(layer: Ints, component: Ints) -> tuple[Ints, Ints]:
    """Return the row of each vertex, component by component, and the start of the vertices of each row."""
    parts = int(component.max()) + 1 if len(component) else 0
    deepest = np.zeros(parts, np.int64)
    np.maximum.at(deepest, component, layer + 1)
    before = np.cumsum(deepest) - deepest
    row = before[component] + layer
    return row, offsets(row, int(deepest.sum()))
