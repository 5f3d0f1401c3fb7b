"""Groups by structure alone, for models whose names say nothing: patterns that follow themselves, else narrow places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from surgery.drawing.arrays import Ints, inverse, unique_pairs
from surgery.drawing.fingerprints import Hierarchy, digests, hierarchy, refined
from surgery.drawing.layers import layers
from surgery.drawing.repeats import Repeat, found, repeats

__all__ = ["Blocks", "Repeat", "blocks", "refine", "repeats"]

LEAST = 6
"""Items that a block has at least: what is smaller is no easier to read as a group."""
CANDIDATES = 24
"""Lengths of a pattern that are tried in a room."""


@dataclass(frozen=True)
class Blocks:
    """A hierarchy of groups. Those that were there before keep their numbers, new ones follow."""

    group: Ints
    """The innermost group of each node; -1: the top level."""
    parent: Ints
    """The group that holds each group; -1: the top level."""


def blocks(kinds: ArrayLike, edges: ArrayLike, limit: int = 40) -> Blocks:
    """Group nodes so that a room holds about `limit` boxes, when alike blocks are counted once.

    `kinds[i]` says what node i is, as any number. `edges` are rows (from, to, from slot, to slot).
    """
    count = np.asarray(kinds).size
    return refine(kinds, edges, np.full(count, -1), np.zeros(0, np.int64), limit)


def refine(kinds: ArrayLike, edges: ArrayLike, group: ArrayLike, parent: ArrayLike, limit: int = 40) -> Blocks:
    """Put groups into the rooms of a hierarchy that hold too much; the arguments are those of `repeats`.

    First, a pattern that follows itself is cut where the fewest edges cross, and each turn becomes a block. What is
    still too much is cut into chunks of about the same size, at narrow places again, and then the blocks themselves.
    """
    kind = np.asarray(kinds, np.int64).reshape(-1)
    links = np.asarray(edges, np.int64).reshape(-1, 4)
    group, parent = np.asarray(group, np.int64).reshape(-1), np.asarray(parent, np.int64).reshape(-1)
    house = _House(hierarchy(kind, links, group, parent), links, limit)
    pending = house.rooms()
    while pending:
        pending += house.split(pending.pop())
    holder = np.array(house.holder, np.int64)
    return Blocks(holder[: len(kind)], holder[len(kind) :])


@dataclass(frozen=True)
class _Room:
    """Items in the order of the rows that they would stand in, and the edges between them, by place."""

    number: int
    items: Ints
    marks: Ints
    source: Ints
    target: Ints
    unit: Ints
    """By item: alike blocks that follow each other have the same number, as they are one box."""

    @property
    def boxes(self) -> int:
        return len(np.unique(self.unit))


class _House:
    """Rooms while they are being split. Items are nodes, then groups, as in `Hierarchy`."""

    def __init__(self, whole: Hierarchy, edges: Ints, limit: int) -> None:
        self.limit = limit
        self.holder = whole.room.tolist()
        self._nodes = whole.nodes
        self._marks = np.concatenate([digests(whole.kinds), whole.digest])
        self._known: dict[bytes, list[tuple[int, int]]] = {}
        alike = np.arange(len(self.holder), dtype=np.int64)
        for repeat in found(whole):
            alike[whole.nodes + repeat.roots] = whole.nodes + repeat.roots[0, 0]
        self._alike = alike
        self._meet(whole, edges)

    def _meet(self, whole: Hierarchy, edges: Ints) -> None:
        self._meeting, self._source, self._target = whole.meetings(edges)

    def rooms(self) -> list[_Room]:
        """Return the rooms of the hierarchy with more boxes than the limit."""
        room = np.array(self.holder, np.int64)
        found = []
        for number in np.unique(room).tolist():
            items = np.nonzero(room == number)[0]
            if len(items) > self.limit:
                found.append(self._room(number, items))
        return found
