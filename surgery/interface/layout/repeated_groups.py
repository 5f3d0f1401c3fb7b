"""Adjacent equal groups, such as layer.0 to layer.11, of which one can be drawn for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from surgery.interface.layout.arrays import Ints
from surgery.interface.layout.group_hashes import Hierarchy, hierarchy

PERIODS = 16
"""Maximum number of groups in one instance."""


@dataclass(frozen=True)
class RepeatedGroups:
    """Equal runs of sibling groups. In each array, a row is an instance, and a column has corresponding items."""

    parent: int
    """The group that contains the instances; -1 for the top level."""
    roots: Ints
    """The groups of each instance: one, or several in sequence."""
    groups: Ints
    """All groups inside, including the roots."""
    nodes: Ints
    """All nodes inside."""


def repeats(kinds: ArrayLike, edges: ArrayLike, group: ArrayLike, parent: ArrayLike) -> tuple[RepeatedGroups, ...]:
    """Return the repeats of all rooms, outer ones before inner ones, including those inside of instances.

    `kinds[i]` is the kind of node i, without names: an operator with its attributes, as any number. `edges` are rows
    (from, to, from slot, to slot). `group[i]` is the innermost group of node i, `parent[j]` the group that contains
    group j; -1 is the top level. Siblings are ordered by their first nodes, or by their numbers. Inputs and outputs of
    a group are ignored, and so are names: it is up to the caller to exclude q, k and v as three instances of one thing.
    """
    return found(
        hierarchy(
            np.asarray(kinds, np.int64).reshape(-1),
            np.asarray(edges, np.int64).reshape(-1, 4),
            np.asarray(group, np.int64).reshape(-1),
            np.asarray(parent, np.int64).reshape(-1),
        )
    )


def found(whole: Hierarchy) -> tuple[RepeatedGroups, ...]:
    """Return the repeats of a hierarchy."""
    first = np.full(whole.groups, whole.nodes, np.int64)
    for one in range(whole.groups):
        inside = whole.order[whole.start[one] : whole.start[one] + whole.size[one]]
        first[one] = inside.min(initial=whole.nodes)
    rooms: dict[int, list[int]] = {}
    for one in range(whole.groups):
        rooms.setdefault(int(whole.room[whole.nodes + one]), []).append(one)
    begin = np.append(whole.begin, -1)
    return tuple(
        repeat
        for room in sorted(rooms, key=lambda one: int(begin[one]))
        if len(rooms[room]) > 1
        for repeat in _in_room(whole, room, rooms[room], first)
    )


def _in_room(whole: Hierarchy, room: int, siblings: list[int], first: Ints) -> list[RepeatedGroups]:
    marks = _marks(whole, siblings)
    # Groups are numbered in the order of discovery, which is the better order if that of the nodes is arbitrary.
    orders = [np.argsort(first[siblings], kind="stable").tolist(), list(range(len(siblings)))]
    runs = [tandem([marks[at] for at in order], PERIODS) for order in orders]
    best = 0 if sum(a * b for _, a, b in runs[0]) >= sum(a * b for _, a, b in runs[1]) else 1
    siblings = [siblings[at] for at in orders[best]]
    repeats = []
    for start, period, count in runs[best]:
        roots = np.array(siblings[start : start + period * count], np.int64).reshape(count, period)
        groups = [np.concatenate([_groups(whole, one) for one in row]) for row in roots.tolist()]
        nodes = [np.concatenate([_nodes(whole, one) for one in row]) for row in roots.tolist()]
        repeats.append(RepeatedGroups(room, roots, np.stack(groups), np.stack(nodes)))
    return [repeat for repeat in repeats if repeat.nodes.size]


def _marks(whole: Hierarchy, siblings: list[int]) -> list[int]:
    """Return, for each group, the first one that equals it."""
    classes: dict[tuple[int, int], int] = {}
    found = []
    for one in siblings:
        key = (int(whole.digest[one]), 0)
        while key in classes and not whole.same(classes[key], one):
            key = (key[0], key[1] + 1)
        found.append(classes.setdefault(key, one))
    return found


def _groups(whole: Hierarchy, one: int) -> Ints:
    return whole.tree[whole.begin[one] : whole.begin[one] + whole.within[one]]


def _nodes(whole: Hierarchy, one: int) -> Ints:
    return whole.order[whole.start[one] : whole.start[one] + whole.size[one]]


def tandem(marks: Sequence[int], longest: int) -> list[tuple[int, int, int]]:
    """Return runs of a repeated pattern, from the left: (start, pattern length, repetitions).

    Of the patterns that begin at a place, the one that covers most is taken; the shortest one if several do.
    """
    text = np.asarray(marks, np.int64)
    size = len(text)
    # The number of marks from each place on that equal those a period later.
    equal = {}
    for period in range(1, min(longest, size // 2) + 1):
        differs = np.nonzero(text[:-period] != text[period:])[0]
        ends = np.append(differs, size - period)
        each = np.arange(size - period)
        equal[period] = ends[np.searchsorted(ends, each)] - each
    runs = []
    at: int = 0
    while at < size - 1:
        options = [
            (period * (int(same[at]) // period + 1), -period) for period, same in equal.items() if at < len(same)
        ]
        covered, negative = max((one for one in options if one[0] > -one[1]), default=(1, -1))
        if covered > 1:
            runs.append((at, -negative, covered // -negative))
        at += covered
    return runs
