"""Copies of regions in which operators keep elements, or stored numbers are ordinary ones: number by number."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from surgery.model.graph import text
from surgery.verification.regions.kept_elements import _compress, _pad, _slice, with_elements
from surgery.verification.regions.ordinary_numbers import _wild, with_ordinary_numbers
from surgery.verification.regions.patterns import has_weights
from surgery.verification.regions.regions import Region

MOST, LEAST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def piece(body: str, constants: str = "") -> onnx.ModelProto:
    return text.parse(f"g (float[N] x, bool q) => (float[N] y) {constants and f'<{constants}>'} {{ {body} }}", opset=18)


def region(before: onnx.ModelProto, after: onnx.ModelProto | None = None) -> Region:
    return Region(("y",), ("y",), ("x",), before, after or before, 1)


@pytest.mark.parametrize(
    ("starts", "ends", "steps", "opened"),
    [
        ([1], [1], None, [4]),
        ([0], [0], None, [3]),
        ([1], [1], [2], [7]),
        ([3], [1], [1], [6]),
        ([0], [5], None, None),
        ([1], [2], [1], None),
        # From the end of the axis.
        ([-1], [-1], None, [MOST]),
        ([-2], [-3], [1], [MOST]),
        ([-3], [-2], [1], None),
        # One counts from the end: it depends on the extent.
        ([1], [-1], None, None),
        ([-1], [1], None, None),
        # Backwards.
        ([1], [3], [-1], [LEAST + 1]),
        ([2], [2], [-1], [LEAST + 1]),
        ([3], [1], [-1], None),
        ([-3], [-1], [-2], [LEAST + 1]),
        ([MOST - 4], [MOST - 4], None, [MOST - 1]),
        ([MOST - 3], [MOST - 3], None, [MOST]),
        ([MOST - 6], [MOST - 6], [2], [MOST]),
        ([MOST - 7], [MOST - 7], [2], [MOST - 1]),
        ([MOST], [MOST], None, None),
        ([1, 0], [1, 4], None, [4, 4]),
        ([0, 2], [4, 2], [1, 1], [4, 5]),
        ([1, 1], [1], None, None),
        ([1], [1], [1, 1], None),
    ],
)
def test_ranges_that_are_empty_are_extended(starts: Any, ends: Any, steps: Any, opened: Any) -> None:
    given = {1: np.array(starts), 2: np.array(ends), **({} if steps is None else {4: np.array(steps)})}
    found = _slice(given)
    assert {place: array.tolist() for place, array in found.items()} == ({} if opened is None else {2: opened})
    if steps is None:
        found = _slice({"starts": given[1], "ends": given[2]})
        assert {place: array.tolist() for place, array in found.items()} == ({} if opened is None else {"ends": opened})
    assert given[2].tolist() == ends


def test_ranges_that_are_not_known_stay() -> None:
    one = np.array([1])
    for given in ({}, {1: one}, {2: one}, {"starts": one}, {"ends": one}, {1: one, "ends": one}):
        assert _slice(given) == {}
    limits = np.iinfo(np.int32)
    (found,) = _slice({1: np.int32([-1]), 2: np.int32([-1])}).values()
    assert found.tolist() == [limits.max] and found.dtype == np.int32


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {}),
        ({1: [0, 2]}, {}),
        ({1: [0, -2]}, {1: [0, 2]}),
        ({1: [-1, -2]}, {1: [1, 2]}),
        ({"pads": [-1, 0]}, {"pads": [1, 0]}),
        ({"pads": [0, 0]}, {}),
        ({1: [0, 1], "pads": [-1, 0]}, {}),
    ],
)
def test_pads_that_crop_are_turned_round(given: Any, found: Any) -> None:
    pads = {place: np.array(values) for place, values in given.items()}
    assert {place: array.tolist() for place, array in _pad(pads).items()} == found


def test_all_is_selected_where_nothing_is() -> None:
    for given, found in (([False, False], [True, True]), ([False, True], None), ([], None), (None, None)):
        numbers = {} if given is None else {1: np.array(given, bool)}
        assert {place: array.tolist() for place, array in _compress(numbers).items()} == (
            {} if found is None else {1: found}
        )


CUT = "a = Pad(x, p)"
PADS = "int64[2] p = {-2, 1}"


@pytest.mark.parametrize(
    ("body", "constants", "opens"),
    [
        (f"{CUT} y = Neg(a)", PADS, True),
        ("p = Constant<value = int64[2] {-2, 1}>() y = Pad(x, p)", "", True),
        ("p = Constant<value_ints = [-2, 1]>() y = Pad(x, p)", "", False),
        ("p = Identity(q) y = Pad(x, p)", "", False),
        # Other nodes of the main graph may be empty, those of a subgraph go unnoticed.
        (f"{CUT} b = NonZero(a) y = Neg(b)", PADS, True),
        (f"{CUT} y = If(q) <then_branch = t () => (float[K] u) {{ u = Neg(a) }}, else_branch = e () => (float[K] u) "
         "{ u = Abs(a) }>", PADS, True),
        (f"{CUT} y = If(q) <then_branch = t () => (float[K] u) {{ u = NonZero(a) }}, else_branch = e () => (float[K] u)"
         " { u = Abs(a) }>", PADS, False),
        ("y = If(q) <then_branch = t () => (float[3] u) { u = Pad(x, p) }, else_branch = e () => (float[K] u) "
         "{ u = Abs(x) }>", PADS, True),
    ],
)  # fmt: skip
def test_pieces_whose_nodes_keep_elements(body: str, constants: str, opens: bool) -> None:
    found = with_elements(region(piece(body, constants)))
    assert (found is not None) is opens
    if found is not None and "If" in body:
        graph = next(node for node in found.before.graph.node if node.op_type == "If").attribute[0].g
        assert [dim.WhichOneof("value") for dim in graph.output[0].type.tensor_type.shape.dim] == [None]
        assert found.before.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "N"


def test_both_pieces_need_such_a_node_and_numbers_that_are_at_hand() -> None:
    opened, other = piece(f"{CUT} y = Neg(a)", PADS), piece("y = Neg(x)")
    assert with_elements(region(opened, other)) is None is with_elements(region(other, opened))
    found = with_elements(region(opened))
    assert found is not None and [*found.after.graph.node[0].input] == ["x", "a/kept1"]
    assert [*opened.graph.node[0].input] == ["x", "p"] and len(opened.graph.initializer) == 1
    outside = piece(f"{CUT} y = Neg(a)", PADS)
    outside.graph.initializer[0].external_data.add(key="location", value="w")
    assert with_elements(region(outside)) is None


# Stored numbers


@pytest.mark.parametrize(
    ("number", "wild"),
    [(1e12, False), (1.1e12, True), (-1e12, False), (-2e12, True), (1e-12, False), (9e-13, True), (0.0, True),
     (np.inf, True), (np.nan, True), (1.0, False)],
)  # fmt: skip
def test_numbers_that_are_extreme(number: float, wild: bool) -> None:
    assert _wild(np.array([number])).tolist() == [wild]


def constant(body: str, array: Any, name: str = "c") -> onnx.ModelProto:
    made = piece(body)
    made.graph.node.insert(0, helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
    return made


def numbers(found: Region) -> list[Any]:
    return [
        numpy_helper.to_array(attribute.t).tolist()
        for side in (found.before, found.after)
        for node in side.graph.node
        for attribute in node.attribute
        if attribute.HasField("t")
    ]


def test_numbers_of_nodes_and_of_subgraphs_are_replaced_too() -> None:
    drawn, finite = with_ordinary_numbers(region(constant("y = Mul(x, c)", np.float32([np.inf, 2]))))
    one, other = numbers(drawn)
    assert one == other and 0.5 <= one[0] <= 1.5 and one[1] == 2.0 and numbers(finite) == [[1.375, 2.0]] * 2
    body = "y = If(q) <then_branch = t () => (float[1] u) <float[1] w> { u = Mul(x, w) }, " \
        "else_branch = e () => (float[1] u) { u = Neg(x) }>"  # fmt: skip
    inside = piece(body)
    tensor = inside.graph.node[0].attribute[0].g.initializer.add()
    tensor.CopyFrom(numpy_helper.from_array(np.float32([np.nan]), "w"))
    _, finite = with_ordinary_numbers(region(inside))
    (found,) = finite.before.graph.node[0].attribute[0].g.initializer
    assert numpy_helper.to_array(found).tolist() == [0.875] and found.name == "w"


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        ([np.inf], [np.inf], 2),
        ([np.inf], [1.0], 0),
        ([1.0], [np.inf], 0),
        ([0.0], [0.0], 1),
        ([0.0], [0.0, 0.0], 0),
        ([np.inf], [-np.inf], 1),
    ],
)
def test_numbers_are_replaced_in_both_pieces(before: Any, after: Any, count: int) -> None:
    sides = [constant("y = Mul(x, c)", np.float32(values)) for values in (before, after)]
    assert len([*with_ordinary_numbers(region(*sides))]) == count


def test_other_numbers_are_drawn_for_other_tensors() -> None:
    made = constant("y = Mul(x, c)", np.float32([0]))
    made.graph.initializer.append(numpy_helper.from_array(np.float32([0]), "same"))
    made.graph.initializer.append(numpy_helper.from_array(np.float32([0, 0]), "longer"))
    made.graph.initializer.append(numpy_helper.from_array(np.float64([1e-300]), "wide"))
    made.graph.initializer.append(numpy_helper.from_array(np.int64([0]), "whole"))
    (found,) = with_ordinary_numbers(region(made))
    same, longer, wide, whole = (numpy_helper.to_array(one) for one in found.before.graph.initializer)
    assert same.tolist() == numbers(found)[0] and whole.tolist() == [0]
    assert len({*same.tolist(), *longer.tolist(), *wide.tolist()}) == 4 and wide.dtype == np.float64


@pytest.mark.parametrize(
    ("dims", "large"), [([64], False), ([65], True), ([8, 8], False), ([5, 13], True), ([], False)]
)
def test_constants_of_many_elements_are_weights(dims: list[int], large: bool) -> None:
    small, other = piece("y = Neg(x)"), piece("y = Neg(x)")
    other.graph.initializer.add(name="w", data_type=1, dims=dims)
    assert has_weights(region(small, other)) is large is has_weights(region(other, small))
    other.graph.initializer[0].data_location = TensorProto.EXTERNAL
    assert has_weights(region(small, other)) and not has_weights(region(small))
