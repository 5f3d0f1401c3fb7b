"""What a tool loses is put back, and what it wrote twice is merged."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from surgery.engine.bridges import tool_restore
from surgery.model import storage
from surgery.model.graph import text


def test_metadata_of_graphs_is_put_back() -> None:
    before = text.parse("""g (float[2] x, bool c) => (float[2] y) { i = Identity(x)
        y = If(c) <then_branch = t () => (float[2] p) { p = Neg(i) },
                   else_branch = e () => (float[2] q) { q = Abs(i) }> }""")
    branches = [attribute.g for attribute in before.graph.node[1].attribute]
    for graph in (before.graph, *branches):
        graph.metadata_props.add(key="from", value=graph.name)
    made = copy.deepcopy(before)
    made.graph.node[1].name = "renamed"
    for graph in (made.graph, *(attribute.g for attribute in made.graph.node[1].attribute)):
        graph.ClearField("metadata_props")
    after = tool_restore.restore(before, made)
    graphs = (after.graph, *(attribute.g for attribute in after.graph.node[1].attribute))
    assert [[entry.value for entry in graph.metadata_props] for graph in graphs] == [["g"], ["t"], ["e"]]


def test_copies_of_a_large_weight_become_one_and_new_tensors_stay(tmp_path: Path) -> None:
    model = text.parse("g (float[N,160] x) => (float[N,160] y) { a = MatMul(x, w) b = Relu(a) y = MatMul(b, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.full((160, 160), 0.25, np.float32), "w"))
    onnx.save(model, tmp_path / "m.onnx")
    before = storage.load(tmp_path / "m.onnx").proto
    made = copy.deepcopy(before)
    weight, other = made.graph.initializer[0], onnx.TensorProto()
    other.CopyFrom(weight)
    other.name = made.graph.node[2].input[1] = "w_1"
    made.graph.initializer.extend([other, numpy_helper.from_array(np.zeros(160, np.float32), "bias")])
    made.graph.node[1].CopyFrom(onnx.helper.make_node("Max", ["a", "bias"], ["b"]))
    after = tool_restore.restore(before, made).graph
    assert [tensor.name for tensor in after.initializer] == ["w", "bias"]
    assert [node.input[1] for node in after.node] == ["w", "bias", "w"]


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("Softmax<axis = -1>(x)", True),
        ("Softmax<axis = 0>(x)", False),
        ("Softmax(x, )", True),
        ("LogSoftmax(x)", False),
        ("Softmax(z)", False),
    ],
)
def test_a_node_that_differs_in_explicit_defaults_is_the_original(written: str, same: bool) -> None:
    before = text.parse("g (float[2,2] x, float[2,2] z) => (float[2,2] y) { y = Softmax(x) }")
    node = before.graph.node[0]
    node.name, node.doc_string = "probabilities", "of the classes"
    made = text.parse(f"g (float[2,2] x, float[2,2] z) => (float[2,2] y) {{ y = {written.replace(', )', ')')} }}")
    if written.endswith(", )"):
        made.graph.node[0].input.append("")
    after = tool_restore.restore(before, made).graph.node[0]
    assert (after == node) is same
    assert (after.name == "probabilities") is (written != "LogSoftmax(x)")


FLOATS = onnx.helper.make_tensor_type_proto(1, ["N", 4])


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        (onnx.TypeProto(), True),
        (onnx.helper.make_tensor_type_proto(1, [2, 4]), True),
        (onnx.helper.make_tensor_type_proto(1, None), True),
        (onnx.helper.make_tensor_type_proto(1, [2, 5]), False),
        (onnx.helper.make_tensor_type_proto(1, [4]), False),
        (onnx.helper.make_tensor_type_proto(10, ["N", 4]), False),
        (onnx.helper.make_sequence_type_proto(FLOATS), False),
    ],
)
def test_an_output_keeps_its_type_unless_the_tool_contradicts_it(made: onnx.TypeProto, kept: bool) -> None:
    before = text.parse("g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }")
    changed = copy.deepcopy(before)
    changed.graph.output[0].type.CopyFrom(made)
    after = tool_restore.restore(before, changed)
    assert after.graph.output[0].type == (FLOATS if kept else made)
    # Where the original has no type, or a sequence, only the same may describe it.
    before.graph.output[0].type.Clear()
    assert tool_restore.restore(before, changed).graph.output[0].type == made
    before.graph.output[0].type.CopyFrom(onnx.helper.make_sequence_type_proto(FLOATS))
    result = tool_restore.restore(before, changed).graph.output[0].type
    assert (result == before.graph.output[0].type) is (made.WhichOneof("value") in (None, "sequence_type"))


def test_declarations_of_values_stay_as_long_as_nodes_do() -> None:
    before = text.parse("g (float[N,4] x) => (float[N,4] y) { a = Relu(x) b = Neg(a) y = Exp(b) }")
    for name in "ab":
        before.graph.value_info.append(onnx.helper.make_tensor_value_info(name, 1, ["N", 4]))
    made = copy.deepcopy(before)
    made.graph.node[1].input[0] = "x"  # the tool declares nothing
    del made.graph.value_info[:]
    after = tool_restore.restore(before, made)
    assert [entry.name for entry in after.graph.value_info] == ["a"]
    made.graph.value_info.append(onnx.helper.make_tensor_value_info("b", 1, ["N", 4]))
    made.graph.value_info.append(onnx.helper.make_tensor_value_info("a", 1, ["N", 5]))
    after = tool_restore.restore(before, made)
    assert [entry.name for entry in after.graph.value_info] == ["b"]
