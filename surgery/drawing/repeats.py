"""Adjacent equal groups, such as layer.0 to layer.11: one of them can be drawn for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from surgery.drawing.arrays import Ints
from surgery.drawing.fingerprints import Hierarchy, hierarchy

PERIODS = 16
"""Groups that one instance may consist of, at most."""


@dataclass(frozen=True)
class Repeat:
    """Alike runs of sibling groups. In each array, a row is an instance, and a column is the same thing in each."""

    parent: int
    """The group that holds the instances; -1: the top level."""
    roots: Ints
    """The groups of each instance: one, or several that take turns."""
    groups: Ints
    """All groups inside, with the roots."""
    nodes: Ints
    """All nodes inside."""


def repeats(kinds: ArrayLike, edges: ArrayLike, group: ArrayLike, parent: ArrayLike) -> tuple[Repeat, ...]:
    """Find the repeats of all rooms, outer ones before inner ones, also those inside of instances.

    `kinds[i]` says what node i is, apart from names: an operator with its attributes, as any number. `edges` are rows
    (from, to, from slot, to slot). `group[i]` is the innermost group of node i, `parent[j]` the group that holds group
    j; -1 is the top level. Siblings are taken in the order of their first nodes, or of their numbers. What comes into a
    group from outside and what leaves it makes no difference, and nobody asks for names: that q, k and v are not one
    thing thrice is for the caller to say.
    """
    return found(
        hierarchy(
            np.asarray(kinds, np.int64).reshape(-1),
            np.asarray(edges, np.int64).reshape(-1, 4),
            np.asarray(group, np.int64).reshape(-1),
            np.asarray(parent, np.int64).reshape(-1),
        )
    )


def found(whole: Hierarchy) -> tuple[Repeat, ...]:
    """Find the repeats of a hierarchy."""
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


def _in_room(whole: Hierarchy, room: int, siblings: list[int], first: Ints) -> list[Repeat]:
    marks = _marks(whole, siblings)
    # Groups are numbered as somebody came by them, which is the order to go by where that of the nodes is none.
    orders = [np.argsort(first[siblings], kind="stable").tolist(), list(range(len(siblings)))]
    runs = [tandem([marks[at] for at in order], PERIODS) for order in orders]
    best = 0 if sum(a * b for _, a, b in runs[0]) >= sum(a * b for _, a, b in runs[1]) else 1
    siblings = [siblings[at] for at in orders[best]]
    repeats = []
    for start, period, count in runs[best]:
        roots = np.array(siblings[start : start + period * count], np.int64).reshape(count, period)
        groups = [np.concatenate([_groups(whole, one) for one in row]) for row in roots.tolist()]
        nodes = [np.concatenate([_nodes(whole, one) for one in row]) for row in roots.tolist()]
        repeats.append(Repeat(room, roots, np.stack(groups), np.stack(nodes)))
    return [repeat for repeat in repeats if repeat.nodes.size]


def _marks(whole: Hierarchy, siblings: list[int]) -> list[int]:
    """Return, for each group, the first one that is like it."""
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
    """Find runs of a pattern that follows itself, from the left: (start, length of the pattern, how often).

    Of the patterns that begin at a place, the one that covers most is taken, and of those the shortest.
    """
    text = np.asarray(marks, np.int64)
    size = len(text)
    # How many marks from each place on are equal to those a period later.
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
