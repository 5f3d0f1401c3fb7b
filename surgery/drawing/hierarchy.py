"""Repeats: blocks for rooms that are too full, and one box for groups that are alike."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surgery.drawing.blocks import refine
from surgery.drawing.groups import Group, Tree
from surgery.drawing.repeats import Repeat, repeats
from surgery.drawing.rows import Rows

Ints = NDArray[np.int64]

_NUMBER = re.compile(r"\d+")


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
    alike = repeats(kinds, edges, np.array(full.group, np.int64), parents)
    final, copies = _grouped(full, [part for one in alike for part in _numbered(one, full.groups)])
    _tell_apart(final)
    return final, copies


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


def _tell_apart(whole: Tree) -> None:
    """Number groups of one room that have the same name: a scope may be called as a function is."""
    for inner in whole.children().values():
        taken = {whole.groups[number].name for number in inner}
        seen: set[str] = set()
        for number in inner:
            one, count = whole.groups[number], 2
            name = one.name
            while one.name in seen:
                one.name = f"{name} ({count})" if f"{name} ({count})" not in taken else one.name
                count += 1
            seen.add(one.name)


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


def _numbered(one: Repeat, groups: Sequence[Group]) -> Iterator[Repeat]:
    """Yield the parts of a repeat whose names differ in numbers alone: query, key and value are alike, but not one."""
    signs = [tuple(_NUMBER.sub("*", groups[root].name) for root in roots) for roots in one.roots.tolist()]
    start = 0
    for end in range(1, len(signs) + 1):
        if end == len(signs) or signs[end] != signs[start]:
            if end - start > 1:
                part = slice(start, end)
                yield Repeat(one.parent, one.roots[part], one.groups[part], one.nodes[part])
            start = end


def _copies(one: Repeat, boxes: dict[int, int]) -> Copies:
    """Return what is alike, the repeats within included."""
    groups = np.asarray(one.groups, np.int64)
    heads = [column for column in range(groups.shape[1]) if all(int(group) in boxes for group in groups[:, column])]
    within = [[boxes[int(group)] for group in groups[:, column]] for column in heads]
    added = np.array(within, np.int64).reshape(-1, len(groups)).T
    return Copies(np.concatenate([groups, added], axis=1), np.asarray(one.nodes, np.int64))


def shared_name(names: Sequence[str]) -> str:
    """Name several groups at once: "layer.1-11" for layer.1 to layer.11, else with a star for each number."""
    sign = _NUMBER.sub("*", names[0])
    numbers = [[int(number) for number in _NUMBER.findall(name)] for name in names]
    varying = [place for place in range(len(numbers[0])) if len({one[place] for one in numbers}) > 1]
    parts = sign.split("*")
    written = []
    for place, part in enumerate(parts[:-1]):
        found = [one[place] for one in numbers]
        is_run = found == [*range(found[0], found[0] + len(found))]
        written += [part, "*" if place in varying and not is_run else _span(found)]
    return "".join([*written, parts[-1]])


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]}-{numbers[-1]}" if numbers[0] != numbers[-1] else str(numbers[0])
