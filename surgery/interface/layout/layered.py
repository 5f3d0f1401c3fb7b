"""Layered drawings of directed graphs: rows from top to bottom, edges downwards, few crossings, straight chains.

The steps are those of Sugiyama, for all rows at once: rows (`layers.py`), lanes for edges that cross rows
(`long_edges.py`), the order of rows (`crossings.py`), columns (`alignment.py`) and coordinates (`coordinates.py`). Rows
that are too wide are split into several. Chains are not folded, however long they are: edges must point down, and
`structure_groups.py` folds long rooms into groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from surgery.interface.layout.alignment import Alignment
from surgery.interface.layout.arrays import Ints, inverse, offsets, ranges
from surgery.interface.layout.coordinates import GAP, coordinates
from surgery.interface.layout.crossings import ordered
from surgery.interface.layout.layers import Layers, layers
from surgery.interface.layout.long_edges import LanedRows, rows

ROW_GAP = 28
"""Gap between the boxes of two rows, in px."""
BEND = 24
"""Maximum deviation, in px, of a route through the rows in between that counts as straight."""


@dataclass(frozen=True)
class Layout:
    """The position of each box. All numbers are integers; lengths are in px."""

    layer: Ints
    """The row of each box, 0 at the top."""
    order: Ints
    """The place of each box in its row, from the left."""
    x: Ints
    """The centre of each box, from the left edge of the drawing."""
    y: Ints
    """The centre of each box, from the top edge of the drawing."""
    via: Ints
    """For each edge, the x at which it passes the rows in between; -1 if there are none, or its route bends."""
    width: int
    height: int


def layered(widths: ArrayLike, heights: ArrayLike, edges: ArrayLike) -> Layout:
    """Lay out boxes of the given sizes (px). `edges` are rows (from, to) of box indexes.

    Any graph is accepted: cycles (one edge of each points up), self-edges, repeated edges, boxes without edges.
    Connected components are placed next to or below each other, in columns. The same arguments give the same layout.

    Raises:
        ValueError: an edge names a box that does not exist, or the numbers of widths and heights differ.
    """
    wide, high = np.asarray(widths, np.int64).reshape(-1), np.asarray(heights, np.int64).reshape(-1)
    pairs = np.asarray(edges, np.int64).reshape(-1, 2)
    count = len(wide)
    if len(high) != count:
        raise ValueError(f"{count} widths, but {len(high)} heights")
    if len(pairs) and not 0 <= int(pairs.min()) <= int(pairs.max()) < count:
        raise ValueError(f"an edge names a box outside of 0 to {count - 1}")
    if not count:
        empty = np.zeros(0, np.int64)
        return Layout(empty, empty, empty, empty, np.full(len(pairs), -1, np.int64), 0, 0)
    placed = layers(count, pairs)
    proper = rows(placed)
    first = np.concatenate([placed.visited * 2, placed.visited[proper.lane[count:]] * 2 + 1])
    place = ordered(proper, first)
    sizes = np.concatenate([wide, np.zeros(len(place) - count, np.int64)])
    x = coordinates(proper, place, Alignment(proper, place, placed.above, placed.below), sizes)
    return _packed(placed, proper, x, wide, high, pairs)


def _packed(placed: Layers, proper: LanedRows, x: Ints, widths: Ints, heights: Ints, pairs: Ints) -> Layout:
    """Arrange the components and return the layout."""
    count = len(widths)
    component = np.concatenate([placed.component, placed.component[proper.lane[count:]]])
    parts = int(placed.component.max()) + 1
    half = (np.concatenate([widths, np.zeros(len(x) - count, np.int64)]) + 1) // 2
    left, right = np.full(parts, x.max() + half.max()), np.full(parts, x.min() - half.max())
    np.minimum.at(left, component, x - half)
    np.maximum.at(right, component, x + half)
    depth = np.zeros(parts, np.int64)
    np.maximum.at(depth, placed.component, placed.layer + 1)
    across, down = _stacked(right - left, depth)
    x = x - left[component] + across[component]
    layer = placed.layer + down[placed.component]
    tall = np.zeros(int(layer.max()) + 1, np.int64)
    np.maximum.at(tall, layer, heights)
    top = np.cumsum(tall + ROW_GAP) - tall - ROW_GAP
    by_place = np.lexsort((x[:count], layer))
    order = inverse(by_place) - offsets(layer, len(tall))[layer]
    return Layout(
        layer,
        order,
        x[:count],
        (top + tall // 2)[layer],
        _vias(placed, proper, x, pairs),
        int((x + half).max()),
        int(top[-1] + tall[-1]),
    )


def _stacked(width: Ints, depth: Ints) -> tuple[Ints, Ints]:
    """Return the left edge and the top row of each component, stacked in columns, deepest components first."""
    area = float((width * depth).sum()) * (ROW_GAP + 24)
    limit = max(int(depth.max()), int(area**0.5) // (ROW_GAP + 24))
    across, down = np.zeros_like(width), np.zeros_like(width)
    left = right = filled = 0
    for one in np.argsort(-depth, kind="stable").tolist():
        if filled + depth[one] > limit:
            left, filled = right + 2 * GAP, 0
        across[one], down[one] = left, filled
        filled += int(depth[one])
        right = max(right, left + int(width[one]))
    return across, down


def _vias(placed: Layers, proper: LanedRows, x: Ints, pairs: Ints) -> Ints:
    """Return, for each edge, the x of the part of the lane that it uses, if that is nearly straight."""
    count = len(placed.layer)
    turned = placed.layer[pairs[:, 0]] > placed.layer[pairs[:, 1]]
    source, target = np.where(turned, pairs[:, 1], pairs[:, 0]), np.where(turned, pairs[:, 0], pairs[:, 1])
    at = np.searchsorted(placed.source * count + placed.target, source * count + target)
    last = np.where(source == target, -1, np.append(proper.last, -1)[at])
    found = np.full(len(pairs), -1, np.int64)
    passes = np.nonzero(last >= 0)[0]
    if len(passes):
        crossed = (placed.layer[target] - placed.layer[source] - 1)[passes]
        begins = np.cumsum(crossed) - crossed
        taken = x[ranges(last[passes] - crossed + 1, crossed)]
        left, right = np.minimum.reduceat(taken, begins), np.maximum.reduceat(taken, begins)
        found[passes] = np.where(right - left <= BEND, (left + right) // 2, -1)
    return found
