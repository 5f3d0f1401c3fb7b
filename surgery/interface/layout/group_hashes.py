"""Fingerprints of groups of nodes: hashes that equal groups share, and an order of nodes by structure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surgery.interface.layout.arrays import Ints, inverse

Hashes = NDArray[np.uint64]
ROUNDS = 12
"""Maximum distance of the neighbors by which similar nodes are distinguished."""


@dataclass(frozen=True)
class Hierarchy:
    """Nodes in groups, with their structure. Item i is a node if it is below `nodes`, otherwise group `i - nodes`.

    The room of the top level has the number `groups`. The nodes of a group, including those of all groups inside, are
    adjacent in `order`: `order[start[g] : start[g] + size[g]]`. Within it, they are in canonical order, and so are the
    groups inside in `tree[begin[g] : begin[g] + within[g]]`, which begins with the group itself.
    """

    nodes: int
    groups: int
    kinds: Ints
    edges: Ints
    """Rows (position, position, from slot, to slot), sorted; positions refer to `order`."""
    room: Ints
    """The room of each item; -1 for the top level."""
    digest: Hashes
    """The digest of each group; equal groups have the same one."""
    order: Ints
    start: Ints
    size: Ints
    tree: Ints
    begin: Ints
    within: Ints

    def same(self, one: int, other: int) -> bool:
        """Return whether two groups are equal, node by node: kinds, edges between their nodes, and groups inside."""
        if self.digest[one] != self.digest[other] or self.size[one] != self.size[other]:
            return False
        return all(np.array_equal(a, b) for a, b in zip(self._form(one), self._form(other)))

    def _form(self, group: int) -> tuple[Ints, Ints, Ints, Ints]:
        first, last = self.start[group], self.start[group] + self.size[group]
        inside = self.order[first:last]
        groups = self.tree[self.begin[group] : self.begin[group] + self.within[group]]
        place = {int(number): at for at, number in enumerate(groups)}
        holders = np.array([place[int(one)] for one in self.room[inside]], np.int64)
        parents = np.array([place[int(one)] for one in self.room[self.nodes + groups[1:]]], np.int64)
        edges = self.edges[np.searchsorted(self.edges[:, 0], first) : np.searchsorted(self.edges[:, 0], last)]
        edges = edges[(edges[:, 1] >= first) & (edges[:, 1] < last)] - np.array([first, first, 0, 0])
        return self.kinds[inside], holders, parents, edges


def mixed(values: Hashes) -> Hashes:
    """Scramble 64 bits (the finalizer of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def digests(*columns: Ints | Hashes) -> Hashes:
    """Return a hash of each row of numbers."""
    found = np.zeros(len(columns[0]), np.uint64)
    for at, column in enumerate(columns):
        found = mixed(found + column.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15 * (at + 1) % (1 << 64)))
    return found


def refined(colors: Hashes, source: Ints, target: Ints, labels: Hashes, rounds: int = ROUNDS) -> Hashes:
    """Distinguish items by their neighbors, their neighbors' neighbors and so on (Weisfeiler-Lehman)."""
    distinct = len(np.unique(colors))
    for _ in range(rounds):
        seen = np.zeros((2, len(colors)), np.uint64)
        np.add.at(seen[0], target, digests(colors[source], labels))
        np.add.at(seen[1], source, digests(colors[target], ~labels))
        further = digests(colors, seen[0], seen[1])
        count = len(np.unique(further))
        if count == distinct:
            break
        colors, distinct = further, count
    return colors


def hierarchy(kinds: Ints, edges: Ints, group: Ints, parent: Ints) -> Hierarchy:
    """Determine the canonical order of nodes and groups, from the innermost groups outwards.

    `kinds`: the kind of each node, as any number. `edges`: rows (from, to, from slot, to slot) of nodes. `group` is the
    innermost group of each node and `parent` that of each group, -1 at the top level. Nodes that differ only in their
    names keep the given order.
    """
    return _Climb(kinds, edges, group, parent).result()


def meetings(nodes: int, room: Ints, edges: Ints) -> tuple[Ints, Ints, Ints]:
    """Return, for each edge, the innermost room that contains both ends, and the items in it that contain each end.

    `room` is the room of each item; the top level has the number after the last group.
    """
    top = len(room) - nodes
    above = np.append(room[nodes:], top)
    depth = np.zeros(top + 1, np.int64)
    up = np.arange(top + 1, dtype=np.int64)
    while not np.all(up == top):
        depth += up != top
        up = above[up]
    ends = [edges[:, 0].copy(), edges[:, 1].copy()]
    rooms = [room[ends[0]], room[ends[1]]]
    while True:
        apart = rooms[0] != rooms[1]
        if not apart.any():
            return rooms[0], ends[0], ends[1]
        deeper = depth[rooms[0]] - depth[rooms[1]]
        for at, step in enumerate((apart & (deeper >= 0), apart & (deeper <= 0))):
            ends[at] = np.where(step, nodes + rooms[at], ends[at])
            rooms[at] = np.where(step, above[rooms[at]], rooms[at])


