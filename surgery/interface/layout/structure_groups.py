"""Groups by structure, for models without meaningful names: repeated patterns, or else narrow cuts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from surgery.interface.layout.arrays import Ints, inverse, offsets
from surgery.interface.layout.group_hashes import Hashes, Hierarchy, digests, hierarchy, meetings, refined
from surgery.interface.layout.intervals import Block, BlockCutter, Sequence, covered
from surgery.interface.layout.layers import layers
from surgery.interface.layout.repeated_groups import RepeatedGroups, found, repeats

__all__ = ["Blocks", "RepeatedGroups", "blocks", "refine", "repeats"]


@dataclass(frozen=True)
class Blocks:
    """A hierarchy of groups. Existing groups keep their numbers, new ones follow."""

    group: Ints
    """The innermost group of each node; -1 for the top level."""
    parent: Ints
    """The group that contains each group; -1 for the top level."""


def blocks(kinds: ArrayLike, edges: ArrayLike, limit: int = 40) -> Blocks:
    """Group nodes so that a room contains about `limit` boxes, with equal blocks counted once.

    `kinds[i]` is the kind of node i, as any number. `edges` are rows (from, to, from slot, to slot).
    """
    count = np.asarray(kinds).size
    return refine(kinds, edges, np.full(count, -1), np.zeros(0, np.int64), limit)


def refine(kinds: ArrayLike, edges: ArrayLike, group: ArrayLike, parent: ArrayLike, limit: int = 40) -> Blocks:
    """Add groups to rooms of a hierarchy with too many boxes; the arguments are those of `repeats`.

    First, a repeated pattern is cut where the fewest edges cross, and each repetition becomes a block. Rooms that are
    still too full are cut into chunks of similar size, again at narrow places, and then the blocks themselves are cut.
    """
    kind = np.asarray(kinds, np.int64).reshape(-1)
    links = np.asarray(edges, np.int64).reshape(-1, 4)
    group, parent = np.asarray(group, np.int64).reshape(-1), np.asarray(parent, np.int64).reshape(-1)
    whole = hierarchy(kind, links, group, parent)
    house = _House(whole, links, limit)
    for number in range(-1, whole.groups):
        house.furnish(number)
    holder = np.array(house.holder, np.int64)
    return Blocks(holder[: whole.nodes], holder[whole.nodes :])


class _House:
    """The rooms and the holder of each item. Items are nodes, then groups, as in `Hierarchy`."""

    def __init__(self, whole: Hierarchy, links: Ints, limit: int) -> None:
        self.holder: list[int] = whole.room.tolist()
        self._nodes, self._limit = whole.nodes, limit
        self._marks = np.concatenate([digests(whole.kinds), whole.digest])
        self._sizes = np.concatenate([np.ones(whole.nodes, np.int64), whole.size])
        self._alike = np.arange(len(self._marks), dtype=np.int64)
        for repeat in found(whole):
            self._alike[whole.nodes + repeat.roots] = whole.nodes + repeat.roots[0]
        room = np.where(whole.room < 0, whole.groups, whole.room)
        meeting, self._source, self._target = meetings(whole.nodes, room, links)
        self._labels = digests(links[:, 2], links[:, 3])
        self._items = _Sorted(room, whole.groups + 1)
        self._met = _Sorted(meeting, whole.groups + 1)
        self._cutter = BlockCutter(limit)

    def furnish(self, number: int) -> None:
        """Add blocks to a room if it contains more boxes than the limit."""
        items = self._items.of(number)
        if len(np.unique(self._alike[items])) <= self._limit:
            return
        met = self._met.of(number)
        met = met[self._source[met] != self._target[met]]
        pairs = np.searchsorted(items, np.column_stack([self._source[met], self._target[met]]))
        colors = refined(self._marks[items], pairs[:, 0], pairs[:, 1], self._labels[met], 3)
        given = np.arange(len(items), dtype=np.int64)
        orders = [np.lexsort((given, colors, layers(len(items), pairs).layer))]
        if np.all(pairs[:, 0] < pairs[:, 1]):
            orders.append(given)
        rows = [self._row(items[order], inverse(order)[pairs], colors[order], self._labels[met]) for order in orders]
        # Exporters write one layer after another; edited models are better ordered by rows.
        best = max(range(len(rows)), key=lambda one: covered(rows[one][0]))
        row, begins = rows[best]
        self._build(number, items[orders[best]], np.append(begins, len(items)), self._cutter.cut(row))

    def _row(self, items: Ints, pairs: Ints, colors: Hashes, labels: Hashes) -> tuple[Sequence, Ints]:
        """Return the items as a sequence, with adjacent equal groups as one item, and the start of each item."""
        begins = np.nonzero(np.diff(self._alike[items], prepend=-1))[0]
        unit = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(items))))
        pairs = np.sort(unit[pairs], axis=1)
        across = np.nonzero(pairs[:, 0] != pairs[:, 1])[0]
        across = across[np.lexsort((labels[across], pairs[across, 1], pairs[across, 0]))]
        sizes = np.add.reduceat(self._sizes[items], begins)
        return Sequence(self._marks[items][begins], colors[begins], sizes, pairs[across], labels[across]), begins

    def _build(self, number: int, items: Ints, begins: Ints, cuts: tuple[Block, ...], offset: int = 0) -> None:
        for cut in cuts:
            block = len(self.holder) - self._nodes
            self.holder.append(number)
            for item in items[begins[offset + cut.first] : begins[offset + cut.last]].tolist():
                self.holder[item] = block
            self._build(block, items, begins, cut.inside, offset + cut.first)


class _Sorted:
    """Positions in a column of numbers, by number; -1 stands for the last number."""

    def __init__(self, column: Ints, count: int) -> None:
        self._order = np.argsort(column, kind="stable")
        self._starts = offsets(column, count)

    def of(self, number: int) -> Ints:
        """Return the positions of a number."""
        last = number if number >= 0 else len(self._starts) - 2
        return self._order[self._starts[last] : self._starts[last + 1]]
