"""The line of a pass that skips a node without a reason, and the values in it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import pytest

from surgery.base.promises import Parity
from surgery.engine.registry.passes import Pass
from surgery.engine.why import explain as why
from surgery.engine.why.decision_trace import deciding, is_of
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Node


def nested(graph: Graph) -> None:
    for node in graph.nodes("Relu"):
        number = len(node.inputs)

        if number == 1:
            # a comment between the condition and its end
            continue
        graph.nodes("Exp")


def over_lines(graph: Graph) -> None:
    for node in graph.nodes("Relu"):
        if any(
            value is None or value.name == "a name that no value in the model of these tests has, to fill the line"
            for value in (node.inputs[0], None)
        ):
            continue
        graph.nodes("Exp")


def by_helper(graph: Graph) -> None:
    for node in graph.nodes("Relu"):
        found = _found(node, 7)
        if found is None:
            continue
        graph.nodes("Exp")


def _found(node: Node, wanted: int) -> Node | None:
    if len(node.outputs) != wanted:
        return None
    return node


def by_two_helpers(graph: Graph) -> None:
    for node in graph.nodes("Relu"):
        if not _is_wanted(node):
            continue
        graph.nodes("Exp")


def _is_wanted(node: Node) -> bool:
    found = _found(node, 9)
    return found is not None


def long_after_a_helper(graph: Graph) -> None:
    for node in graph.nodes("Relu"):
        found = _found(node, 7)
        first = node.inputs[0]
        last = node.outputs[0]
        number = 4
        if found is None and number > 3 and first != last:
            continue
        graph.nodes("Exp")


def with_short_values(graph: Graph) -> None:
    for node in graph.nodes("Relu"):
        short, long = node.op * 19 + "1", node.op * 20
        if short and long and len("node") and sys.maxsize > 3:
            continue
        graph.nodes("Exp")


def skipped(walk: Callable[[Graph], None], at: str | None = None) -> list[tuple[str, str, int]]:
    body = "[one] a = Relu(x) [more] c = Abs(x) [two] b = Relu(half) y = Add(a, b)"
    stored = storage.from_proto(text.parse(f"g (float[2] x) => (float[2] y) <float half = {{0.5}}> {{ {body} }}"))
    declared = Pass("skipping", Parity.CLOSE, "graph", walk)
    found = why.explain(declared, stored.proto, stored.weights, at=at, contained=False)
    return [(one.where.split(": ", 1)[1], one.values, one.count) for one in found.silent]


@pytest.mark.parametrize(
    ("walk", "line", "values"),
    [
        (nested, "if number == 1:", "number = 1"),
        (over_lines, 'if any( value is None or value.name == "a name that no value in the model of these tests has, '
         'to fill the line" for value in (node.inputs[0], None) ):', "node.inputs = [Value(x)]"),
        (by_helper, "if len(node.outputs) != wanted:", "node.outputs = [Value(a)], wanted = 7"),
        (by_two_helpers, "if len(node.outputs) != wanted:", "node.outputs = [Value(a)], wanted = 9"),
        (long_after_a_helper, "if found is None and number > 3 and first != last:",
         "found = None, number = 4, first = float[2] 'x' read by Relu 'one', Abs 'more', last = float[2] 'a'"),
        (with_short_values, 'if short and long and len("node") and sys.maxsize > 3:', f"short = {'Relu' * 19 + '1'!r}"),
    ],
)  # fmt: skip
def test_the_line_that_skips_is_shown_with_its_values(walk: Any, line: str, values: str) -> None:
    ((where, held, count),) = skipped(walk)
    assert (where, held, count) == (line, f"{values}, node = Relu 'one'", 2)


def test_the_values_are_those_of_the_node_that_is_asked_for() -> None:
    ((_, held, count),) = skipped(long_after_a_helper, at="two")
    assert held == "found = None, number = 4, first = float 'half' 0.5, last = float 'b', node = Relu 'two'"
    assert count == 1


def test_at_most_two_nodes_are_added() -> None:
    graph = Graph(ir.from_proto(text.parse("g (float[2] x) => (float[2] y) { [n] y = Relu(x) }")))
    (one,) = graph.nodes()
    two = three = one
    number = 3
    frame = sys._getframe()
    place, line, values = deciding(frame, frame.f_lineno)
    assert line == "place, line, values = deciding(frame, frame.f_lineno)"
    assert place.startswith("why/test_skipping_lines.py:") and values == "one = Relu 'n', two = Relu 'n'"
    assert number and two and three


@pytest.mark.parametrize(
    ("module", "of"), [("own", True), ("own.more", True), ("owner", False), ("other.own", False), ("", False)]
)
def test_code_of_a_package(module: str, of: bool) -> None:
    found: dict[str, Any] = {"__name__": module, "sys": sys}
    exec("def here():\n    return sys._getframe()", found)
    assert is_of("own", found["here"]()) is of
