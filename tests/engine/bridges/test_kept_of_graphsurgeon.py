"""What an edit in onnx-graphsurgeon leaves as it was, and what is as the edit says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import helper, numpy_helper

from surgery.engine.bridges import graphsurgeon
from surgery.model import storage
from surgery.model.graph import text

Edit = Callable[[gs.Graph], gs.Graph]


def edited(model: onnx.ModelProto, edit: Edit) -> onnx.ModelProto:
    stored = storage.from_proto(model)
    return graphsurgeon.run(stored.proto, stored.weights, edit)


def declared(graph: onnx.GraphProto) -> list[tuple[str, list[str | int], str]]:
    dims = {
        one.name: [dim.dim_param or dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in graph.value_info
    }
    return [(one.name, dims[one.name], one.doc_string) for one in graph.value_info]


def chain() -> onnx.ModelProto:
    model = text.parse("g (float[n] x) => (float[n] y) { [a] a = Exp(x) [b] b = Neg(a) [c] y = Abs(b) }")
    for name in "ba":
        model.graph.value_info.append(helper.make_tensor_value_info(name, 1, ["n"], f"of {name}"))
    model.graph.node[1].doc_string = "negates"
    return model


def reshaped(copy: bool) -> Edit:
    def edit(graph: gs.Graph) -> gs.Graph:
        made = graph.copy() if copy else graph
        made.tensors()["a"].shape = [4]
        return made

    return edit


def inserted(graph: gs.Graph) -> gs.Graph:
    new = gs.Variable("new", np.float32, ["n"])
    graph.nodes.append(gs.Node("Relu", "r", inputs=[graph.tensors()["b"]], outputs=[new]))
    next(node for node in graph.nodes if node.name == "c").inputs = [new]
    return graph.toposort()


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda graph: graph, [("b", ["n"], "of b"), ("a", ["n"], "of a")]),
        (lambda graph: graph.copy(), [("b", ["n"], "of b"), ("a", ["n"], "of a")]),
        (reshaped(copy=False), [("b", ["n"], "of b"), ("a", [4], "of a")]),
        (reshaped(copy=True), [("b", ["n"], "of b"), ("a", [4], "of a")]),
        (inserted, [("b", ["n"], "of b"), ("a", ["n"], "of a"), ("new", ["n"], "")]),
    ],
)
def test_declarations_are_the_original_ones_and_those_of_the_edit(edit: Edit, expected: list[object]) -> None:
    assert declared(edited(chain(), edit).graph) == expected


def test_a_declaration_of_something_that_nothing_makes_stays() -> None:
    model = chain()
    model.graph.value_info.append(helper.make_tensor_value_info("elsewhere", 1, [3]))
    assert "elsewhere" in [one[0] for one in declared(edited(model, inserted).graph)]


def retyped(op: str) -> Edit:
    def edit(graph: gs.Graph) -> gs.Graph:
        made = graph.copy()
        made.nodes[1].op = op
        return made

    return edit


@pytest.mark.parametrize(("op", "doc"), [("Neg", "negates"), ("Sqrt", "")])
def test_a_node_of_a_copy_is_recognized_by_its_name_and_operator(op: str, doc: str) -> None:
    assert edited(chain(), retyped(op)).graph.node[1].doc_string == doc


def constants(*names: str) -> onnx.ModelProto:
    model = text.parse("g (float[2] x) => (float[2] y) { a = Add(x, u) y = Mul(a, v) }")
    for name in names:
        model.graph.initializer.append(numpy_helper.from_array(np.full(2, ord(name), np.float32), name))
    return model


def without_mul(graph: gs.Graph) -> gs.Graph:
    graph.outputs[0] = graph.nodes[0].outputs[0]
    graph.nodes.pop()
    return graph


def with_new_constant(graph: gs.Graph) -> gs.Graph:
    graph.nodes[0].inputs[1] = gs.Constant("new", np.ones(2, np.float32))
    return graph


def renamed(graph: gs.Graph) -> gs.Graph:
    graph.nodes[0].inputs[1].name = "renamed"
    return graph


@pytest.mark.parametrize(
    ("given", "edit", "names"),
    [
        ("uvw", lambda graph: graph, ["u", "v", "w"]),
        ("wvu", lambda graph: graph, ["w", "v", "u"]),  # nothing reads w
        ("vuw", without_mul, ["u", "w"]),
        ("vuw", with_new_constant, ["v", "w", "new"]),
        ("vwu", renamed, ["v", "w", "renamed"]),
    ],
)
def test_constants_stay_in_their_order(given: str, edit: Edit, names: list[str]) -> None:
    assert [tensor.name for tensor in edited(constants(*given), edit).graph.initializer] == names


def sparse_model() -> onnx.ModelProto:
    model = text.parse("g (float[5] x) => (float[5] y) { y = Add(x, s) }")
    values = helper.make_tensor("s", 1, [2], [1.0, 2.0])
    indices = helper.make_tensor("", onnx.TensorProto.INT64, [2], [0, 3])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [5]))
    return model


def test_sparse_constants_are_kept_and_renamed() -> None:
    assert edited(sparse_model(), lambda graph: graph) == storage.from_proto(sparse_model()).proto

    def edit(graph: gs.Graph) -> gs.Graph:
        graph.nodes[0].inputs[1].name = "other"
        return graph

    (found,) = edited(sparse_model(), edit).graph.sparse_initializer
    assert (found.values.name, list(found.dims)) == ("other", [5])


@pytest.mark.parametrize("ir_version", [3, 8])
def test_constants_that_are_inputs(ir_version: int) -> None:
    model = constants("u", "v")
    model.ir_version = ir_version
    for name in "vu":
        model.graph.input.insert(0, helper.make_tensor_value_info(name, 1, [2]))
    assert edited(model, lambda graph: graph) == storage.from_proto(model).proto
    made = edited(model, with_new_constant)
    names = [[value.name for value in values] for values in (made.graph.input, made.graph.initializer)]
    if ir_version == 3:
        assert names == [["v", "x", "new"], ["v", "new"]]
    else:
        assert names == [["u", "v", "x"], ["u", "v", "new"]]


def test_an_overridable_constant_has_the_name_of_its_input() -> None:
    model = constants("u", "v")
    model.graph.input.append(helper.make_tensor_value_info("u", 1, [2]))

    def edit(graph: gs.Graph) -> gs.Graph:
        next(one for one in graph.inputs if one.name == "u").name = "renamed"
        return graph

    made = edited(model, edit).graph
    assert [tensor.name for tensor in made.initializer] == ["renamed", "v"]
    assert [value.name for value in made.input] == ["x", "renamed"] and made.node[0].input[1] == "renamed"

    def drop(graph: gs.Graph) -> gs.Graph:
        graph.nodes[0].op, graph.nodes[0].inputs = "Relu", graph.nodes[0].inputs[:1]
        graph.inputs = graph.inputs[:1]
        return graph

    made = edited(model, drop).graph
    assert [tensor.name for tensor in made.initializer] == ["v"] and [value.name for value in made.input] == ["x"]


SOFTMAX = "g (float[n] x) => (float[n] y) { y = Softmax<axis = 0>(x) }"


@pytest.mark.parametrize(
    ("op", "axis", "docs"),
    [("Softmax", 0, "along"), ("Softmax", 1, "along"), ("LogSoftmax", 0, "along"), ("Relu", None, None)],
)
def test_attributes_keep_their_docs(op: str, axis: int | None, docs: str | None) -> None:
    model = text.parse(SOFTMAX)
    model.graph.node[0].attribute[0].doc_string = "along"
    model.graph.node[0].overload = ""

    def edit(graph: gs.Graph) -> gs.Graph:
        (node,) = graph.nodes
        node.op = op
        node.attrs.pop("axis")
        if axis is not None:
            node.attrs["axis"] = axis
        return graph

    (node,) = edited(model, edit).graph.node
    found = [(one.name, one.i, one.doc_string) for one in node.attribute]
    assert node.op_type == op and found == ([] if axis is None else [("axis", axis, docs)])


def test_the_opsets_of_an_edit_and_of_other_domains() -> None:
    model = text.parse(
        '<ir_version: 8, opset_import: ["": 17, "own": 2]> g (float[n] x) => (float[n] y) { y = Relu(x) }'
    )

    def edit(graph: gs.Graph) -> gs.Graph:
        graph.import_domains = [helper.make_opsetid("", 18), helper.make_opsetid("new", 3)]
        graph.ir_version = 9
        return graph

    for change, opsets, ir_version in (
        (lambda graph: graph, {"": 17, "own": 2}, 8),
        (edit, {"": 18, "own": 2, "new": 3}, 9),
    ):
        made = edited(model, change)
        assert {entry.domain: entry.version for entry in made.opset_import} == opsets
        assert made.ir_version == ir_version


FUNCTION = """<ir_version: 10, opset_import: ["": 18, "own": 1]> g (float[n] x) => (float[n] y) { y = own.f(x) }
    <domain: "own", opset_import: ["": 18]> f (a) => (b) { t = Exp(a) b = Neg(t) }"""


def test_a_function_is_the_original_unless_the_edit_changes_it() -> None:
    model = text.parse(FUNCTION)
    function = model.functions[0]
    function.node[0].doc_string = "grows"
    function.value_info.append(helper.make_tensor_value_info("t", 1, ["n"]))
    assert edited(model, lambda graph: graph).functions[0] == function

    def edit(graph: gs.Graph) -> gs.Graph:
        graph.functions[0].nodes[1].op = "Abs"
        return graph

    (made,) = edited(model, edit).functions
    assert [(node.op_type, node.doc_string) for node in made.node] == [("Exp", "grows"), ("Abs", "")]
    assert [value.name for value in made.value_info] == ["t"]


def test_the_path_of_the_first_difference() -> None:
    one, other = chain(), chain()
    assert graphsurgeon._difference(one, other) == "an unknown field"
    other.graph.node[1].doc_string = "x"
    assert graphsurgeon._difference(one, other) == "graph.node[1].doc_string"
    other = chain()
    other.graph.node.pop()
    assert graphsurgeon._difference(one, other) == "graph.node"
    other = chain()
    other.producer_name = ""
    assert other.HasField("producer_name") and graphsurgeon._difference(one, other) == "producer_name"
