"""Where boxes stand: no overlap, edges go down, chains are straight, and few edges cross."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgery.interface.layout.arrays import Ints
from surgery.interface.layout.coordinates import GAP
from surgery.interface.layout.crossings import crossings, inversions, ordered
from surgery.interface.layout.layered import ROW_GAP, Layout, layered
from surgery.interface.layout.layers import layers
from surgery.interface.layout.long_edges import LONGEST, rows

Edges = list[tuple[int, int]]


@st.composite
def graphs(draw: st.DrawFn, acyclic: bool = False) -> tuple[list[int], Edges]:
    """Widths, and edges between any of the boxes: loops, repeated ones and cycles too, if they may be."""
    widths = draw(st.lists(st.integers(48, 260), min_size=1, max_size=24))
    box = st.integers(0, len(widths) - 1)
    edges = draw(st.lists(st.tuples(box, box), max_size=48))
    return widths, [(min(edge), max(edge)) for edge in edges] if acyclic else edges


def lay(widths: list[int], edges: Edges) -> Layout:
    return layered(widths, [24] * len(widths), edges)


def of(count: int, edges: Edges | Ints) -> Layout:
    return layered([60] * count, [24] * count, edges)


def drawn(count: int, many: int, seed: int) -> Ints:
    return np.sort(np.random.default_rng(seed).integers(0, count, (many, 2)), axis=1)


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_boxes_of_a_row_keep_their_gap(graph: tuple[list[int], Edges]) -> None:
    widths, edges = graph
    found = lay(widths, edges)
    for row in range(int(found.layer.max()) + 1):
        members = np.nonzero(found.layer == row)[0]
        members = members[np.argsort(found.order[members])]
        assert found.order[members].tolist() == list(range(len(members)))
        half = np.array(widths)[members] / 2
        gaps = np.diff(found.x[members]) - half[1:] - half[:-1]
        assert (gaps >= GAP).all()
        assert len(set(found.y[members].tolist())) == 1


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_all_boxes_are_inside_the_drawing(graph: tuple[list[int], Edges]) -> None:
    widths, edges = graph
    found = lay(widths, edges)
    half = np.array(widths) / 2
    assert (found.x - half).min() >= 0
    assert (found.x + half).max() <= found.width
    assert found.y.min() == 12
    assert found.y.max() + 12 == found.height


@settings(max_examples=100, deadline=None)
@given(graphs(acyclic=True))
def test_edges_of_an_acyclic_graph_point_down(graph: tuple[list[int], Edges]) -> None:
    found = lay(*graph)
    for source, target in graph[1]:
        assert source == target or found.layer[source] < found.layer[target]


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_only_edges_of_cycles_point_up(graph: tuple[list[int], Edges]) -> None:
    widths, edges = graph
    found = lay(widths, edges)
    for source, target in edges:
        if found.layer[source] > found.layer[target]:
            assert source in reached(target, edges)
        elif source != target:
            assert found.layer[source] != found.layer[target]


def reached(start: int, edges: Edges) -> set[int]:
    seen, pending = {start}, [start]
    while pending:
        here = pending.pop()
        new = {target for source, target in edges if source == here} - seen
        seen |= new
        pending += new
    return seen


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_the_same_graph_gives_the_same_drawing(graph: tuple[list[int], Edges]) -> None:
    one, other = lay(*graph), lay(*graph)
    for name in ("layer", "order", "x", "y", "via"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


@settings(max_examples=60, deadline=None)
@given(graphs(), graphs())
def test_components_do_not_overlap(first: tuple[list[int], Edges], second: tuple[list[int], Edges]) -> None:
    # A chain through each half makes it one component.
    count = len(first[0])
    widths = first[0] + second[0]
    edges = first[1] + [(a + count, b + count) for a, b in second[1]]
    edges += [(one, one + 1) for one in range(len(widths) - 1) if one + 1 != count]
    found = lay(widths, edges)
    half = np.array(widths) / 2
    spans = [
        (
            (found.x - half)[part].min(),
            (found.x + half)[part].max(),
            found.layer[part].min(),
            found.layer[part].max(),
        )
        for part in (slice(0, count), slice(count, None))
    ]
    (a, b, c, d), (e, f, g, h) = spans
    assert b + GAP <= e or f + GAP <= a or d < g or h < c


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_sorting_never_adds_crossings(graph: tuple[list[int], Edges]) -> None:
    placed = layers(len(graph[0]), np.array(graph[1], np.int64).reshape(-1, 2))
    proper = rows(placed)
    given_order = np.arange(len(proper.row))
    before = np.empty(len(proper.row), np.int64)
    before[np.lexsort((given_order, proper.row))] = given_order
    after = ordered(proper, given_order)
    assert crossings(proper, after) <= crossings(proper, before)
    assert np.array_equal(np.sort(after), given_order)


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_crossings_are_counted(graph: tuple[list[int], Edges]) -> None:
    proper = rows(layers(len(graph[0]), np.array(graph[1], np.int64).reshape(-1, 2)))
    place = np.empty(len(proper.row), np.int64)
    place[np.lexsort((np.arange(len(proper.row)), proper.row))] = np.arange(len(proper.row))
    pairs = [(place[a], place[b], proper.row[a]) for a, b in zip(proper.upper.tolist(), proper.lower.tolist())]
    slow = sum((a - c) * (b - d) < 0 for a, b, r in pairs for c, d, s in pairs if r == s) // 2
    assert crossings(proper, place) == slow


@given(st.lists(st.lists(st.integers(0, 40), max_size=12), max_size=6))
def test_inversions_are_counted_within_slices(slices: list[list[int]]) -> None:
    values = np.array([value for part in slices for value in part], np.int64)
    starts = np.cumsum([0, *map(len, slices)])
    slow = sum(a > b for part in slices for i, a in enumerate(part) for b in part[i + 1 :])
    assert inversions(values, starts) == slow


def test_sorting_removes_most_crossings_of_random_graphs() -> None:
    proper = rows(layers(400, drawn(400, 600, 0)))
    number = np.arange(len(proper.row))
    before = np.empty_like(number)
    before[np.lexsort((number, proper.row))] = number
    assert crossings(proper, ordered(proper, number)) < 0.6 * crossings(proper, before)


def test_a_tree_has_no_crossings() -> None:
    count = 200
    parents = np.random.default_rng(3).integers(0, np.arange(1, count))
    placed = layers(count, np.column_stack([parents, np.arange(1, count)]))
    proper = rows(placed)
    first = np.concatenate([2 * placed.visited, 2 * placed.visited[proper.lane[count:]] + 1])
    assert crossings(proper, ordered(proper, first)) == 0


def test_an_empty_graph_and_a_single_box() -> None:
    empty = layered([], [], [])
    assert (empty.width, empty.height, len(empty.x), len(empty.via)) == (0, 0, 0, 0)
    one = layered([60], [24], [(0, 0)])
    assert (one.width, one.height, one.x.tolist(), one.y.tolist(), one.via.tolist()) == (60, 24, [30], [12], [-1])


def test_inconsistent_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="outside of 0 to 1"):
        layered([60, 60], [24, 24], [(0, 2)])
    with pytest.raises(ValueError, match="2 widths, but 1 heights"):
        layered([60, 60], [24], [])


def test_a_chain_is_straight() -> None:
    found = layered([50 + one % 7 * 20 for one in range(300)], [24] * 300, [(one, one + 1) for one in range(299)])
    assert set(np.diff(found.layer)) == {1}
    assert len(set(found.x.tolist())) == 1
    assert set(np.diff(found.y)) == {24 + ROW_GAP}


def test_a_skip_connection_passes_beside_a_straight_chain() -> None:
    chain = [(one, one + 1) for one in range(9)]
    found = of(10, [*chain, (2, 7)])
    assert len(set(found.x.tolist())) == 1
    assert found.via.tolist()[:-1] == [-1] * 9
    via = int(found.via[-1])
    assert 0 <= via <= found.width
    assert abs(via - int(found.x[0])) >= 30


def test_both_paths_of_a_fork_are_centred() -> None:
    found = of(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    assert found.layer.tolist() == [0, 1, 1, 2]
    assert 2 * found.x[0] == 2 * found.x[3] == found.x[1] + found.x[2]


def test_the_longest_path_is_straight() -> None:
    # As in a residual block with a projection: six boxes on one way, two on the other.
    long = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 9), (9, 10)]
    found = of(11, [*long, (0, 7), (7, 8), (8, 9)])
    assert len({int(found.x[one]) for one in (0, 1, 2, 3, 4, 5, 6, 9, 10)}) == 1


def test_inputs_are_placed_next_to_their_readers() -> None:
    chain = [(one, one + 1) for one in range(19)]
    found = of(24, [*chain, (20, 15), (21, 20), (22, 10), (22, 12), (22, 14), (4, 23)])
    assert [int(found.layer[one]) for one in (20, 21, 22)] == [14, 13, 9]
    assert found.layer[23] == 5  # and side exits next to what they read


def test_a_wide_row_is_cut() -> None:
    leaves = 2000
    found = of(leaves + 1, [(0, one) for one in range(1, leaves + 1)])
    assert np.bincount(found.layer).max() <= 3 * np.sqrt(leaves + 1)
    assert found.width < 20_000


def test_boxes_without_edges_make_a_grid() -> None:
    found = of(900, [])
    assert 0.5 < found.width / found.height < 3


def test_lanes_do_not_outgrow_the_boxes() -> None:
    # Each box of the chain also feeds the last one: 2,000 lanes of up to 2,000 rows.
    count = 2000
    edges = [(one, one + 1) for one in range(count - 1)] + [(one, count - 1) for one in range(count - 2)]
    proper = rows(layers(count, np.array(edges)))
    assert len(proper.row) <= 3 * count + 1024
    assert of(count, edges).via.shape == (len(edges),)


def test_an_edge_that_crosses_too_many_rows_has_no_lane() -> None:
    count = LONGEST + 10
    edges = [(one, one + 1) for one in range(count - 1)]
    found = of(count, [*edges, (0, count - 1), (0, LONGEST)])
    assert found.via.tolist()[-2] == -1
    assert found.via.tolist()[-1] >= 0


@pytest.mark.parametrize("many", [1, 2], ids=["tree", "graph"])
def test_memory_is_linear(many: int) -> None:
    used = []
    for count in (2_000, 8_000):
        edges = np.column_stack([np.maximum(0, np.arange(1, count) - 7), np.arange(1, count)])
        edges = np.concatenate([edges, drawn(count, (many - 1) * count, 5)])
        tracemalloc.start()
        of(count, edges)
        used.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert used[1] < 5 * used[0]


def test_a_chain_of_20000_rows() -> None:
    count = 20_000
    found = of(count, np.column_stack([np.arange(count - 1), np.arange(1, count)]))
    assert found.layer.tolist() == list(range(count))
    assert found.width == 60


def test_a_tangle_stays_about_as_wide_as_its_widest_row() -> None:
    # Columns through all rows would push each other ever further to one side.
    count = 3_000
    rng = np.random.default_rng(2)
    node = np.arange(1, count)
    near = [np.column_stack([np.maximum(0, node - rng.integers(1, far, count - 1)), node]) for far in (40, 150)]
    found = of(count, np.concatenate(near))
    assert found.width < 4 * 76 * np.bincount(found.layer).max() + 1_000


def test_lanes_are_inside_of_the_drawing() -> None:
    found = of(60, drawn(60, 90, 4))
    assert (found.via >= 0).any()
    assert found.via.max() <= found.width


def test_columns_that_push_each_other_through_the_whole_drawing() -> None:
    # So dense that the rounds of pushing do not suffice, and the longest paths are followed.
    count = 1_500
    found = of(count, drawn(count, 4_000, 1))
    order = np.lexsort((found.x, found.layer))
    same = np.diff(found.layer[order]) == 0
    assert (np.diff(found.x[order])[same] >= 60 + GAP).all()