class _Climb:
    """Processes rooms by height. Once the room of an item is done, positions in the item are relative to that room."""

    def __init__(self, kinds: Ints, edges: Ints, group: Ints, parent: Ints) -> None:
        self.nodes, self.groups = len(kinds), len(parent)
        self.kinds, self.edges = kinds, edges
        top = self.groups
        self.room = np.concatenate([np.where(group < 0, top, group), np.where(parent < 0, top, parent)])
        self.colors = np.concatenate([digests(kinds), np.zeros(top + 1, np.uint64)])
        self.size = np.concatenate([np.ones(self.nodes, np.int64), np.zeros(top + 1, np.int64)])
        self.within = np.concatenate([np.zeros(self.nodes, np.int64), np.ones(top + 1, np.int64)])
        self.position = np.zeros(self.nodes, np.int64)
        self.rank = np.zeros(top + 1, np.int64)
        self.held = np.arange(self.nodes + top, dtype=np.int64)
        """The outermost item that contains each item, among those whose room is not done."""

    def result(self) -> Hierarchy:
        height = self._heights()
        meeting, source, target = meetings(self.nodes, self.room, self.edges)
        for level in range(int(height.max(initial=0)) + 1):
            met = np.nonzero(height[meeting] == level)[0]
            self._level(np.nonzero(height[self.room] == level)[0], met, source[met], target[met])
        position = self.position
        edges = np.column_stack([position[self.edges[:, 0]], position[self.edges[:, 1]], self.edges[:, 2:]])
        groups = self.nodes + np.arange(self.groups, dtype=np.int64)
        start = np.full(self.groups + 1, self.nodes, np.int64)
        for group, item in self._chains():
            np.minimum.at(start, group, position[item])
        rank = self.rank[: self.groups] - 1
        return Hierarchy(
            self.nodes,
            self.groups,
            self.kinds,
            edges[np.lexsort(edges.T[::-1])],
            np.where(self.room == self.groups, -1, self.room),
            self.colors[groups],
            inverse(position),
            start[: self.groups],
            self.size[groups],
            inverse(rank),
            rank,
            self.within[groups],
        )

    def _chains(self) -> list[tuple[Ints, Ints]]:
        """Return all pairs of a group and a node inside it, by number of levels between them."""
        item = np.arange(self.nodes, dtype=np.int64)
        holder = self.room[: self.nodes]
        found = []
        while len(item):
            inside = holder < self.groups
            item, holder = item[inside], holder[inside]
            found.append((holder, item))
            holder = self.room[self.nodes + holder]
        return found

    def _heights(self) -> Ints:
        """Return the depth of nested rooms inside each room."""
        height = np.zeros(self.groups + 1, np.int64)
        inner = self.room[self.nodes :]
        while True:
            higher = height.copy()
            np.maximum.at(higher, inner, height[:-1] + 1)
            if np.array_equal(higher, height):
                return height
            height = higher

    def _level(self, items: Ints, met: Ints, source: Ints, target: Ints) -> None:
        """Order the items of all rooms of one height."""
        local = np.zeros(self.nodes + self.groups + 1, np.int64)
        local[items] = np.arange(len(items), dtype=np.int64)
        slots = self.edges[met, 2], self.edges[met, 3]
        first, last = self.edges[met, 0], self.edges[met, 1]
        labels = digests(self.position[first], self.position[last], *slots)
        colors = refined(self.colors[items], local[source], local[target], labels)
        room = self.room[items]
        order = np.lexsort((items, colors, room))
        items, room = items[order], room[order]
        begins = np.nonzero(np.diff(room, prepend=-1))[0]
        counts = np.diff(np.append(begins, len(items)))
        for sizes, counted, offset in ((self.size, self.position, 0), (self.within, self.rank, 1)):
            before = np.cumsum(sizes[items]) - sizes[items]
            before -= np.repeat(before[begins], counts)
            self._shift(items, before + offset, counted)
            np.add.at(sizes, self.nodes + room, sizes[items])
        place = np.arange(len(items), dtype=np.int64) - np.repeat(begins, counts)
        total = np.zeros(self.groups + 1, np.uint64)
        np.add.at(total, room, digests(place, self.colors[items], self.size[items]))
        np.add.at(total, self.room[source], digests(self.position[first], self.position[last], *slots))
        self.colors[self.nodes + room[begins]] = mixed(total[room[begins]])
        done = np.isin(self.held, items)
        self.held[done] = self.nodes + self.room[self.held[done]]

    def _shift(self, items: Ints, amounts: Ints, counted: Ints) -> None:
        amount = np.zeros(self.nodes + self.groups + 1, np.int64)
        amount[items] = amounts
        moved = amount[self.held]
        if counted is self.position:
            counted += moved[: self.nodes]
        else:
            counted[:-1] += moved[self.nodes :]
