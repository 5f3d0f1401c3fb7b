"""Repeats: blocks for rooms that are too full, and one box for groups that are alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surgery.drawing.blocks import refine
from surgery.drawing.groups import Group, Tree
from surgery.drawing.repeats import Repeat, repeats
from surgery.drawing.rows import Rows

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Copies:
    """What is alike: row i of `groups` and `rows` has the groups and rows of instance i, each column the same thing."""

    groups: Ints
    rows: Ints


def with_repeats(found: Rows, whole: Tree) -> tuple[Tree, list[Copies]]:
    """Return the tree with blocks where a room has too many boxes, and with the groups that are alike in repeats."""
    kinds, edges = _kinds(found), _edges(found)
    group, parent = np.array(whole.group, np.int64), np.array([one.parent for one in whole.groups], np.int64)
    blocked = refine(kinds, edges, group, parent)
    full = _with_blocks(whole, blocked.group, blocked.parent)
    parents = np.array([one.parent for one in full.groups], np.int64)
    return _grouped(full, repeats(kinds, edges, np.array(full.group, np.int64), parents))


def _kinds(found: Rows) -> Ints:
    """Number the rows by what has to be equal where groups are alike."""
    numbers: dict[object, int] = {}
    signs = ((one.node.kind, one.born, one.died, one.node.signature) for one in found.rows)
    return np.array([numbers.setdefault(sign, len(numbers)) for sign in signs], np.int64)


def _edges(found: Rows) -> Ints:
    listed = [(edge.source, edge.target, edge.number, 0) for edge in found.edges]
    return np.array(listed, np.int64).reshape(-1, 4)


def _with_blocks(whole: Tree, group: Ints, parent: Ints) -> Tree:
    """Take over the blocks of a refined hierarchy, in which old groups keep their numbers."""
    groups = [Group(one.parent, one.name, one.kind, one.owner) for one in whole.groups]
    for number, around in enumerate(parent.tolist()):
        if number < len(groups):
            groups[number].parent = around
        else:
            groups.append(Group(around, "", "block"))
    full = Tree(groups, group.tolist())
    _name_blocks(full)
    return full


def _name_blocks(full: Tree) -> None:
    """Number the blocks of each room."""
    for inner in full.children().values():
        for number, block in enumerate(one for one in inner if full.groups[one].kind == "block"):
            full.groups[block].name = f"block {number + 1}"


def _grouped(full: Tree, found: Sequence[Repeat]) -> tuple[Tree, list[Copies]]:
    """Put the groups of each repeat into a group of their own; such groups come last in the list."""
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
    return Tree(groups, full.group), [_copies(one, boxes) for one in found]


def _copies(one: Repeat, boxes: dict[int, int]) -> Copies:
    """Return what is alike, the repeats within included."""
    groups = np.asarray(one.groups, np.int64)
    heads = [column for column in range(groups.shape[1]) if all(int(group) in boxes for group in groups[:, column])]
    within = [[boxes[int(group)] for group in groups[:, column]] for column in heads]
    added = np.array(within, np.int64).reshape(-1, len(groups)).T
    return Copies(np.concatenate([groups, added], axis=1), np.asarray(one.nodes, np.int64))


def shared_name(names: Sequence[str]) -> str:
    """Name several groups at once: what their names have in common, with a star for what differs."""
    first, last = min(names), max(names)
    start = 0
    while start < min(len(first), len(last)) and first[start] == last[start]:
        start += 1
    shortest = min(map(len, names))
    end = 0
    while end < shortest - start and len({name[len(name) - 1 - end] for name in names}) == 1:
        end += 1
    return f"{first[:start]}*{first[len(first) - end :]}" if len(set(names)) > 1 else first
