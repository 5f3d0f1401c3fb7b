"""Regions that are built by hand: at which sizes, with which sets and with which numbers they are tried."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from surgery.base.operators.domain import MASK
from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.vacuity import ALWAYS_EMPTY, Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.input_sets import CHEAP
from surgery.verification.regions.definitions import Definitions
from surgery.verification.regions.kept_elements import with_elements
from surgery.verification.regions.ordinary_numbers import with_ordinary_numbers
from surgery.verification.regions.patterns import has_weights, pattern_of
from surgery.verification.regions.region_feeding import Drawn, _domain_of, _unit, bounding
from surgery.verification.regions.region_values import TAKEN, Form, Point
from surgery.verification.regions.region_variants import RegionVariant, shown
from surgery.verification.regions.regions import Region
from surgery.verification.regions.sizes import enlarged, reduced, with_turns
from surgery.verification.regions.time_budget import CostlyError, TimeBudget
from surgery.verification.regions.tried_bindings import bindings, by_size, elements

FLOAT, INT = np.dtype(np.float32), np.dtype(np.int64)


def _piece(body: str, constants: str = "") -> onnx.ModelProto:
    return text.parse(f"g (float x, float z) => (float y) {constants and f'<{constants}>'} {{ {body} }}", opset=18)


def _region(before: str, after: str = "", constants: str = "", given: tuple[str, ...] = ("x",)) -> Region:
    pieces = _piece(before, constants), _piece(after or before, constants)
    return Region(("y",), ("y",), given, *pieces, len(pieces[0].graph.node))


def _point(*shape: int, dtype: Any = FLOAT, n: int = 2, z: Any = None, values: Any = None) -> Point:
    forms = {"x": Form(dtype, shape)} | ({} if z is None else {"z": Form(FLOAT, z)})
    runs = [Run(Binding({"N": n}), {}, {})]
    return Point({"N": n}, runs, forms, [{"x": values}])


def _with_extent(region: Region, extent: int) -> Region:
    """Add a large constant c to both pieces."""
    for piece in (region.before, region.after):
        piece.graph.initializer.add(name="c", data_type=1, dims=[extent], data_location=TensorProto.EXTERNAL)
    return region


def _shapes(points: Any) -> list[tuple[int, ...]]:
    return [point.forms["x"].shape for point in points]


# Sizes


@pytest.mark.parametrize(
    ("body", "constant", "shapes", "smaller"),
    [
        ("y = Relu(x)", 0, [(2, 1500), (65, 64)], [(2, 17), (17, 64)]),
        # The larger extent gets the larger one, and one that is there is not taken.
        ("y = Relu(x)", 0, [(1500, 100, 17)], [(23, 19, 17)]),
        ("y = Add(x, c)", 100, [(1500, 100)], [(17, 100)]),
        ("y = Add(x, c)", 17, [(1500, 17)], [(19, 17)]),
        # Extents of 64 stay, and size may matter to other operators.
        ("y = Relu(x)", 0, [(64, 64)], [(64, 64)]),
        ("y = Reshape(x, z)", 0, [(1500,)], [(1500,)]),
        # More large extents than there are smaller ones.
        ("y = Relu(x)", 0, [tuple(range(100, 110))], [(17, 19, 23, 29, 31, 37, 41, 43, 47, 53)]),
        ("y = Relu(x)", 0, [tuple(range(100, 111))], [tuple(range(100, 111))]),
    ],
)
def test_large_extents_are_reduced(body: str, constant: int, shapes: Any, smaller: Any) -> None:
    points = [_point(*shape) for shape in shapes]
    region = _with_extent(_region(body), constant) if constant else _region(body)
    found = reduced(region, points)
    assert _shapes(found) == smaller
    assert (found is points) is (smaller == shapes)


def test_integers_are_not_reduced() -> None:
    points = [_point(1500, dtype=INT)]
    assert reduced(_region("y = Abs(x)"), points) is points
    # Equal extents stay equal.
    found = reduced(_region("y = Add(x, z)", given=("x", "z")), [_point(1500, 3, z=(1500, 1))])
    assert [found[0].forms[name].shape for name in "xz"] == [(17, 3), (17, 1)]


@pytest.mark.parametrize(
    ("body", "constants", "shape", "ones", "larger"),
    [
        ("y = Relu(x)", "", (2, 1, 2, 7), False, (3, 1, 3, 5)),
        ("y = Relu(x)", "", (2, 1, 2, 7), True, (5, 3, 5, 7)),
        # Larger than the numbers in the region, and constants stay.
        ("y = Slice(x, c, c)", "int64[1] c = {-9}", (2, 7), False, (12, 14)),
        ("y = Add(x, c)", "float[7] c", (2, 7), False, (3, 7)),
        ("y = Slice(x, c, c)", "int64[1] c = {64}", (2,), False, (67,)),
        ("y = Slice(x, c, c)", "int64[1] c = {65}", (2,), False, None),
        ("y = Slice(x, c, c)", f"int64[1] c = {{{1 << 30}}}", (2,), False, (3,)),
        ("y = Slice(x, c, c)", f"int64[1] c = {{{(1 << 30) - 1}}}", (2,), False, None),
        # Up to 1024 * 1024 elements.
        ("y = Add(x, c)", "float[1048576] c", (1048576,), False, (1048576,)),
        ("y = Add(x, c)", "float[1048576] c", (1048576, 2), False, None),
    ],
)
def test_extents_are_larger_than_any_number(body: str, constants: str, shape: Any, ones: bool, larger: Any) -> None:
    region = _region(body)
    for piece in (region.before, region.after):
        if constants.startswith("int64"):
            array = np.array([int(constants.split("{")[1].rstrip("}"))])
            piece.graph.initializer.append(numpy_helper.from_array(array, "c"))
    if constants.startswith("float"):
        _with_extent(region, int(constants.split("[")[1].split("]")[0]))
    found = enlarged(region, [_point(*shape)] * 3, ones=ones)
    assert _shapes(found) == ([] if larger is None else [larger] * 2)


def test_regions_that_are_given_integers_or_nothing_are_not_enlarged() -> None:
    assert enlarged(_region("y = Abs(x)"), [_point(2, dtype=INT)]) == []
    assert enlarged(_region("y = Abs(x)", given=()), [_point(2)]) == []


LOOP = """y = Loop(n, t, x) <body = b (int64 i, bool c, float v) => (bool d, float w) { d = Identity(c) w = Neg(v) }>"""


@pytest.mark.parametrize(
    ("constants", "inputs"),
    [
        ("int64 n = {0}, bool t = {1}", ["turns/given", "t", "x"]),
        ("int64 n = {5}, bool t = {0}", ["turns/given", "", "x"]),
        ("int64 n = {5}, bool t = {1}", None),
        ("int64[2] n = {0, 0}, bool t = {1}", None),
        ("float n = {0}, bool t = {1}", None),
    ],
)
def test_loops_without_turns_get_some(constants: str, inputs: list[str] | None) -> None:
    found = with_turns(_region(LOOP, constants=constants))
    if inputs is None:
        assert found is None
        return
    assert found is not None
    for piece in (found.before, found.after):
        assert [*piece.graph.node[0].input] == inputs
        assert numpy_helper.to_array(piece.graph.initializer[-1]) == 2
    # Both pieces need such a loop.
    assert with_turns(_region(LOOP, "y = Neg(x)", constants=constants)) is None


# Numbers


@pytest.mark.parametrize(
    ("number", "ordinary", "finite"),
    [
        ("inf", None, 1.375),
        ("-inf", None, 0.625),
        ("nan", None, 0.875),
        ("0", None, 0.0),
        ("1e13", None, 1e13),
        ("1e-13", None, 1e-13),
        ("1e12", 1e12, 1e12),
        ("-0.5", -0.5, -0.5),
    ],
)
def test_extreme_numbers_are_replaced(number: str, ordinary: float | None, finite: float) -> None:
    region = _region("y = Mul(x, c)")
    for piece in (region.before, region.after):
        piece.graph.initializer.append(numpy_helper.from_array(np.float32([number, 2.0]), "c"))
        piece.graph.initializer.append(numpy_helper.from_array(np.int64([0]), "whole"))
    found = [[numpy_helper.to_array(one.before.graph.initializer[0]) for one in with_ordinary_numbers(region)]]
    if ordinary is not None:
        assert found == [[]]
        return
    drawn, *rest = found[0]
    assert 0.5 <= drawn[0] <= 1.5 and drawn[1] == 2.0
    # Only what is not finite is replaced by the same number everywhere.
    assert len(rest) == (finite not in (0.0, 1e13, 1e-13))
    assert all(one.tolist() == [np.float32(finite), 2.0] for one in rest)


def test_a_number_of_one_piece_alone_is_not_drawn() -> None:
    region = _region("y = Mul(x, c)")
    region.before.graph.initializer.append(numpy_helper.from_array(np.float32([np.inf]), "c"))
    region.after.graph.initializer.append(numpy_helper.from_array(np.float32([np.inf, np.inf]), "c"))
    (found,) = with_ordinary_numbers(region)
    assert numpy_helper.to_array(found.after.graph.initializer[0]).tolist() == [1.375, 1.375]


@pytest.mark.parametrize(
    ("body", "constants", "kept"),
    [
        ("y = Pad(x, p)", "int64[2] p = {-2, 1}", [2, 1]),
        ("y = Pad(x, p)", "int64[2] p = {0, 1}", None),
        ("y = com.microsoft.Pad(x, p)", "int64[2] p = {-2, 1}", None),
        ("y = Pad<pads = [-2, 1]>(x)", "", [2, 1]),
        ("y = Compress(x, b)", "bool[2] b = {0, 0}", [True, True]),
        ("y = Compress(x, b)", "bool[2] b = {0, 1}", None),
        ("y = Compress(x, b)", "", None),
    ],
)
def test_operators_that_remove_all_elements_keep_some(body: str, constants: str, kept: Any) -> None:
    found = with_elements(_region(body, constants=constants))
    if kept is None:
        assert found is None
        return
    assert found is not None
    (node,) = found.after.graph.node
    given = {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in found.after.graph.initializer}
    assert (given[node.input[1]] if constants else helper.get_node_attr_value(node, "pads")) == kept


# Sets


def _chosen(region: Region, *points: Point, cost: float = 0.0, few: bool = False, exact: bool = True) -> list[Any]:
    promise = Parity.EXACT if exact else Parity.CLOSE
    found = bindings(region, points, promise, cost, few=few)
    return [(one.dims["N"], one.character, one.seed) for one in found]


def test_the_sets_of_a_region() -> None:
    relu = _region("y = Relu(x)")
    two, five, seven = _point(2, n=2), _point(5, n=5), _point(7, n=7)
    exact = [(2, "normal", 0), (5, "edges", 0), (2, "near", 0), (5, "wide", 0), (2, "small", 0), (5, "coarse", 0)]
    large = [(7, "near", 0), (7, "coarse", 0), (2, "special", 0)]
    assert _chosen(relu, two, five, seven) == [*exact, (7, "normal", 0), *large]
    assert _chosen(relu, two, five, seven, exact=False) == [*exact, (7, "normal", 0)]
    # One point is both, and no set is there twice.
    alone = [(2, kind, 0) for kind in ("normal", "edges", "near", "wide", "small", "coarse", "special")]
    assert _chosen(relu, two) == alone
    assert _chosen(relu, two, five, seven, few=True) == [(2, "normal", 0), (5, "edges", 0)]
    # A set of a dear region at the first and at the largest point.
    assert _chosen(relu, two, seven, five, cost=CHEAP * 1.01) == [(2, "normal", 0), (7, "edges", 0)]
    assert len(_chosen(relu, two, seven, five, cost=CHEAP)) == 9


def test_the_sets_of_a_region_that_moves_elements_or_is_given_none() -> None:
    points = [_point(2, n=2), _point(5, n=5)]
    seeds = [(2, "normal", 0), (5, "normal", 0), (2, "normal", 1), (5, "normal", 1)]
    assert _chosen(_region("y = Transpose(x)"), *points) == seeds
    assert _chosen(_region("y = Abs(x)"), *(_point(n, n=n, dtype=INT) for n in (2, 5))) == seeds
    assert _chosen(_region("y = Neg(c)", given=()), *points) == [(2, "normal", 0)]
    assert _chosen(_region("y = Neg(c)", given=()), *points, exact=False) == [(2, "normal", 0), (2, "normal", 1)]
    # Of many elements, few sets.
    for extent, kinds in ((1 << 20, 4), ((1 << 20) + 1, 2)):
        assert len(_chosen(_region("y = Transpose(x)"), _point(extent, n=2), _point(3, n=5))) == kinds
    large = [_point((1 << 20) + 1, n=2), _point(3, n=5), _point(4, n=7)]
    assert _chosen(_region("y = Relu(x)"), *large) == [(2, "normal", 0), (7, "edges", 0)]


def test_regions_by_the_number_of_their_elements() -> None:
    both, one = _region("y = Add(x, z)", given=("x", "z")), _region("y = Relu(x)")
    point = _point(4, 5, z=(5,))
    assert (elements(both, point), elements(one, point)) == (25, 20)
    assert by_size([both, one], point) == [one, both]
    # A value whose form is not known does not count.
    assert elements(both, _point(4, 5)) == 20


def test_integers_are_taken_from_ordinary_runs_unless_the_set_is_that_of_another() -> None:
    runs = [Run(Binding({"N": 2}, kind), {}, {}) for kind in ("normal", "edges", "zeros", "padded")]
    point = Point({"N": 2}, runs)
    assert point.ordinary == 2
    assert [point.taken_from(Binding({"N": 2}), number) for number in range(4)] == [0, 1, 0, 1]
    like = point.like(runs[3].binding)
    assert like == Binding({"N": 2}, "padded", profile=TAKEN) and point.taken_from(like, 0) == 3
    # All of them, if none is ordinary.
    assert Point({"N": 2}, runs[2:]).ordinary == 2


def test_what_is_drawn_is_remembered_until_it_takes_too_much() -> None:
    asked: list[str] = []

    def draw(name: str, count: int) -> Any:
        asked.append(name)
        return np.zeros(count, np.uint8)

    drawn = Drawn()
    for name, count in (("a", 5 << 20), ("b", 3 << 20), ("a", 5 << 20), ("b", 3 << 20)):
        assert drawn.of(name, lambda name=name, count=count: draw(name, count)).nbytes == count
    assert asked == ["a", "b"]
    drawn.of("c", lambda: draw("c", 1))
    drawn.of("a", lambda: draw("a", 5 << 20))
    assert asked == ["a", "b", "c", "a"]
    # Too large to be remembered at all.
    for _ in range(2):
        drawn.of("d", lambda: draw("d", (8 << 20) + 1))
    assert asked[4:] == ["d", "d"]


@pytest.mark.parametrize(
    ("recorded", "domain"),
    [
        (np.array([0, 1, 1]), MASK),
        (np.array([True]), MASK),
        (np.array([0, 2]), None),
        (np.array([0.0, 1.0]), None),
        (np.array([], np.int64), None),
        ([np.array([0, 1])], None),
        (None, None),
    ],
)
def test_zeros_and_ones_may_be_a_mask(recorded: Any, domain: Any) -> None:
    assert _domain_of(recorded) == domain


def test_elements_are_brought_into_the_range_of_an_operator() -> None:
    assert _unit(np.float32([0.5, -0.25, -4.0, 1.0, 2.0])).tolist() == [0.5, 0.25, 0.25, 1.0, 0.5]
    before = Definitions(_piece("a = Softmax(x) b = Exp(a) y = Neg(b)").SerializeToString())
    assert [bounding(before, name) for name in ("a", "b", "y", "x")] == ["Softmax", "Exp", "", ""]


# Patterns, time and verdicts


def _pattern(region: Region, *points: Point) -> Any:
    return pattern_of(region, points or [_point(2, 3)], Definitions(region.before.SerializeToString()))


def _weighted(*values: float, name: str = "w", count: int = 65) -> Region:
    region = _region("y = Mul(x, w)".replace("w", name))
    for piece in (region.before, region.after):
        array = np.resize(np.float32(values), count)
        piece.graph.initializer.append(numpy_helper.from_array(array, name))
    return region


def test_regions_that_differ_in_names_have_one_pattern() -> None:
    first, other = _region("a = Relu(x) y = Neg(a)"), _region("b = Relu(x) y = Neg(b)")
    assert _pattern(first) == _pattern(other)
    for unlike in ("a = Relu(x) y = Abs(a)", "a = Relu(x) y = Neg(x)", "a = Relu(x) y = com.microsoft.Neg(a)"):
        assert _pattern(_region(unlike)).family != _pattern(first).family
    assert _pattern(_region("y = Selu<alpha = 1.0>(x)")).family != _pattern(_region("y = Selu<alpha = 2.0>(x)")).family
    older = _region("a = Relu(x) y = Neg(a)")
    for piece in (older.before, older.after):
        piece.opset_import[0].version -= 1
    assert _pattern(older).family != _pattern(first).family
    # Other extents, and another element type.
    assert _pattern(first, _point(2, 4)).family == _pattern(first).family
    assert _pattern(first, _point(2, 4)).details != _pattern(first).details
    assert _pattern(first, _point(2, 3, dtype=np.dtype(np.float16))).family != _pattern(first).family
    recorded = [_pattern(first, _point(2, dtype=INT, values=np.array([n, n]))) for n in (0, 1)]
    assert recorded[0].family == recorded[1].family and recorded[0].details != recorded[1].details


def test_weights_are_no_part_of_a_pattern() -> None:
    assert _pattern(_weighted(1.0)) == _pattern(_weighted(2.0)) and _pattern(_weighted(1.0)).weights
    assert has_weights(_weighted(1.0)) and not has_weights(_weighted(1.0, count=64))
    few = _pattern(_weighted(1.0, count=64))
    assert not few.weights and few.details != _pattern(_weighted(2.0, count=64)).details
    assert few.family == _pattern(_weighted(2.0, count=64, name="v")).family
    with_functions = _region("y = Relu(x)")
    with_functions.after.functions.add(name="f")
    assert _pattern(with_functions) is None
    sparse = _region("y = Relu(x)")
    sparse.before.graph.sparse_initializer.add()
    assert _pattern(sparse) is None
    body = "t () => (float p) { p = Neg(x) }"
    assert _pattern(_region(f"y = If(x) <then_branch = {body}, else_branch = {body.replace('p', 'q')}>")) is None


def test_a_budget_of_seconds() -> None:
    budget = TimeBudget(3.0)
    budget.spend(2.0)
    budget.check(1.0)
    with pytest.raises(CostlyError):
        budget.check(1.5)
    budget.spend(1.0)
    with pytest.raises(CostlyError):
        budget.spend(0.1)
    TimeBudget().spend(math.inf)


def test_what_a_variant_shows() -> None:
    relu, moving = _region("y = Relu(x)"), _region("y = Transpose(x)")
    equal, different = Verdict(Status.EQUAL), Verdict(Status.DIFFERENT)
    empty = Verdict(Status.UNVERIFIED, message=ALWAYS_EMPTY)
    sharp, open_ = (RegionVariant([], relu, is_sharp=is_sharp) for is_sharp in (True, False))
    assert shown(relu, empty, sharp, equal) is equal is shown(relu, empty, open_, equal)
    assert shown(relu, empty, sharp, different) is different and shown(relu, empty, open_, different) is None
    assert shown(relu, empty, sharp, empty) is None and shown(moving, empty, open_, empty) is None
    found = shown(moving, empty, sharp, empty)
    assert found is not None and found.message == "bit-identical, and empty at all sizes"
    assert shown(moving, empty, sharp, Verdict(Status.UNVERIFIED, message="else")) is None
