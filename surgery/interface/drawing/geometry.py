"""Geometry: the position of each box in its room, with all groups collapsed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from surgery.interface.drawing.group_tree import Tree
from surgery.interface.drawing.hierarchy import Copies
from surgery.interface.drawing.tracked_nodes import TrackedNodes
from surgery.interface.layout.layered import layered

NODE_HEIGHT, GROUP_HEIGHT = 24, 40

Box = int
"""A box: the number of a row, or -2 minus the number of a group."""


@dataclass
class BoxPositions:
    """The row (`layer`), the place in it (`order`) and the centre (`x`, px) of each box, by its number.

    `routes` are edges of a room that pass other boxes: from, to, and the x at which they pass.
    """

    layer: dict[Box, int] = field(default_factory=dict)
    order: dict[Box, int] = field(default_factory=dict)
    x: dict[Box, int] = field(default_factory=dict)
    routes: list[tuple[Box, Box, int]] = field(default_factory=list)


def box(group: int) -> Box:
    """Return the box of a group."""
    return -2 - group


def node_width(label: str) -> int:
    """Return the width of a node, in px."""
    return min(max(16 + 7 * len(label), 48), 200)


def group_width(name: str) -> int:
    """Return the width of a collapsed group, in px."""
    return min(max(32 + 7 * len(name), 96), 260)


def places(found: TrackedNodes, whole: Tree, copies: list[Copies]) -> BoxPositions:
    """Lay out every room; equal rooms are laid out once."""
    result = BoxPositions()
    rows, inner, edges = whole.rows(), whole.children(), _edges(found, whole)
    alike = {int(group) for one in copies for group in one.groups[1:].ravel()}
    boxes = {room: [*map(box, inner[room]), *rows[room]] for room in (-1, *range(len(whole.groups)))}
    for room in sorted(boxes.keys() - alike):
        _lay_out(found, whole, boxes[room], edges[room], result)
    for one in copies:
        _copy(one, result)
    for room in sorted(alike):
        if any(one not in result.layer for one in boxes[room]):
            _lay_out(found, whole, boxes[room], edges[room], result)
    return result


def _lay_out(
    found: TrackedNodes, whole: Tree, boxes: list[Box], edges: list[tuple[Box, Box]], result: BoxPositions
) -> None:
    places = {one: place for place, one in enumerate(boxes)}
    pairs = np.array([(places[a], places[b]) for a, b in edges], np.int64).reshape(-1, 2)
    layout = layered(
        [_width(found, whole, one) for one in boxes],
        [NODE_HEIGHT if one >= 0 else GROUP_HEIGHT for one in boxes],
        pairs,
    )
    for one, layer, order, x in zip(boxes, layout.layer.tolist(), layout.order.tolist(), layout.x.tolist()):
        result.layer[one], result.order[one], result.x[one] = layer, order, x
    result.routes += [(a, b, x) for (a, b), x in zip(edges, layout.via.tolist()) if x != -1]


def _width(found: TrackedNodes, whole: Tree, one: Box) -> int:
    if one < 0:
        return group_width(whole.groups[-2 - one].name)
    node = found.rows[one].node
    return node_width(node.name if found.rows[one].is_port else node.op)


def _copy(copies: Copies, result: BoxPositions) -> None:
    """Copy the layout of the first instance of a repeat to the others."""
    first_groups, first_rows = copies.groups[0].tolist(), copies.rows[0].tolist()
    for groups, rows in zip(copies.groups[1:].tolist(), copies.rows[1:].tolist()):
        same = [*zip(map(box, first_groups), map(box, groups)), *zip(first_rows, rows)]
        for model, one in same:
            for side in (result.layer, result.order, result.x):
                if one not in side and model in side:
                    side[one] = side[model]


def _edges(found: TrackedNodes, whole: Tree) -> dict[int, list[tuple[Box, Box]]]:
    """Return edges by room: each edge lifted to the room with both ends, and edges from subgraphs to their owners."""
    parent = [one.parent for one in whole.groups]
    chains: dict[int, list[int]] = {-1: []}
    for number in range(len(parent)):
        _chain(number, parent, chains)
    rooms: dict[int, dict[tuple[Box, Box], None]] = defaultdict(dict)
    pairs = [(edge.source, edge.target) for edge in found.edges]
    for source, target in dict.fromkeys(pairs):
        room, a, b = _lifted(source, target, chains[whole.group[source]], chains[whole.group[target]])
        if a != b:
            rooms[room][a, b] = None
    for number, one in enumerate(whole.groups):
        if one.owner != -1:
            room, a, b = _lifted(box(number), one.owner, chains[parent[number]], chains[whole.group[one.owner]])
            if a != b:
                rooms[room][a, b] = None
    return defaultdict(list, {room: list(edges) for room, edges in rooms.items()})


def _chain(group: int, parent: list[int], chains: dict[int, list[int]]) -> None:
    """Store the chain of groups around a group, including itself, outermost first."""
    missing = []
    while group not in chains:
        missing.append(group)
        group = parent[group]
    for number in reversed(missing):
        chains[number] = [*chains[parent[number]], number]


def _lifted(source: Box, target: Box, above: list[int], below: list[int]) -> tuple[int, Box, Box]:
    """Return the innermost room that contains both ends, and the boxes in it that contain them."""
    depth = 0
    while depth < min(len(above), len(below)) and above[depth] == below[depth]:
        depth += 1
    room = above[depth - 1] if depth else -1
    a = box(above[depth]) if depth < len(above) else source
    b = box(below[depth]) if depth < len(below) else target
    return room, a, b
