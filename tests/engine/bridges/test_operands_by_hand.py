"""What people write for nodes, tensors and constants: which objects of a graph it means, and of which type it is."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from surgery.base.errors import UsageError
from surgery.engine.bridges import by_hand
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Value
from surgery.model.patterns.selector import NodeSelector

MODEL = """<ir_version: 10, opset_import: ["": 20, "own": 1]> g (float[N] x, int64[N] i, float16[N] h) => (float[N] y)
    { [a] p = Exp(x) [b] q = Neg(p) [c] r = Neg(q) [d] s = own.Op(r) [e] y = Add(r, s) }"""


@pytest.fixture(scope="module")
def graph() -> Graph:
    return Graph(ir.from_proto(text.parse(MODEL)))


def names(graph: Graph, which: Any) -> list[str]:
    return [node.label for node in by_hand.selector(which).nodes(graph)]


def test_nodes_are_given_by_name_mapping_object_or_list(graph: Graph) -> None:
    first, second, *_ = graph.nodes()
    assert names(graph, "a") == ["a"] and names(graph, first) == ["a"]
    assert names(graph, {"op": "Neg"}) == ["b", "c"] and names(graph, NodeSelector.read("b")) == ["b"]
    assert names(graph, [second, "a", {"op": "Neg"}]) == ["b", "a", "c"]
    assert names(graph, (first, first)) == ["a"]


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ([], "an empty list selects no node; name one"),
        ({"opp": "Neg"}, "; write a name, a glob, or a mapping such as"),
        ("nothing", "no node"),
    ],
)
def test_what_means_no_node(graph: Graph, which: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        by_hand.selector(which).nodes(graph)


def test_a_tensor_is_no_node_and_a_node_no_tensor(graph: Graph) -> None:
    (node, *_) = graph.nodes()
    with pytest.raises(UsageError, match=r"'p' is a tensor, not a node; its node is `\.producer`"):
        by_hand.selector(node.outputs[0])
    with pytest.raises(UsageError, match=r"is not a tensor; name a tensor, or pass one of the `\.outputs` of the node"):
        by_hand.tensor_named(graph, node)
    with pytest.raises(UsageError, match="3 is not a tensor; name one"):
        by_hand.tensor_named(graph, 3)  # type: ignore[arg-type]
    assert by_hand.tensor_named(graph, "p").name == "p"
    with pytest.raises(UsageError, match=r"'\*' matches \d+ tensors; name one"):
        by_hand.tensor_named(graph, "*")


def test_nodes_of_another_graph_or_that_are_gone() -> None:
    graph, other = (Graph(ir.from_proto(text.parse(MODEL))) for _ in "ab")
    node = graph.nodes("own::Op")[0] if graph.nodes("own::Op") else graph.nodes()[3]
    with pytest.raises(UsageError, match="the node 'd' belongs to another graph; find a node by its name"):
        by_hand.selector(node).nodes(other)
    by_hand.require_known(graph, node.outputs[0], None)
    with pytest.raises(UsageError, match="the tensor 's' belongs to another graph; find a tensor by its name"):
        by_hand.require_known(other, node.outputs[0], None)
    value = node.outputs[0]
    graph.nodes()[4].ir.replace_input_with(1, value.ir.producer().inputs[0])  # type: ignore[union-attr]
    graph.ir.graph.remove(node.ir)
    with pytest.raises(UsageError, match="the node 'd' is no longer in the graph"):
        by_hand.selector(node).nodes(graph)
    with pytest.raises(UsageError, match="the tensor 's' is no longer in the graph"):
        by_hand.require_known(graph, value, None)


def test_the_only_node_of_several(graph: Graph) -> None:
    nodes = graph.nodes()
    assert by_hand.only(nodes[:1]) is nodes[0]
    with pytest.raises(UsageError, match=r"^2 nodes match: 'a', 'b'; name one, or list them by g\.select$"):
        by_hand.only(nodes[:2])
    with pytest.raises(UsageError, match=r"^3 nodes match: 'a', 'b', 'c'; name"):
        by_hand.only(nodes[:3])
    with pytest.raises(UsageError, match=r"^4 nodes match: 'a', 'b', 'c', ...; name"):
        by_hand.only(nodes[:4])


FLOAT, HALF, INT64, BOOL = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT64, ir.DataType.BOOL


@pytest.mark.parametrize(
    ("op", "given", "kinds"),
    [
        ("Add", ["h", 1], [None, HALF]),
        ("Add", [5, "i"], [INT64, None]),
        ("And", [1 > 0, "i"], [BOOL, None]),
        ("Add", [1, 2.5], [INT64, FLOAT]),  # nothing says which
        ("Clip", ["h", None, 6], [None, None, HALF]),
        ("Where", [True, "h", 0], [BOOL, None, HALF]),
        ("Gather", ["h", 1], [None, INT64]),
        ("Reshape", ["x", [-1]], [None, INT64]),
        ("Slice", ["h", [0], [1], [0], [1]], [None, INT64, INT64, INT64, INT64]),
        ("Max", ["h", 1, 2], [None, HALF, HALF]),
        ("own::Op", [1, "h"], [HALF, None]),
        ("own::Op", [1, 2.0, True], [INT64, FLOAT, BOOL]),
        ("Add", ["h", np.float32(1)], [None, FLOAT]),
        ("Add", ["h", np.ones(2, np.int64)], [None, INT64]),
    ],
)
def test_numbers_have_the_type_that_the_operator_takes(
    graph: Graph, op: str, given: list[Any], kinds: list[ir.DataType | None]
) -> None:
    made: list[Any] = []

    def find(name: Any) -> Value:
        return by_hand.tensor_named(graph, name)

    def keep(item: Any) -> Any:
        made.append(item)
        return len(made)

    found = by_hand.operands(graph, op, given, find, keep)
    assert len(found) == len(given)
    for item, value, kind in zip(given, found, kinds):
        if item is None:
            assert value is None
        elif isinstance(item, str):
            assert isinstance(value, Value) and value.name == item and kind is None
        else:
            constant = made[int(value) - 1]  # type: ignore[call-overload]
            assert kind is not None and constant.dtype in (kind, kind.numpy())


def test_a_number_that_does_not_fit_is_named_with_its_input(graph: Graph) -> None:
    with pytest.raises(UsageError, match="input 1 of the new Add: "):
        by_hand.operands(graph, "Add", ["i", 0.5], lambda name: by_hand.tensor_named(graph, str(name)), lambda one: one)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "kinds"),
    [
        ("Relu", ["h"], {}, [HALF]),
        ("Shape", ["h"], {}, [INT64]),
        ("Equal", ["h", "h"], {}, [BOOL]),
        ("Cast", ["h"], {"to": 7}, [INT64]),
        ("Cast", ["h"], {"to": ir.AttrInt64("to", 1)}, [FLOAT]),
        ("Cast", ["h"], {}, [None]),
        ("TopK", ["h", "i"], {}, [HALF, INT64]),
        ("MatMulInteger", ["i", "i"], {}, [ir.DataType.INT32]),
        ("Split", ["h", None], {}, [HALF, HALF, HALF]),
        ("own::Op", ["h"], {"to": 7}, [None]),
        ("RandomNormal", [], {"dtype": 10}, [HALF]),
        # More inputs than the operator has, one without a type, and one that is missing: said later.
        ("Relu", ["h", "x", "x"], {}, [HALF]),
        ("Add", [None, "s"], {}, [None]),
    ],
)
def test_types_of_new_outputs_are_presumed(
    graph: Graph, op: str, inputs: list[str | None], attributes: dict[str, Any], kinds: list[ir.DataType | None]
) -> None:
    given = [None if name is None else by_hand.tensor_named(graph, name) for name in inputs]
    made = [Value(graph, ir.Value(name=f"new{number}", type=ir.TensorType(BOOL))) for number in range(len(kinds))]
    before = [value.ir.type for value in made]
    by_hand.presume_types(op, given, made, attributes)
    if op == "own::Op":
        assert [value.ir.type for value in made] == before
    else:
        assert [value.ir.dtype for value in made] == kinds


@pytest.mark.parametrize(
    ("item", "dtype"),
    [(1, INT64), ([1, 2], INT64), (0.5, FLOAT), (True, BOOL), ("a", ir.DataType.STRING), ([1, 0.5], FLOAT)],
)
def test_a_constant_by_itself(item: Any, dtype: ir.DataType) -> None:
    assert by_hand.constant(item).dtype == dtype
    array = np.ones(2, np.float16)
    assert by_hand.constant(array) is array
