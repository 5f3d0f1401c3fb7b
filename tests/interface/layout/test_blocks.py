"""Which groups are alike, and which groups follow from structure where names say nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgery.interface.layout.group_hashes import hierarchy
from surgery.interface.layout.repeated_groups import tandem
from surgery.interface.layout.structure_groups import Blocks, blocks, refine, repeats

Edge = tuple[int, int, int, int]


class Drawing:
    """Nodes of kinds, in groups, with edges, as a model would give them."""

    def __init__(self) -> None:
        self.kinds: list[int] = []
        self.edges: list[Edge] = []
        self.group: list[int] = []
        self.parent: list[int] = []

    def open(self, parent: int = -1) -> int:
        self.parent.append(parent)
        return len(self.parent) - 1

    def add(self, kind: int, *inputs: int, group: int = -1) -> int:
        node = len(self.kinds)
        self.kinds.append(kind)
        self.group.append(group)
        self.edges += [(one, node, 0, slot) for slot, one in enumerate(inputs)]
        return node

    def layer(self, value: int, group: int, kinds: tuple[int, ...] = (1, 2, 3, 4, 5, 6)) -> int:
        """A residual block: a branch of nodes that ends in a sum with what comes in."""
        inner = value
        for kind in kinds:
            inner = self.add(kind, inner, group=group)
        return self.add(9, value, inner, group=group)

    def arguments(self) -> tuple[list[int], list[Edge], list[int], list[int]]:
        return self.kinds, self.edges, self.group, self.parent


def stacked(layers: int, kinds: tuple[int, ...] = (1, 2, 3, 4, 5, 6), grouped: bool = True) -> Drawing:
    drawing = Drawing()
    value = drawing.add(7)
    for _ in range(layers):
        value = drawing.layer(value, drawing.open() if grouped else -1, kinds)
    drawing.add(8, value)
    return drawing


def test_equal_layers_form_one_repeat() -> None:
    drawing = stacked(12)
    (repeat,) = repeats(*drawing.arguments())
    assert repeat.parent == -1
    assert repeat.roots.tolist() == [[one] for one in range(12)]
    assert repeat.groups.tolist() == repeat.roots.tolist()
    assert sorted(repeat.nodes[0].tolist()) == list(range(1, 8))
    assert np.array_equal(repeat.nodes - repeat.nodes[0], np.arange(12)[:, None] * np.full(7, 7))


def test_a_different_layer_ends_a_repeat() -> None:
    drawing = stacked(6)
    drawing.kinds[1 + 7 * 2] = 99
    assert [repeat.roots.ravel().tolist() for repeat in repeats(*drawing.arguments())] == [[0, 1], [3, 4, 5]]


def test_a_different_input_slot_ends_a_repeat() -> None:
    drawing = stacked(3)
    at = drawing.edges.index((8 + 4, 8 + 5, 0, 0))
    drawing.edges[at] = (8 + 4, 8 + 5, 0, 1)
    assert repeats(*drawing.arguments()) == ()


def test_an_edge_makes_a_difference() -> None:
    # The second of four reads the sum's input one node later: the same operators, other edges.
    drawing = stacked(4)
    drawing.edges.append((8, 12, 0, 1))
    assert [repeat.roots.ravel().tolist() for repeat in repeats(*drawing.arguments())] == [[2, 3]]


def test_an_edge_from_outside_does_not_end_a_repeat() -> None:
    drawing = stacked(4)
    mask = drawing.add(50)
    drawing.edges.append((mask, 8 + 3, 0, 1))
    (repeat,) = repeats(*drawing.arguments())
    assert len(repeat.roots) == 4


def test_alternating_layers_are_a_repeat_of_pairs() -> None:
    # As the plain and the shifted windows of Swin.
    drawing = Drawing()
    value = drawing.add(7)
    for _ in range(3):
        value = drawing.layer(value, drawing.open(), (1, 2, 3))
        value = drawing.layer(value, drawing.open(), (1, 2, 20, 21, 3))
    (repeat,) = repeats(*drawing.arguments())
    assert repeat.roots.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert repeat.nodes.shape == (3, 10)


def test_repeats_inside_of_repeats() -> None:
    drawing = Drawing()
    value = drawing.add(7)
    for _ in range(4):
        outer = drawing.open()
        for _ in range(3):
            value = drawing.layer(value, drawing.open(outer), (1, 2))
        value = drawing.add(5, value, group=outer)
    first, *inner = repeats(*drawing.arguments())
    assert first.parent == -1
    assert first.roots.ravel().tolist() == [0, 4, 8, 12]
    assert first.groups.shape == (4, 4)
    assert np.array_equal(first.groups - first.groups[0], np.repeat([[0], [4], [8], [12]], 4, axis=1))
    assert sorted((one.parent, len(one.roots)) for one in inner) == [(0, 3), (4, 3), (8, 3), (12, 3)]


def test_layers_grouped_differently_are_not_a_repeat() -> None:
    drawing = stacked(2)
    inner = drawing.open(1)
    drawing.group[10] = inner
    assert repeats(*drawing.arguments()) == ()


def test_equal_parallel_experts_are_a_repeat() -> None:
    drawing = Drawing()
    value = drawing.add(7)
    ends = [drawing.layer(value, drawing.open()) for _ in range(8)]
    drawing.add(8, *ends)
    (repeat,) = repeats(*drawing.arguments())
    assert repeat.roots.ravel().tolist() == list(range(8))


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_columns_of_a_repeat_correspond_in_any_order_of_nodes(layers: int, seed: int) -> None:
    drawing = stacked(layers, (1, 2, 1, 2, 3))
    order = np.random.default_rng(seed).permutation(len(drawing.kinds))
    place = np.argsort(order)
    kinds = np.array(drawing.kinds)[order]
    edges = np.array(drawing.edges)
    edges[:, :2] = place[edges[:, :2]]
    group = np.array(drawing.group)[order]
    pairs = {(int(a), int(b), int(c)) for a, b, _, c in edges}
    (repeat,) = [one for one in repeats(kinds, edges, group, drawing.parent) if one.parent == -1]
    assert repeat.nodes.shape == (layers, 6)
    forms = [
        {(i, j, slot) for i, a in enumerate(row) for j, b in enumerate(row) for slot in (0, 1) if (a, b, slot) in pairs}
        for row in repeat.nodes.tolist()
    ]
    assert all(form == forms[0] for form in forms)
    assert all(np.array_equal(kinds[row], kinds[repeat.nodes[0]]) for row in repeat.nodes)


def test_nodes_of_a_group_are_contiguous() -> None:
    drawing = stacked(3)
    whole = hierarchy(*(np.array(one, np.int64) for one in drawing.arguments()))
    for one in range(3):
        inside = whole.order[whole.start[one] : whole.start[one] + whole.size[one]]
        assert sorted(inside.tolist()) == list(range(1 + 7 * one, 8 + 7 * one))


def test_equality_does_not_depend_on_hashes() -> None:
    # Were all hashes the same, kinds, edges and inner groups would still tell groups apart.
    drawing = stacked(5)
    drawing.kinds[1 + 7] = 99
    drawing.edges.append((1 + 14, 4 + 14, 0, 1))
    drawing.group[3 + 21] = drawing.open(3)
    whole = hierarchy(*(np.array(one, np.int64) for one in drawing.arguments()))
    blind = replace(whole, digest=np.zeros_like(whole.digest))
    assert [blind.same(0, other) for other in range(5)] == [True, False, False, False, True]


def test_empty_groups_and_empty_graphs() -> None:
    assert repeats([], [], [], []) == ()
    assert repeats([1, 2], [], [0, 1], [-1, -1, -1, 2]) == ()
    assert blocks([], []).parent.size == 0


@pytest.mark.parametrize(
    ("marks", "runs"),
    [
        ("AAAA", [(0, 1, 4)]),
        ("ABABAB", [(0, 2, 3)]),
        ("CABABAC", [(1, 2, 2)]),
        ("AABAAB", [(0, 3, 2)]),
        ("ABCD", []),
        ("A", []),
        ("", []),
        ("AABB", [(0, 1, 2), (2, 1, 2)]),
    ],
)
def test_runs_of_patterns(marks: str, runs: list[tuple[int, int, int]]) -> None:
    assert tandem([ord(mark) for mark in marks], 16) == runs


def boxes(found: Blocks, arguments: tuple[list[int], list[Edge]]) -> dict[int, int]:
    """Count the boxes of each room, alike groups that follow each other once."""
    hidden = {int(one) for repeat in repeats(*arguments, found.group, found.parent) for one in repeat.roots[1:].ravel()}
    rooms = Counter(found.group.tolist())
    rooms.update(parent for one, parent in enumerate(found.parent.tolist()) if one not in hidden)
    return rooms


def test_a_small_graph_is_not_divided() -> None:
    drawing = stacked(5, grouped=False)
    found = blocks(drawing.kinds, drawing.edges)
    assert found.parent.size == 0
    assert set(found.group.tolist()) == {-1}


def test_layers_are_found_without_names() -> None:
    drawing = stacked(24, (1, 2, 3, 4, 5, 6, 2, 3), grouped=False)
    found = blocks(drawing.kinds, drawing.edges)
    (repeat,) = repeats(drawing.kinds, drawing.edges, found.group, found.parent)
    assert repeat.roots.shape == (24, 1)
    assert repeat.nodes.shape == (24, 9)
    # They are cut where one value passes: between the layers.
    crossing = {(found.group[a], found.group[b]) for a, b, _, _ in drawing.edges if found.group[a] != found.group[b]}
    assert len(crossing) == 25


def test_long_layers_are_all_divided_in_the_same_way() -> None:
    rng = np.random.default_rng(0)
    drawing = stacked(10, tuple(rng.integers(10, 40, 130).tolist()), grouped=False)
    found = blocks(drawing.kinds, drawing.edges)
    outer = [one for one in repeats(drawing.kinds, drawing.edges, found.group, found.parent) if one.parent == -1]
    assert [one.nodes.shape for one in outer] == [(10, 131)]
    assert outer[0].groups.shape[1] > 1
    assert max(boxes(found, (drawing.kinds, drawing.edges)).values()) <= 40


@pytest.mark.parametrize("count", [100, 3_000])
@pytest.mark.parametrize("kinds", [1, 5, 1000])
def test_rooms_of_any_graph_stay_within_the_size_limit(count: int, kinds: int) -> None:
    rng = np.random.default_rng(count + kinds)
    kind = rng.integers(0, kinds, count).tolist()
    pairs = np.sort(
        np.column_stack([np.arange(1, count), np.maximum(0, np.arange(1, count) - rng.integers(1, 30, count - 1))])
    )
    edges = [(int(a), int(b), 0, 0) for a, b in pairs]
    found = blocks(kind, edges)
    assert max(boxes(found, (kind, edges)).values()) <= 44


def test_layers_between_long_ends_are_seen_at_the_top() -> None:
    drawing = Drawing()
    value = drawing.add(7)
    for kind in range(100, 170):
        value = drawing.add(kind, value)
    for _ in range(12):
        value = drawing.layer(value, -1)
    for kind in range(200, 270):
        value = drawing.add(kind, value)
    found = blocks(drawing.kinds, drawing.edges)
    (repeat,) = repeats(drawing.kinds, drawing.edges, found.group, found.parent)
    assert repeat.parent == -1
    assert repeat.nodes.shape == (12, 7)
    rooms = boxes(found, (drawing.kinds, drawing.edges))
    assert rooms[-1] == 3  # what comes before, the layers, what comes after
    assert max(rooms.values()) <= 40


def test_a_chain_of_one_operator_is_one_box_in_a_room() -> None:
    count = 1_000
    found = blocks([1] * count, [(a, b, 0, 0) for a, b in pairwise(range(count))])
    rooms = boxes(found, ([1] * count, [(a, b, 0, 0) for a, b in pairwise(range(count))]))
    assert rooms[-1] <= 12


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(30, 90), st.integers(0, 2**32 - 1))
def test_new_groups_form_a_tree_and_keep_existing_groups(kinds: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    group, parent = rng.integers(-1, 3, count), np.array([-1, 0, 0])
    pairs = np.sort(rng.integers(0, count, (2 * count, 2)), axis=1)
    edges = np.column_stack([pairs, np.zeros_like(pairs)])
    found = refine(rng.integers(0, kinds, count), edges, group, parent, limit=10)
    again = refine(np.ones(count), edges, group, parent, limit=10_000)
    assert np.array_equal(again.group, group)
    assert np.array_equal(again.parent, parent)

    def above(one: int) -> list[int]:
        way = []
        while one >= 0:
            way.append(one)
            one = int(found.parent[one])
            assert len(way) <= len(found.parent)
        return way

    for node in range(count):
        # What held a node still does, with the same groups around it in the same order.
        before = {-1: [], 0: [0], 1: [1, 0], 2: [2, 0]}[int(group[node])]
        assert [one for one in above(int(found.group[node])) if one < 3] == before


def test_equal_groups_of_a_large_room_are_kept_together() -> None:
    drawing = stacked(60)
    for _ in range(10):
        drawing.add(30, 0)
    found = refine(*drawing.arguments())
    assert found.parent.tolist() == [-1] * 60


def test_a_row_of_different_groups_is_cut() -> None:
    drawing = Drawing()
    value = drawing.add(7)
    for one in range(90):
        value = drawing.layer(value, drawing.open(), (1, 100 + one))
    found = refine(*drawing.arguments())
    assert len(found.parent) > 90
    assert max(boxes(found, (drawing.kinds, drawing.edges)).values()) <= 40
