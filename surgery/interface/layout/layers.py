"""The row of each box: by longest paths, then boxes move towards their consumers or producers."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass

import numpy as np

from surgery.interface.layout.arrays import Ints, Mask, distinct, inverse, offsets, unique_pairs

WIDEST = 96
"""Maximum number of boxes in a row; in large drawings, three times the square root of the number of boxes."""


@dataclass(frozen=True)
class Layers:
    """Rows of the boxes. `source` and `target` are the distinct edges, each pointing down by at least one row."""

    source: Ints
    target: Ints
    layer: Ints
    component: Ints
    """The connected component of each box, numbered by the first box of each component."""
    visited: Ints
    """The depth-first visiting order of the boxes, in which neighbors in the drawing are adjacent."""
    above: Ints
    below: Ints
    """`above` and `below`: the lengths, in edges, of the longest paths that end and begin at each box."""


@dataclass(frozen=True)
class _DepthFirstOrder:
    topological: list[int]
    visited: list[int]
    root: list[int]
    backward: list[int]


def layers(count: int, edges: Ints) -> Layers:
    """Assign rows to `count` boxes. Self-edges are ignored; in each cycle, one edge is reversed.

    Boxes start at the length of the longest path from a source. Then each box that is held by fewer edges from above
    than from below moves down to its consumers, together with boxes that only it reads: a mask is next to its first
    reader, not at the top. Side exits move up to their producers.
    """
    proper = edges[edges[:, 0] != edges[:, 1]]
    source, target = unique_pairs(proper[:, 0], proper[:, 1], max(count, 1))
    entered = np.bincount(target, minlength=count)
    roots = np.argsort(entered > 0, kind="stable")
    search = _search(count, offsets(source, count).tolist(), target.tolist(), roots.tolist())
    if search.backward:
        turned = np.zeros(len(source), np.bool_)
        turned[search.backward] = True
        swapped = np.where(turned, target, source), np.where(turned, source, target)
        source, target = unique_pairs(*swapped, count)
    way = _Way(count, source, target, search.topological)
    above, below = way.longest(), way.turned().longest()
    layer = np.array(_rows(way, above), np.int64)
    component = _components(np.array(search.root, np.int64), source, target)
    visited, longest, left = (np.array(one, np.int64) for one in (search.visited, above, below))
    if count:
        layer = _narrowed(layer, component, longest > 0, left > 0, visited)
    return Layers(source, target, layer, component, visited, longest, left)


def _search(count: int, starts: list[int], targets: list[int], roots: list[int]) -> _DepthFirstOrder:
    """Search depth-first from each unvisited root. `backward` are the positions of edges that close a cycle."""
    state = bytearray(count)  # 0 new, 1 on the stack, 2 done
    cursor = starts[:count]
    finished: list[int] = []
    visited = [0] * count
    tree = [0] * count
    backward: list[int] = []
    clock = 0
    for root in roots:
        if state[root]:
            continue
        stack = [root]
        state[root] = 1
        visited[root], tree[root], clock = clock, root, clock + 1
        while stack:
            node = stack[-1]
            at = cursor[node]
            if at == starts[node + 1]:
                state[node] = 2
                finished.append(stack.pop())
                continue
            cursor[node] = at + 1
            target = targets[at]
            if not state[target]:
                state[target] = 1
                visited[target], tree[target], clock = clock, root, clock + 1
                stack.append(target)
            elif state[target] == 1:
                backward.append(at)
    finished.reverse()
    return _DepthFirstOrder(finished, visited, tree, backward)


def _narrowed(layer: Ints, component: Ints, fed: Mask, read: Mask, visited: Ints) -> Ints:
    """Split rows that are too wide into several: boxes without readers first, inputs last.

    Rows of each component are numbered from 0.
    """
    count = len(layer)
    limit = max(WIDEST, 3 * math.isqrt(count))
    order = np.lexsort((visited, read.astype(np.int64) - fed, layer, component))
    begins = np.nonzero((np.diff(layer[order], prepend=-1) != 0) | (np.diff(component[order], prepend=-1) != 0))[0]
    sizes = np.diff(np.append(begins, count))
    parts = -(-sizes // limit)
    each = -(-sizes // parts)
    place = np.arange(count, dtype=np.int64) - np.repeat(begins, sizes)
    before = np.cumsum(parts) - parts
    found = np.empty(count, np.int64)
    found[order] = np.repeat(before, sizes) + place // np.repeat(each, sizes)
    first = np.full(int(component.max()) + 1, int(found.max()), np.int64)
    np.minimum.at(first, component, found)
    return found - first[component]


class _Way:
    """The graph as lists, with a topological order."""

    def __init__(self, count: int, source: Ints, target: Ints, order: list[int]) -> None:
        self.order = order
        self.starts, self.readers = offsets(source, count).tolist(), target.tolist()
        by_target = np.argsort(target, kind="stable")
        self.begins, self.producers = offsets(target, count).tolist(), source[by_target].tolist()

    def turned(self) -> _Way:
        """Return the graph with all edges reversed."""
        other = copy(self)
        other.order = self.order[::-1]
        other.starts, other.readers = self.begins, self.producers
        other.begins, other.producers = self.starts, self.readers
        return other

    def longest(self) -> list[int]:
        """Return the length of the longest path to each box, in edges."""
        starts, readers = self.starts, self.readers
        found = [0] * len(self.order)
        for node in self.order:
            next_one = found[node] + 1
            for at in range(starts[node], starts[node + 1]):
                if found[readers[at]] < next_one:
                    found[readers[at]] = next_one
        return found

    def held(self) -> list[float]:
        """Return the number of lanes that become longer if a box moves down with the boxes that only it reads.

        The readers of a producer share the cost of its lane.
        """
        starts, begins, producers = self.starts, self.begins, self.producers
        found = [0.0] * len(self.order)
        for node in self.order:
            total = 0.0
            for producer in producers[begins[node] : begins[node + 1]]:
                readers = starts[producer + 1] - starts[producer]
                total += 1 / readers if readers > 1 else min(1.0, found[producer])
            found[node] = total
        return found


def _rows(way: _Way, longest: list[int]) -> list[int]:
    """Return rows by longest paths; then loosely held boxes move down to readers, and side exits up to producers."""
    starts, readers, begins, producers = way.starts, way.readers, way.begins, way.producers
    rows = longest.copy()
    held, loose = way.held(), way.turned().held()
    for node in reversed(way.order):
        if loose[node] and held[node] <= 1:
            reached = readers[starts[node] : starts[node + 1]]
            rows[node] = min(rows[one] for one in reached if loose[one] or begins[one + 1] - begins[one] > 1) - 1
    for node in way.order:
        if not loose[node] and begins[node] < begins[node + 1]:
            rows[node] = 1 + max(rows[one] for one in producers[begins[node] : begins[node + 1]])
    return rows


def _components(root: Ints, source: Ints, target: Ints) -> Ints:
    """Number the connected components, given the search tree of each box."""
    parent = {int(one): int(one) for one in distinct(root)}

    def find(one: int) -> int:
        while parent[one] != one:
            parent[one] = one = parent[parent[one]]
        return one

    across = root[source] != root[target]
    for one, other in zip(*unique_pairs(root[source[across]], root[target[across]], len(root) + 1)):
        a, b = find(int(one)), find(int(other))
        parent[max(a, b)] = min(a, b)
    merged = {one: find(one) for one in parent}
    known = np.array(list(merged), np.int64)
    label = np.array(list(merged.values()), np.int64)[np.searchsorted(known, root)]
    _, first, numbered = np.unique(label, return_index=True, return_inverse=True)
    rank = inverse(np.argsort(first, kind="stable"))
    return np.asarray(rank[numbered], np.int64)
