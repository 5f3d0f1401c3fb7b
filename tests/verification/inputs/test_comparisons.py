"""A dim that the graph compares with a constant is tried below, at and above that constant."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from support.breadth import sampled

from surgery.base.promises import Parity
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.registry.declare import graph_pass
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.verification.comparing.details import Status
from surgery.verification.inputs.comparisons import (
    Made,
    _attributes,
    _ExtentNumbers,
    _few,
    _listed,
    _may_cross,
    _sides,
)
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.verdict.verifier import Verifier

MODELS = Path(__file__).parents[3] / "models"

# The constant is 77, which no other rule suggests: the sizes of a dim are small, or 32, 64, 128 and 224.
CONSTANTS = """<int64 zero = {0}, int64 one = {1}, int64 c = {77}, int64[1] c1 = {77}, int64[1] z1 = {0},
    int64[1] back = {-77}, int64[1] o1 = {1}, int64[1] end = {9223372036854775807}, float f = {77}, float m = {-1}>"""
EXTENT = "s = Shape(x) n = Gather(s, one)"
FACTOR = "k = Cast<to = 1>(q) y = Mul(x, k)"
COMPARED = {
    "greater": f"{EXTENT} q = Greater(n, c) {FACTOR}",
    "less_or_equal": f"{EXTENT} q = LessOrEqual(c, n) {FACTOR}",
    "constant_of_a_node": f"{EXTENT} i = Constant<value = int64 {{77}}>() q = Greater(n, i) {FACTOR}",
    "equal_of_a_shape": f"s = Shape<start = 1>(x) e = Equal(s, c1) q = Squeeze(e, z1) {FACTOR}",
    "as_a_float": f"{EXTENT} v = Cast<to = 1>(n) q = Less(v, f) {FACTOR}",
    "a_difference": f"{EXTENT} d = Sub(n, c) q = Less(d, zero) {FACTOR}",
    "picked_from_joined": f"""{EXTENT} u = Unsqueeze(n, z1) t = Concat<axis = 0>(u, c1) e = Gather(t, zero)
        q = Less(e, c) {FACTOR}""",
    "min": f"{EXTENT} q = Min(n, c) {FACTOR}",
    "max": f"{EXTENT} q = Max(c, n) {FACTOR}",
    "clip": f"{EXTENT} q = Clip(n, zero, c) {FACTOR}",
    "branches": """s = Shape(x) n = Gather(s, one) b = Greater(n, c)
        y = If(b) <then_branch = t () => (float[B,N] p) { p = Neg(x) }, else_branch = e () => (float[B,N] p2) {
            p2 = Abs(x) }>""",
    "in_a_branch": """s = Shape(x) n = Gather(s, one) t0 = ReduceSum<keepdims = 0>(x) b = Greater(t0, m)
        y = If(b) <then_branch = t () => (float[B,N] p) { q = Less(n, c) k = Cast<to = 1>(q) p = Mul(x, k) },
            else_branch = e () => (float[B,N] p2) { p2 = Abs(x) }>""",
    "slice_up_to_a_constant": "p = Slice(x, z1, c1, o1) k = ReduceMax<keepdims = 1>(p) y = Mul(x, k)",
    "slice_of_the_last": "p = Slice(x, back, end, o1) k = ReduceMax<keepdims = 1>(p) y = Mul(x, k)",
    "positions": """s = Shape(x) n = Gather(s, one) r = Range(zero, n, one) u = Unsqueeze(r, z1) q = Less(u, c)
        k = Cast<to = 1>(q) y = Mul(x, k)""",
    "distances": """s = Shape(x) n = Gather(s, one) r = Range(zero, n, one) u = Unsqueeze(r, z1) w = Unsqueeze(r, o1)
        d = Sub(u, w) a = Abs(d) q = Less(a, c) k = Cast<to = 1>(q) y = MatMul(x, k)""",
    "range_from_a_constant": """s = Shape(x) n = Gather(s, one) h = Max(n, c) r = Range(c, h, one) q = ReduceSum(r)
        k = Cast<to = 1>(q) y = Mul(x, k)""",
}
ABOVE = {"positions": 78, "distances": 78}
"""Positions are counted from 0, so the first one that is compared with an equal number is one further."""


def _model(body: str, inputs: str = "float[B,N] x") -> bytes:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 18]> g ({inputs}) => (float[B,N] y) {CONSTANTS} {{ {body} }}'
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model.SerializeToString()


def _points(skeleton: bytes, inputs: InputsSpec | None = None) -> list[dict[str, int]]:
    with closing(Verifier(skeleton, inputs, VerifySpec())) as verifier:
        verifier.original.prepare()
        assert verifier.original.problem is None, verifier.original.problem
        return [dict(run.binding.dims) for run in verifier.original.runs]


@pytest.mark.parametrize("case", sampled(sorted(COMPARED), 4))
def test_a_dim_is_tried_below_at_and_above_the_constant(case: str) -> None:
    constant = ABOVE.get(case, 77)
    extents = {point["N"] for point in _points(_model(COMPARED[case]))}
    below = set() if "slice" in case or "range" in case else {constant - 1}
    assert extents >= below | {constant, constant + 1}
    assert min(extents) < constant


NUMBERS = {
    "the extents": ("Shape(x)", [["B", "N", 5]]),
    "some extents": ("Shape<start = 1, end = 2>(x)", [["N"]]),
    "the last extents": ("Shape<start = -2>(x)", [["N", 5]]),
    "a float": ("s = Shape(x) v = Cast<to = 1>(s)", [["B", "N", 5], ["B", "N", 5]]),
    "one of them": ("s = Shape(x) v = Gather(s, o)", [["B", "N", 5], ["N"]]),
    "one that there is not": ("s = Shape(x) v = Gather(s, c)", [["B", "N", 5], []]),
    "a part": ("s = Shape(x) v = Slice(s, o, t)", [["B", "N", 5], ["N"]]),
    "a part of a step": ("s = Shape(x) v = Slice(s, z, t, z, o)", [["B", "N", 5], ["B", "N"]]),
    "every second": ("s = Shape(x) v = Slice(s, z, t, z, t)", [["B", "N", 5], None]),
    "joined": ("s = Shape(x) v = Concat<axis = 0>(s, c)", [["B", "N", 5], ["B", "N", 5, 77]]),
    "sums": ("s = Shape(x) v = Add(s, c)", [["B", "N", 5], ["(B) + (77)", "(N) + (77)", 82]]),
    "differences": ("s = Shape(x) v = Sub(c, s)", [["B", "N", 5], ["(77) - (B)", "(77) - (N)", 72]]),
    "quotients": (
        "s = Shape(x) v = Div(s, t)",
        [["B", "N", 5], ["truncated((B) / (2))", "truncated((N) / (2))", 2]],
    ),
    "a quotient by zero": ("v = Div(c, z)", [[0]]),
    "the larger": ("s = Shape(x) v = Max(s, c)", [["B", "N", 5], ["Max((B), (77))", "Max((N), (77))", 77]]),
    "the smaller of three": ("s = Shape(x) v = Min(s, c, o)", [["B", "N", 5], None]),
    "unequal lengths": ("s = Shape(x) t2 = Concat<axis = 0>(c, c) v = Add(s, t2)", [["B", "N", 5], [77, 77], None]),
    "positions": ("n = Shape<start = 1, end = 2>(x) r = Range(z, n, o)", [["N"], ["(N) - (1)"]]),
    "later positions": (
        "n = Shape<start = 1, end = 2>(x) r = Range(z, n, o) v = Add(r, c)",
        [["N"], ["(N) - (1)"], ["((N) - (1)) + (77)"]],
    ),
    "distances": (
        "n = Shape<start = 1, end = 2>(x) r = Range(z, n, o) w = Unsqueeze(r, o) d = Sub(r, w) a = Abs(d)",
        [["N"], ["(N) - (1)"], ["(N) - (1)"], ["(N) - (1)"], ["(N) - (1)"]],
    ),
    "the larger of a position and a number": (
        "n = Shape<start = 1, end = 2>(x) r = Range(z, n, o) v = Max(c, r) w = Min(r, c)",
        [["N"], ["(N) - (1)"], ["(N) - (1)"], ["(N) - (1)"]],
    ),
    "a picked position": (
        "n = Shape<start = 1, end = 2>(x) r = Range(z, n, o) v = Gather(r, z)",
        [["N"], ["(N) - (1)"], None],
    ),
    "other operators": ("s = Shape(x) v = Neg(s)", [["B", "N", 5], None]),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_of_extents_are_followed(case: str) -> None:
    body, expected = NUMBERS[case]
    body = body if "=" in body.split("(")[0].split("<")[0] else f"v = {body}"
    stored = {"z": [0], "o": [1], "t": [2], "c": [77]}
    nodes = {node.output[0]: node for node in text.parse_nodes(body)}

    def made(name: str) -> Made[str] | None:
        node = nodes.get(name)
        return None if node is None else (node.op_type, list(node.input), _attributes(node))

    numbers = _ExtentNumbers({"x": ["B", "N", 5]}.get, stored.get, made)
    assert [numbers.elements(name) for name in nodes] == expected
    assert numbers.elements("x") is None and numbers.elements(None) is None


@pytest.mark.parametrize(
    ("op", "operands", "pairs"),
    [
        ("Less", ["s", "c"], [("B", 77), ("N", 77), (5, 77)]),
        ("Clip", ["n", "z", "c"], [("N", 0), ("N", 77), (0, 77)]),
        ("Clip", ["n", None, "c"], [("N", 77)]),
        ("Range", ["z", "n", "o"], [(0, "N")]),
        ("Range", ["x", "n", "o"], []),
        ("Slice", ["x", "z", "c"], [("B", 0), ("B", 77)]),
        ("Slice", ["x", "back", "n", "o"], [("N", 77), ("N", "N")]),
        ("Slice", ["x", "z", "c", "back"], []),
        ("Slice", ["y", "z", "c", "o"], []),
        ("Add", ["s", "c"], []),
    ],
)
def test_the_numbers_that_a_node_compares(op: str, operands: list[str | None], pairs: list[object]) -> None:
    stored = {"s": ["B", "N", 5], "n": ["N"], "z": [0], "o": [1], "c": [77], "back": [-77]}
    numbers: _ExtentNumbers[str] = _ExtentNumbers({"x": ["B", "N", 5]}.get, stored.get, lambda _: None)
    assert [*numbers.pairs(op, operands)] == pairs


@pytest.mark.parametrize(
    ("array", "numbers"),
    [
        (np.int64([[3, -4]]), [3, -4]),
        (np.float32([2, 2.5]), [2, 2.5]),
        (np.uint8(7), [7]),
        (np.arange(16), [*range(16)]),
        (np.arange(17), None),
        (np.array([True]), None),
        (np.float32([1, np.inf]), None),
        (np.float32([np.nan]), None),
    ],
)
def test_numbers_of_small_tensors_are_read(array: Any, numbers: list[float] | None) -> None:
    found = _listed(array)
    assert found == numbers and [type(one) for one in found or []] == [type(one) for one in numbers or []]


def test_a_table_is_sliced_to_all_of_its_rows() -> None:
    rows = ", ".join(["1"] * 77)
    body = (
        f"{EXTENT} e = Unsqueeze(n, z1) t = Constant<value = float[77] {{{rows}}}>() p = Slice(t, z1, e) y = Add(x, p)"
    )
    extents = {point["N"] for point in _points(_model(body))}
    assert 77 in extents and max(extents) == 77 and len(extents) > 2


def test_the_sum_of_two_dims_reaches_the_constant() -> None:
    inputs = "float[B,N] x, float[B,P] past"
    body = f"t = Concat<axis = 1>(past, x) s = Shape(t) n = Gather(s, one) q = Greater(n, c) {FACTOR}"
    sums = {point["N"] + point["P"] for point in _points(_model(body, inputs))}
    assert sums >= {76, 77, 78}


def test_a_computed_extent_reaches_the_constant() -> None:
    body = f"p = Concat<axis = 1>(x, x, x) s = Shape(p) n = Gather(s, one) q = Greater(n, c) {FACTOR}"
    extents = {point["N"] for point in _points(_model(body))}
    assert extents >= {25, 26}  # 75 and 78 columns


@pytest.mark.parametrize(
    ("pairs", "crosses"),
    [
        (((3, 77), (5, 77)), True),
        (((77, 3), (77, 5)), True),
        (((3, 1), (5, 1)), False),
        (((0, 1), (5, 1)), True),
        (((3, 1 << 30), (5, 1 << 30)), False),
        (((3, 77), (3, 77)), False),
        (((3, 77), (5, 79)), False),
    ],
)
def test_a_number_that_moves_may_cross_one_that_stays_within_the_sizes_that_are_tried(pairs, crosses: bool) -> None:
    assert _may_cross(*pairs) == crosses


@pytest.mark.parametrize(
    ("pair", "both", "points"),
    [
        (("N", 77), True, [(78,), (77,), (76,)]),
        (("N", 77), False, [(78,), (77,)]),
        (("(77) - (N)", 0), True, [(76,), (77,), (78,)]),
        (("(77) - (N)", 0), False, [(77,), (78,)]),
        # The extent 2, with which N starts, is equal to the number.
        (("N", 2), False, [(3,), (2,), (1,)]),
        (("twice", 77), True, [(39,), (38,)]),
        (("twice", 77), False, [(39,)]),
        # The last of two dims moves.
        (("N + P", 77), True, [(2, 76), (2, 75), (2, 74)]),
        (("N + P", 77), False, [(2, 76), (2, 75)]),
        (("P", 4), True, [(5,), (4,), (3,)]),
        (("N", 0), True, []),
        (("N", -(1 << 62)), True, []),
        (("N", 1 << 21), True, []),
        (("N", "P"), True, []),
        (("3", 2), True, []),
        ((3, 2), True, []),
        (("sqrt(N)", 2), True, []),
    ],
)
def test_points_on_either_side_of_a_number(pair: Any, both: bool, points: list[tuple[int, ...]]) -> None:
    found = _sides(pair, ["N", "P"], {"twice": "2 * N"}, both=both)
    assert [tuple(point.values()) for point in found] == points


def test_few_points_are_kept_for_each_group_of_dims() -> None:
    points = [{"N": n} for n in range(10)] + [{"N": n, "P": 1} for n in range(10)] + [{"P": 7}]
    assert _few(points) == [*points[:8], *points[10:16], {"P": 7}]


def test_sizes_of_the_user_stay() -> None:
    points = _points(_model(COMPARED["greater"]), InputsSpec(dims={"N": (5, 9)}))
    assert {point["N"] for point in points} == {5, 9}


def test_a_size_whose_run_takes_long_is_not_tried() -> None:
    body = COMPARED["greater"].replace("c)", "far)")
    model = onnx.load_model_from_string(_model(body.replace("far", "c")))
    model.graph.initializer[2].int64_data[:] = [1 << 20]
    body_of = model.graph
    body_of.node.append(onnx.helper.make_node("MatMul", ["t", "x"], ["z"]))
    body_of.node.append(onnx.helper.make_node("Transpose", ["x"], ["t"]))
    body_of.node.insert(0, body_of.node.pop())
    body_of.output.append(onnx.ValueInfoProto(name="z"))
    assert max(point["N"] for point in _points(model.SerializeToString())) < 1 << 12


@pytest.mark.parametrize("equal", ["-1", "1"])
def test_a_comparison_with_what_no_extent_crosses_adds_no_sets(equal: str) -> None:
    plain = _points(_model("q = Shape(x) k = Cast<to = 1>(q) s = ReduceSum(k) y = Mul(x, s)"))
    body = f"""q = Shape(x) i = Constant<value = int64 {{{equal}}}>() e = Equal(q, i) v = Where(e, i, q)
        k = Cast<to = 1>(v) s = ReduceSum(k) y = Mul(x, s)"""
    assert len(_points(_model(body))) == len(plain)


@pytest.mark.parametrize("regional", [False, True], ids=["whole", "region"])
@pytest.mark.parametrize(
    ("before", "after"),
    sampled(
        [
            (f"{EXTENT} q = Greater(n, c) {FACTOR}", f"{EXTENT} q = Greater(zero, n) {FACTOR}"),
            (f"{EXTENT} q = Greater(n, c) {FACTOR}", f"{EXTENT} q = GreaterOrEqual(n, c) {FACTOR}"),
            ("p = Slice(x, z1, c1, o1) y = Neg(p)", "y = Neg(x)"),
            (f"{EXTENT} q = Min(n, c) {FACTOR}", f"{EXTENT} q = Identity(n) {FACTOR}"),
        ],
        4,
    ),
    ids=["never_above", "off_by_one", "never_cut", "never_bounded"],
)
def test_a_change_that_holds_on_one_side_differs(before: str, after: str, regional: bool) -> None:
    first, second = _model(before), _model(after)
    with closing(Verifier(first)) as verifier:
        verdict = verifier.verify(second, Parity.CLOSE, first if regional else None)
        assert verdict.status is Status.DIFFERENT, verdict.message
        assert not verifier.changes.compare_regions(first, second).verdict.passed


@graph_pass("comparisons-short-operand", parity=Parity.EXACT)
def short_operand(graph: Graph) -> None:
    """Take the operand for short sequences of each Where: wrong for long ones."""
    for node in graph.nodes("Where"):
        with graph.site(node):
            graph.replace(node.outputs[0], node.required_input(2))


PLANTED = """<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, length] x) => (float[batch, length] y) <int64 one = {1}, int64 most = {512}> {
    s = Shape(x)  n = Gather(s, one)  is_long = Greater(n, most)  a = Abs(x)  b = Neg(x)  w = Where(is_long, a, b)
    r = Sigmoid(w)  y = Cos(r)
}"""


def _ops(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    return [node.op_type for node in nodes]


def test_a_rewrite_that_is_right_only_for_short_sequences_is_refused() -> None:
    result = runner.apply(text.parse(PLANTED), recipes.parse("recipe: t\nsteps: [comparisons-short-operand]", "t.yaml"))
    assert [step.status for step in result.steps if step.name == "comparisons-short-operand"] == ["failed"]
    assert "Where" in _ops(result.proto.graph.node)
