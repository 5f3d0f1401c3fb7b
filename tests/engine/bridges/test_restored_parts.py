"""Which parts of a model a tool may lose, and which of its changes stay: names, ports, constants, functions, opsets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from surgery.engine.bridges import tool_restore
from surgery.model.graph import text


def parsed(body: str, ports: str = "(float[2] x) => (float[2] y)", head: str = "") -> onnx.ModelProto:
    return text.parse(f"{head} g {ports} {{ {body} }}")


def written(model: onnx.ModelProto) -> str:
    return " ".join(f"{','.join(node.output)}={node.op_type}({','.join(node.input)})" for node in model.graph.node)


@pytest.mark.parametrize(
    ("before", "made", "after"),
    [
        ("[n] a = Relu(x) y = Neg(a)", "[n] b = Relu(x) y = Neg(b)", "a=Relu(x) y=Neg(a)"),
        ("[n] a = Relu(x) y = Neg(a)", "[m] b = Relu(x) y = Neg(b)", "b=Relu(x) y=Neg(b)"),
        ("[n] a = Relu(x) y = Neg(a)", "[n] b = Abs(x) y = Neg(b)", "b=Abs(x) y=Neg(b)"),
        # The new name was in use, or the old one still is.
        ("[n] a = Relu(x) b = Abs(a) y = Neg(b)", "[n] b = Relu(x) y = Neg(b)", "b=Relu(x) y=Neg(b)"),
        ("[n] a = Relu(x) y = Neg(a)", "[n] b = Relu(x) a = Abs(b) y = Neg(a)", "b=Relu(x) a=Abs(b) y=Neg(a)"),
        # An output of the model has the name of the tool.
        ("[n] a = Relu(x) y = Neg(a)", "[n] y = Relu(x)", "y=Relu(x)"),
        # Two nodes have one name.
        ("[n] a = Relu(x) [n] y = Neg(a)", "[n] b = Relu(x) y = Neg(b)", "b=Relu(x) y=Neg(b)"),
        ("[n] a = Relu(x) y = Neg(a)", "[n] b = Relu(x) [n] y = Neg(b)", "b=Relu(x) y=Neg(b)"),
        # The order of the tool stays only if it changed a node.
        ("a = Relu(x) b = Neg(x) y = Add(a, b)", "b = Neg(x) a = Relu(x) y = Add(a, b)",
         "a=Relu(x) b=Neg(x) y=Add(a,b)"),
        ("a = Relu(x) b = Neg(x) y = Add(a, b)", "b = Abs(x) a = Relu(x) y = Add(a, b)",
         "b=Abs(x) a=Relu(x) y=Add(a,b)"),
    ],
)  # fmt: skip
def test_names_of_values_are_put_back(before: str, made: str, after: str) -> None:
    assert written(tool_restore.restore(parsed(before), parsed(made))) == after


def test_values_are_renamed_where_subgraphs_read_and_declare_them() -> None:
    body = """[n] A = Relu(x) y = If(c) <then_branch = t () => (float[2] p) { p = Neg(A) },
                                          else_branch = e () => (float[2] q) { q = Abs(A) }>"""
    ports = "(float[2] x, bool c) => (float[2] y)"
    made = parsed(body.replace("A", "b"), ports)
    made.graph.value_info.append(helper.make_tensor_value_info("b", 1, [2]))
    after = tool_restore.restore(parsed(body.replace("A", "a"), ports), made)
    branches = [attribute.g for attribute in after.graph.node[1].attribute]
    assert [branch.node[0].input[0] for branch in branches] == ["a", "a"]
    assert "b" not in str(after.graph.value_info)


def ports_of(model: onnx.ModelProto) -> tuple[list[str], list[str]]:
    return [value.name for value in model.graph.input], [value.name for value in model.graph.output]


@pytest.mark.parametrize(
    ("before", "made", "inputs", "outputs"),
    [
        ("(float[2] x, float[2] u) => (float[2] y)", "(float[2] x) => (float[2] y)", ["x", "u"], ["y"]),
        ("(float[2] u, float[2] x) => (float[2] y)", "(float[2] x, float[2] u) => (float[2] y)", ["u", "x"], ["y"]),
        ("(float[2] x) => (float[2] y)", "(float[2] w, float[2] x) => (float[2] y)", ["x", "w"], ["y"]),
        ("(float[2] x) => (float[2] y, float[2] a)", "(float[2] x) => (float[2] y)", ["x"], ["y"]),
        ("(float[2] x) => (float[2] a, float[2] y)", "(float[2] x) => (float[2] y, float[2] a)", ["x"], ["a", "y"]),
        ("(float[2] x) => (float[2] y)", "(float[2] x) => (float[2] a, float[2] y)", ["x"], ["y", "a"]),
    ],
)
def test_inputs_and_outputs_are_put_back(before: str, made: str, inputs: list[str], outputs: list[str]) -> None:
    body = "a = Relu(x) y = Neg(a)"
    assert ports_of(tool_restore.restore(parsed(body, before), parsed(body, made))) == (inputs, outputs)


def constant(name: str, *items: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(items, np.float32), name)


def with_constants(body: str, tensors: Sequence[onnx.TensorProto], ir_version: int = 10) -> onnx.ModelProto:
    model = parsed(body)
    model.ir_version = ir_version
    model.graph.initializer.extend(tensors)
    return model


@pytest.mark.parametrize(
    ("before", "made", "after"),
    [
        ("uv", "vu", "uv"),
        ("uv", "wvu", "uvw"),
        ("uvw", "uv", "uv"),
        ("uv", "u", "uv"),  # a node still reads v
        ("vu", "u", "vu"),
    ],
)
def test_the_order_of_constants_is_put_back(before: str, made: str, after: str) -> None:
    body = "a = Add(x, u) y = Add(a, v)"
    old, new = (with_constants(body, [constant(name, 1, 2) for name in names]) for names in (before, made))
    found = tool_restore.restore(old, new)
    assert "".join(tensor.name for tensor in found.graph.initializer) == after


def test_a_constant_keeps_its_encoding_unless_its_elements_change() -> None:
    typed = helper.make_tensor("u", 1, [2], [1.0, 2.0])
    assert typed.float_data and not constant("u", 1, 2).float_data
    same = tool_restore.restore(
        with_constants("y = Add(x, u)", [typed]), with_constants("y = Add(x, u)", [constant("u", 1, 2)])
    )
    assert same.graph.initializer[0] == typed
    other = tool_restore.restore(
        with_constants("y = Add(x, u)", [typed]), with_constants("y = Add(x, u)", [constant("u", 1, 3)])
    )
    assert other.graph.initializer[0] == constant("u", 1, 3)


@pytest.mark.parametrize(("ir_version", "listed"), [(3, ["x", "u"]), (4, ["x"])])
def test_a_new_constant_is_an_input_where_the_ir_version_requires_it(ir_version: int, listed: list[str]) -> None:
    before = with_constants("y = Relu(x)", [], ir_version)
    made = with_constants("y = Add(x, u)", [constant("u", 1, 2)], ir_version)
    found = tool_restore.restore(before, made)
    assert ports_of(found)[0] == listed
    if ir_version == 3:
        assert found.graph.input[1] == helper.make_tensor_value_info("u", 1, [2])


@pytest.mark.parametrize(("ir_version", "inputs"), [(3, ["x"]), (4, ["x", "u"])])
def test_a_constant_that_is_gone_is_no_input_of_an_old_model(ir_version: int, inputs: list[str]) -> None:
    before = with_constants("y = Add(x, u)", [constant("u", 1, 2)], ir_version)
    before.graph.input.append(helper.make_tensor_value_info("u", 1, [2]))
    made = with_constants("y = Relu(x)", [], ir_version)
    assert ports_of(tool_restore.restore(before, made))[0] == inputs


def test_sparse_constants_and_quantization_parameters_stay_where_they_are_needed() -> None:
    before = parsed("a = Add(x, s) y = Mul(a, t)")
    for name in "st":
        values, indices = constant(name, 1.0), helper.make_tensor("", 7, [1], [0])
        before.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2]))
        before.graph.quantization_annotation.append(onnx.TensorAnnotation(tensor_name=name))
    found = tool_restore.restore(before, parsed("a = Add(x, s) y = Relu(a)"))
    assert [one.values.name for one in found.graph.sparse_initializer] == ["s"]
    assert [one.tensor_name for one in found.graph.quantization_annotation] == ["s"]


def test_the_name_and_the_doc_of_a_graph_are_those_of_the_original() -> None:
    before, made = parsed("y = Relu(x)"), parsed("y = Neg(x)")
    made.graph.name, made.graph.doc_string = "of the tool", "by the tool"
    found = tool_restore.restore(before, made)
    assert (found.graph.name, found.graph.HasField("doc_string")) == ("g", False)
    before.graph.doc_string = "original"
    assert tool_restore.restore(before, made).graph.doc_string == "original"


@pytest.mark.parametrize(("given", "kept"), [("", "of the original"), ("of the tool", "of the tool")])
def test_a_changed_node_has_the_notes_of_the_original_unless_the_tool_wrote_some(given: str, kept: str) -> None:
    before, made = parsed("a = Relu(x) y = Neg(a)"), parsed("a = Relu(x) y = Neg(x)")
    node, other = before.graph.node[1], made.graph.node[1]
    node.doc_string, node.name = "of the original", "of the original"
    node.metadata_props.add(key="k", value="of the original")
    if given:
        other.doc_string = other.name = given
        other.metadata_props.add(key="k", value=given)
    found = tool_restore.restore(before, made).graph.node[1]
    assert (found.name, found.doc_string, [one.value for one in found.metadata_props]) == (kept, kept, [kept])
    assert list(found.input) == ["x"]


FUNCTIONS = """<domain: "own", opset_import: ["": 20]> f (v) => (w) { w = Cos(v) }
               <domain: "own", opset_import: ["": 20]> h (v) => (w) { w = Sin(v) }"""


def with_functions(body: str, functions: str = "", own: str = ', "own": 1') -> onnx.ModelProto:
    return text.parse(
        f'<ir_version: 10, opset_import: ["": 20{own}]> g (float[2] x) => (float[2] y) {{ {body} }} {functions}'
    )


@pytest.mark.parametrize(
    ("before", "made", "kept"),
    [
        ("a = own.f(x) y = own.h(a)", "a = own.f(x) y = own.h(a)", ["f", "h"]),
        ("a = own.f(x) y = own.h(a)", "a = own.f(x) y = Sin(a)", ["f"]),
        # One that was never called stays.
        ("y = own.f(x)", "y = own.f(x)", ["f", "h"]),
        ("y = own.f(x)", "y = Cos(x)", ["h"]),
    ],
)
def test_functions_stay_if_they_are_called_or_never_were(before: str, made: str, kept: list[str]) -> None:
    found = tool_restore.restore(with_functions(before, FUNCTIONS), with_functions(made))
    assert [function.name for function in found.functions] == kept


def test_functions_of_the_tool_come_last_and_changed_ones_are_its_own() -> None:
    changed = FUNCTIONS.replace("Cos", "Tan").replace(" h (v)", " k (v)")
    body = "a = own.f(x) y = own.h(a)"
    found = tool_restore.restore(with_functions(body, FUNCTIONS), with_functions(f"{body} z = own.k(y)", changed))
    assert [(one.name, one.node[0].op_type) for one in found.functions] == [("f", "Tan"), ("h", "Sin"), ("k", "Sin")]


def versions(model: onnx.ModelProto) -> dict[str, int]:
    return {entry.domain: entry.version for entry in model.opset_import}


def test_opsets_are_those_of_the_tool_for_the_domains_that_were_there_or_are_used() -> None:
    before = text.parse(
        '<ir_version: 8, opset_import: ["": 17, "own": 2, "idle": 3]> g (float[2] x) => (float[2] y) { y = own.f(x) }'
    )
    made = text.parse(
        '<ir_version: 11, opset_import: ["": 17, "own": 4, "new": 5, "extra": 6]> '
        "g (float[2] x) => (float[2] y) { y = new.f(x) }"
    )
    found = tool_restore.restore(before, made)
    assert versions(found) == {"": 17, "own": 4, "idle": 3, "new": 5} and found.ir_version == 8
    made.opset_import[0].version = 21
    found = tool_restore.restore(before, made)
    assert versions(found)[""] == 21 and found.ir_version == 10
    del made.opset_import[2]
    assert versions(tool_restore.restore(before, made))["new"] == 1
    made.opset_import[0].domain = "ai.onnx"
    assert versions(tool_restore.restore(before, made))[""] == 21


BRANCHES = """y = If(c) <then_branch = t () => (float[K] p) <float[2] w = {1, 2}, float[2] v = {3, 4}>
                                  { s = Add(x, w) p = Add(s, v) },
                   else_branch = e () => (float[K] q) { q = Abs(x) }>"""


def test_constants_and_types_of_subgraphs_are_put_back() -> None:
    ports = "(float[2] x, bool c) => (float[2] y)"
    before, made = (parsed(BRANCHES.replace("K", size), ports) for size in ("N", "2"))
    branch = made.graph.node[0].attribute[0].g
    first, second = branch.initializer
    branch.initializer.remove(first)
    branch.initializer.append(helper.make_tensor(first.name, 1, [2], [1.0, 2.0]))
    made.graph.node[0].name = "of the tool"
    found = tool_restore.restore(before, made).graph.node[0]
    assert found.name == "of the tool"
    then, other = (attribute.g for attribute in found.attribute)
    assert then == before.graph.node[0].attribute[0].g and other == before.graph.node[0].attribute[1].g
    branch.output[0].name = branch.node[1].output[0] = "renamed"
    then = tool_restore.restore(before, made).graph.node[0].attribute[0].g
    assert then.output[0] == branch.output[0] and second.name in {one.name for one in then.initializer}


def test_lists_of_subgraphs_are_put_back_if_there_are_as_many() -> None:
    graphs = [parsed(f"{name} = Relu(x)", f"() => (float[2] {name})").graph for name in ("p", "q")]
    before, made = (
        parsed("[own] y = own.Switch(x)", head='<ir_version: 10, opset_import: ["": 20, "own": 1]>') for _ in "ab"
    )
    for graph in graphs:
        graph.doc_string = "of the original"
    before.graph.node[0].attribute.append(helper.make_attribute("bodies", graphs))
    for graph in graphs:
        graph.ClearField("doc_string")
    for count, kept in ((2, ["of the original"] * 2), (1, [""])):
        del made.graph.node[0].attribute[:]
        made.graph.node[0].attribute.append(helper.make_attribute("bodies", graphs[:count]))
        found = tool_restore.restore(before, made).graph.node[0].attribute[0].graphs
        assert [graph.doc_string for graph in found] == kept


@pytest.mark.parametrize(("name", "kept"), [("", True), ("n", True), ("m", False)])
def test_a_node_that_the_tool_renamed_is_its_own(name: str, kept: bool) -> None:
    before, made = parsed("[n] y = Softmax(x)"), parsed("y = Softmax<axis = -1>(x)")
    made.graph.node[0].name = name
    found = tool_restore.restore(before, made).graph.node[0]
    assert (found.name, len(found.attribute)) == (("n", 0) if kept else ("m", 1))


def test_an_attribute_is_the_same_in_another_encoding_and_without_its_doc() -> None:
    raw, typed = constant("value", 1, 2), helper.make_tensor("other", 1, [2], [1.0, 2.0])
    before, made = parsed("a = Constant() y = Add(x, a)"), parsed("a = Constant() y = Add(x, a)")
    for model, tensor in ((before, raw), (made, typed)):
        model.graph.node[0].attribute.append(helper.make_attribute("value", tensor))
        model.graph.node[1].attribute.append(helper.make_attribute("values", [tensor, tensor]))
    before.graph.node[0].attribute[0].doc_string = "of the original"
    assert tool_restore.restore(before, made).graph.node == before.graph.node
    made.graph.node[0].attribute[0].t.float_data[1] = 3
    made.graph.node[1].attribute[0].tensors[1].float_data[1] = 3
    assert tool_restore.restore(before, made).graph.node == made.graph.node


def declared(model: onnx.ModelProto) -> dict[str, list[str | int]]:
    infos = {one.name: one.type.tensor_type.shape.dim for one in model.graph.value_info}
    return {name: [dim.dim_param or dim.dim_value for dim in dims] for name, dims in infos.items()}


@pytest.mark.parametrize(
    ("made", "of_tool", "kept"),
    [
        ("a = Relu(x) y = Neg(a)", None, {"a": ["N"]}),
        ("a = Relu(x) y = Abs(a)", None, {"a": ["N"]}),
        ("a = Relu(x) y = Abs(a)", 2, {"a": ["N"]}),
        ("a = Abs(x) y = Neg(a)", None, {}),
        ("a = Abs(x) y = Neg(a)", 2, {"a": [2]}),
        ("a = LeakyRelu(x) y = Neg(a)", 2, {"a": [2]}),
        ("y = Neg(x)", None, {}),
        ("y = Neg(x)", 2, {}),
    ],
)
def test_declarations_are_those_of_the_original_or_of_changed_nodes(
    made: str, of_tool: int | None, kept: dict[str, list[str | int]]
) -> None:
    before, after = parsed("a = Relu(x) y = Neg(a)"), parsed(made)
    before.graph.value_info.append(helper.make_tensor_value_info("a", 1, ["N"]))
    if of_tool is not None:
        after.graph.value_info.append(helper.make_tensor_value_info("a", 1, [of_tool]))
    assert declared(tool_restore.restore(before, after)) == kept


@pytest.mark.parametrize(("items", "kept"), [([1, 2], {"u": [2]}), ([1], {})])
def test_the_declaration_of_a_constant_stays_with_its_shape(items: list[float], kept: dict[str, list[int]]) -> None:
    before = with_constants("y = Add(x, u)", [constant("u", 1, 2)])
    before.graph.value_info.append(helper.make_tensor_value_info("u", 1, [2]))
    made = with_constants("y = Add(x, u)", [constant("u", *items)])
    assert declared(tool_restore.restore(before, made)) == kept


def test_trailing_empty_names_are_no_difference() -> None:
    before, made = parsed("[n] y = Clip(x)"), parsed("y = Clip(x)")
    made.graph.node[0].input.extend(["", ""])
    assert tool_restore.restore(before, made).graph.node[0] == before.graph.node[0]
    made.graph.node[0].input.append("u")
    assert list(tool_restore.restore(before, made).graph.node[0].input) == ["x", "", "", "u"]


def test_a_function_that_the_tool_left_alone_is_the_original() -> None:
    body = "a = own.f(x) y = own.h(a)"
    before, made = with_functions(body, FUNCTIONS), with_functions(body, FUNCTIONS)
    for function in before.functions:
        function.doc_string = function.node[0].doc_string = "of the original"
        function.opset_import[0].version = 19
    assert tool_restore.restore(before, made).functions == before.functions
    made.functions[0].input[0] = made.functions[0].node[0].input[0] = "renamed"
    made.functions[1].node[0].op_type = "Tan"
    first, second = tool_restore.restore(before, made).functions
    assert (list(first.input), first.doc_string, first.node[0].doc_string) == (["renamed"], *["of the original"] * 2)
    assert (second.node[0].op_type, second.doc_string, second.node[0].doc_string) == ("Tan", "of the original", "")
    assert [one.opset_import[0].version for one in (first, second)] == [20, 20]


def external(name: str, start: int) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, data_type=1, dims=[2], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", "w"), ("offset", str(start)), ("length", "8")):
        tensor.external_data.add(key=key, value=value)
    return tensor


@pytest.mark.parametrize(
    ("copy", "first", "kept"),
    [
        (external("v", 0), external("u", 0), ["u"]),
        (external("v", 8), external("u", 0), ["u", "v"]),
        (external("y", 0), external("u", 0), ["u", "y"]),
        (constant("v", 1, 2), constant("u", 1, 2), ["u", "v"]),
    ],
)
def test_only_copies_of_large_weights_are_merged(
    copy: onnx.TensorProto, first: onnx.TensorProto, kept: list[str]
) -> None:
    before, made = with_constants("y = Add(x, u)", [first]), with_constants(f"y = Add(x, {copy.name})", [first, copy])
    found = tool_restore.restore(before, made).graph
    assert [tensor.name for tensor in found.initializer] == kept
    assert found.node[0].input[1] == ("u" if kept == ["u"] else copy.name)


def test_a_large_weight_with_another_name_stays_if_the_first_is_gone() -> None:
    before, made = (
        with_constants("y = Add(x, u)", [external("u", 0)]),
        with_constants("y = Add(x, v)", [external("v", 0)]),
    )
    assert [tensor.name for tensor in tool_restore.restore(before, made).graph.initializer] == ["v"]
