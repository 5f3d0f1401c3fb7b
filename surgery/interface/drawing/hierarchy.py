"""Hierarchy: blocks in rooms that are too full, and one box for equal groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from surgery.interface.drawing.block_names import name_blocks, pattern, shared_name, tell_apart
from surgery.interface.drawing.group_tree import Group, Tree, ordered
from surgery.interface.drawing.module_paths import common
from surgery.interface.drawing.tracked_nodes import TrackedNodes
from surgery.interface.layout.repeated_groups import RepeatedGroups, repeats
from surgery.interface.layout.structure_groups import Blocks, refine

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Copies:
    """Equal instances: row i of `groups` and `rows` has those of instance i, and each column corresponding items."""

    groups: Ints
    rows: Ints


def with_repeats(found: TrackedNodes, whole: Tree) -> tuple[Tree, list[Copies]]:
    """Return the tree with blocks in rooms with too many boxes and with equal groups in repeats, and the copies."""
    graph = _Skeleton(found)
    blocked = refine(graph.kinds, graph.edges, graph.groups(whole), _parents(whole))
    full = _with_blocks(found, whole, graph.placed(whole, blocked), blocked.parent)
    alike = repeats(graph.kinds, graph.edges, graph.groups(full), _parents(full))
    numbered = [part for one in alike for part in _numbered(one, full.groups)]
    final, boxes = _grouped(full, numbered)
    tell_apart(final)
    return final, [_copies(one, boxes, graph) for one in numbered]


def _parents(whole: Tree) -> Ints:
    return np.array([one.parent for one in whole.groups], np.int64)


class _Skeleton:
    """The nodes whose structure is compared: all except inputs, outputs, and Constant nodes without inputs.

    A Constant is placed with its readers; how many readers share one is irrelevant to the structure of the network.
    """

    def __init__(self, found: TrackedNodes) -> None:
        self.found = found
        self._read: dict[int, list[int]] = defaultdict(list)
        for edge in found.edges:
            self._read[edge.source].append(edge.target)
        sources = {edge.target for edge in found.edges}
        self.constants = [
            number for number, row in enumerate(found.rows) if row.node.op == "Constant" and number not in sources
        ]
        self._owned: dict[int, list[int]] = defaultdict(list)
        for row in self.constants:
            for reader in self._read[row][:1]:
                self._owned[reader].append(row)
        left_out = set(self.constants)
        self.rows = [n for n, row in enumerate(found.rows) if not row.is_port and n not in left_out]
        self.numbers = np.array(self.rows, np.int64)
        self.places = {row: place for place, row in enumerate(self.rows)}
        numbers: dict[object, int] = {}
        signs = (
            (row.node.kind, row.born, row.died, row.node.signature) for row in map(found.rows.__getitem__, self.rows)
        )
        self.kinds = np.array([numbers.setdefault(sign, len(numbers)) for sign in signs], np.int64)
        listed = [
            (self.places[edge.source], self.places[edge.target], edge.number, 0)
            for edge in found.edges
            if edge.source in self.places and edge.target in self.places
        ]
        self.edges = np.array(listed, np.int64).reshape(-1, 4)

    def groups(self, whole: Tree) -> Ints:
        """Return the group of each node."""
        return np.array([whole.group[row] for row in self.rows], np.int64)

    def placed(self, whole: Tree, blocked: Blocks) -> list[int]:
        """Return the group of each row after adding blocks: a Constant is placed in the common group of its readers."""
        group, parent = list(whole.group), blocked.parent.tolist()
        for row, number in zip(self.rows, blocked.group.tolist(), strict=True):
            group[row] = number
        for row in self.constants:
            chains = [_chain(group[reader], parent) for reader in self._read[row]]
            shared = common(chains) if chains else ()
            own = _chain(group[row], parent)
            group[row] = shared[-1] if shared[: len(own)] == own and shared else group[row]
        return group

    def constants_of(self, rows: Ints) -> Ints:
        """Return the constants of instances in columns; none if the instances do not correspond."""
        columns = [[one for row in instance for one in self._owned[row]] for instance in rows.tolist()]
        alike = len({tuple(len(self._owned[row]) for row in instance) for instance in rows.tolist()}) == 1
        return np.array(columns, np.int64) if alike else np.zeros((len(columns), 0), np.int64)


def _with_blocks(found: TrackedNodes, whole: Tree, group: list[int], parent: Ints) -> Tree:
    """Return the tree with the blocks of a refined hierarchy, in which old groups keep their numbers.

    A block that contains a named group is left out, so that named groups are not hidden in unnamed ones.
    """
    known, around = len(whole.groups), parent.tolist()
    groups = [replace(one) for one in whole.groups] + [Group(-1, "", "block") for _ in around[known:]]
    hiding: set[int] = set()
    for number in range(known):
        block = around[number]
        while block >= known and block not in hiding:
            hiding.add(block)
            block = around[block]
    home = [_outside(number, around, hiding) for number in around]
    for number, one in enumerate(groups):
        one.parent = home[number]
    full = Tree(groups, [_outside(number, around, hiding) for number in group])
    full = ordered(full, {number: one.parent for number, one in enumerate(groups) if number not in hiding})
    name_blocks(found, full)
    return full


def _outside(number: int, around: list[int], hiding: set[int]) -> int:
    """Return the innermost group that is kept."""
    while number in hiding:
        number = around[number]
    return number


def _grouped(full: Tree, found: Sequence[RepeatedGroups]) -> tuple[Tree, dict[int, int]]:
    """Put the groups of each repeat into a new group; the new groups come last in the list.

    Return the tree, and the new groups by the first group of the first instance.
    """
    groups = list(full.groups)
    boxes: dict[int, int] = {}
    for one in found:
        box = boxes[int(one.roots[0, 0])] = len(groups)
        names = [groups[int(root)].name for root in one.roots[:, 0]]
        around = Group(int(one.parent), shared_name(names), "repeat", count=len(one.roots))
        groups.append(around)
        for instance, roots in enumerate(one.roots.tolist()):
            for root in roots:
                groups[root].parent, groups[root].instance = box, instance
    return Tree(groups, full.group), boxes


def _numbered(one: RepeatedGroups, groups: Sequence[Group]) -> Iterator[RepeatedGroups]:
    """Yield the parts of a repeat whose names differ only in numbers: equal query, key and value are not a repeat."""
    signs = [tuple(_sign(groups[root]) for root in roots) for roots in one.roots.tolist()]
    start = 0
    for end in range(1, len(signs) + 1):
        if end == len(signs) or signs[end] != signs[start]:
            if end - start > 1:
                part = slice(start, end)
                yield RepeatedGroups(one.parent, one.roots[part], one.groups[part], one.nodes[part])
            start = end


def _sign(group: Group) -> str:
    return "" if group.kind == "block" else pattern(group.name)


def _copies(one: RepeatedGroups, boxes: dict[int, int], graph: _Skeleton) -> Copies:
    """Return the equal instances of a repeat, including the repeats inside."""
    groups = np.asarray(one.groups, np.int64)
    heads = [column for column in range(groups.shape[1]) if all(int(group) in boxes for group in groups[:, column])]
    within = [[boxes[int(group)] for group in groups[:, column]] for column in heads]
    added = np.array(within, np.int64).reshape(-1, len(groups)).T
    rows = graph.numbers[np.asarray(one.nodes, np.int64)]
    return Copies(np.concatenate([groups, added], axis=1), np.concatenate([rows, graph.constants_of(rows)], axis=1))


def _chain(group: int, parent: list[int]) -> tuple[int, ...]:
    """Return the chain of groups around a group, including itself, outermost first."""
    found = []
    while group != -1:
        found.append(group)
        group = parent[group]
    return tuple(reversed(found))
