"""Which row each box stands in: longest paths, then whatever hangs on one edge moves to the other end of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surgery.drawing.arrays import Ints, inverse, offsets, unique_pairs


@dataclass(frozen=True)
class Layers:
    """Rows of the boxes. `source` and `target` are the distinct edges, each pointing down by at least one row."""

    source: Ints
    target: Ints
    layer: Ints
    component: Ints
    """Which connected component a box belongs to, numbered by the first box of each."""
    visited: Ints
    """When a search in depth came by the box: neighbors in the drawing come one after the other."""


@dataclass(frozen=True)
class _Search:
    topological: list[int]
    visited: list[int]
    root: list[int]
    backward: list[int]


def layers(count: int, edges: Ints) -> Layers:
    """Assign rows to `count` boxes. Self-edges are left out; of each cycle, one edge is turned around.

    Boxes start on the longest path from a source. Then each box that fewer edges hold from above than from below moves
    down to its consumers, together with what only it reads: a mask stands next to its first reader, not at the top.
    Side exits move up to their producers.
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
    layer = np.array(_rows(count, source, target, search.topological), np.int64)
    component = _components(np.array(search.root, np.int64), source, target)
    if count:
        first = np.full(int(component.max()) + 1, layer.max(), np.int64)
        np.minimum.at(first, component, layer)
        layer -= first[component]
    return Layers(source, target, layer, component, np.array(search.visited, np.int64))


def _search(count: int, starts: list[int], targets: list[int], roots: list[int]) -> _Search:
    """Search in depth from each root that is new. `backward` are the positions of edges that close a cycle."""
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
    return _Search(finished, visited, tree, backward)


def _rows(count: int, source: Ints, target: Ints, topological: list[int]) -> list[int]:
    below, readers = offsets(source, count).tolist(), target.tolist()
    order = np.argsort(target, kind="stable")
    above, producers = offsets(target, count).tolist(), source[order].tolist()
    rows = [0] * count
    for node in topological:
        row = rows[node] + 1
        for at in range(below[node], below[node + 1]):
            if rows[readers[at]] < row:
                rows[readers[at]] = row
    held = _held(topological, above, producers, below)
    loose = _held(topological[::-1], below, readers, above)
    for node in reversed(topological):
        if loose[node] and held[node] <= loose[node]:
            reached = readers[below[node] : below[node + 1]]
            rows[node] = min(rows[one] for one in reached if loose[one] or above[one + 1] - above[one] > 1) - 1
    for node in topological:
        if not loose[node] and above[node] < above[node + 1]:
            rows[node] = 1 + max(rows[one] for one in producers[above[node] : above[node + 1]])
    return rows


def _held(order: list[int], starts: list[int], neighbors: list[int], back: list[int]) -> list[int]:
    """Count, for each node, the edges that become longer when it moves away with all that hangs on it alone.

    `order` comes from the end that the node would move away from; `back` are the offsets of edges that leave the
    neighbors in the direction of the node.
    """
    held = [0] * len(order)
    for node in order:
        total = 0
        for at in range(starts[node], starts[node + 1]):
            neighbor = neighbors[at]
            if held[neighbor] or back[neighbor + 1] - back[neighbor] > 1:
                total += 1
        held[node] = total
    return held


def _components(root: Ints, source: Ints, target: Ints) -> Ints:
    """Number the connected components, given the tree of the search that each box is in."""
    parent = {int(one): int(one) for one in np.unique(root)}

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
