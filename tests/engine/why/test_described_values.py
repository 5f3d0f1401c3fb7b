"""Values and nodes in messages: types, contents, origins, and lists of names that are cut short."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import pytest

from surgery.engine.why.describe import contents, extents, is_small, listed, named, source, typed
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Value

SOURCE = """g (float[N,4] x, seq(float[2]) s, float v, float[2] over) => (float[N,4] y, float out, seq(float[2]) t)
<float half = {0.5}, float[1] one = {1}, int64[4] four = {1, 2, 3, 4}, int64[5] five = {1, 2, 3, 4, 5},
 float[2] over = {1, 2}> {
    [scaled] a = Mul(x, half)
    y = Neg(a)
    out = Exp(v)
    t = Identity(s)
}"""


@pytest.fixture(scope="module")
def values() -> dict[str, Value]:
    graph = Graph(ir.from_proto(text.parse(SOURCE)))
    constants = {name: Value(graph, value) for name, value in graph.ir.graph.initializers.items()}
    around = [value for node in graph.nodes() for value in (*node.inputs, *node.outputs) if value is not None]
    return {**constants, **{value.name: value for value in around}}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (typed, {"x": "float[N,4]", "v": "float", "four": "int64[4]", "half": "float"}),
        (contents, {"half": "0.5", "one": "{1.0}", "four": "{1, 2, 3, 4}", "five": "{1, 2, 3, 4, …}", "x": ""}),
        (is_small, {"half": True, "four": True, "five": False, "x": False}),
        (source, {"half": "0.5", "x": "graph input 'x'", "a": "the result of Mul 'scaled'",
                  "y": "the result of 'Neg -> y'", "over": "'over', an overridable initializer"}),
    ],
)  # fmt: skip
def test_a_value_is_described(
    said: Callable[[Value], object], expected: dict[str, object], values: dict[str, Value]
) -> None:
    assert {name: said(values[name]) for name in expected} == expected


def test_what_is_missing_or_unknown_is_described() -> None:
    assert source(None) == "nothing"
    assert [extents(shape) for shape in (None, (), (2, None, "N"))] == [" of unknown shape", "", "[2,?,N]"]


def test_the_first_three_nodes_are_listed(values: dict[str, Value]) -> None:
    nodes = [node for name in ("a", "y", "out", "t") if (node := values[name].producer) is not None]
    names = [named(node) for node in nodes]
    assert listed(nodes[:3]) == f"{names[0]}, {names[1]}, {names[2]}"
    assert listed(nodes) == f"{names[0]}, {names[1]}, {names[2]} and 1 more"
    assert listed(nodes, 1) == f"{names[0]} and 3 more"
