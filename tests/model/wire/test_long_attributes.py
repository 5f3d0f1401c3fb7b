"""Attributes with long lists stay as they are stored: in a round trip, in copies, and in a run of a recipe."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import surgery
from surgery.engine import recipe
from surgery.model import storage
from surgery.model.wire.long_attributes import LONG, LongAttr, named

NAN = np.frombuffer(np.uint32(0x7FC01234).tobytes(), np.float32)[0]
LISTS = {
    "ints": [-1, 2**62] * LONG,
    "floats": [0.5, -0.0, float("inf")] * LONG,
    "strings": ["LEAF", "é"] * LONG,
}


def _model(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    ports = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in names]
        for names in (["x"], [node.output[0] for node in nodes])
    ]
    graph = helper.make_graph(list(nodes), "g", *ports)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _returned(model: onnx.ModelProto) -> onnx.ModelProto:
    stored = storage.from_proto(model)
    return storage.proto_from_ir(storage.ir_from_proto(stored.proto, stored.weights), stored.weights)


def test_long_lists_are_not_tuples_and_are_restored() -> None:
    node = helper.make_node("Op", ["x"], ["y"], domain="own", few=[1, 2], **LISTS)
    node.attribute[1].doc_string = "kept"
    model = _model(node)
    stored = storage.from_proto(model)
    attributes = storage.ir_from_proto(stored.proto, stored.weights).graph.node(0).attributes
    assert not isinstance(attributes["few"], LongAttr)
    for name, expected in LISTS.items():
        assert isinstance(attributes[name], LongAttr)
        assert attributes[name].value == tuple(expected)
        assert type(attributes[name].value) is tuple
    assert _returned(model).SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


def test_the_bits_of_a_nan_and_text_that_is_not_utf8_are_kept() -> None:
    node = helper.make_node("Op", ["x"], ["y"], domain="own")
    node.attribute.add(name="floats", type=onnx.AttributeProto.FLOATS).floats.extend([NAN] * LONG)
    node.attribute.add(name="strings", type=onnx.AttributeProto.STRINGS).strings.extend([b"\xff"] * LONG)
    node.attribute.add(name="untyped").ints.extend([3] * LONG)
    restored = _returned(_model(node)).graph.node[0].attribute
    assert [item.SerializeToString() for item in restored] == [item.SerializeToString() for item in node.attribute]


def test_a_renamed_attribute_has_the_same_list() -> None:
    model = _model(helper.make_node("Op", ["x"], ["y"], domain="own", **LISTS))
    stored = storage.from_proto(model)
    attribute = storage.ir_from_proto(stored.proto, stored.weights).graph.node(0).attributes["ints"]
    other = named("other", attribute)
    assert isinstance(other, LongAttr)
    assert (other.name, other.value) == ("other", tuple(LISTS["ints"]))


def _labels(output: str, last: int) -> onnx.NodeProto:
    keys = list(range(LONG))
    return helper.make_node(
        "LabelEncoder",
        ["x"],
        [output],
        domain="ai.onnx.ml",
        keys_floats=list(map(float, keys)),
        values_floats=[*map(float, keys[:-1]), float(last)],
    )


@pytest.mark.parametrize(("last", "nodes"), [(LONG - 1, 3), (7, 4)])
def test_equal_long_lists_are_computed_once_and_different_ones_twice(last: int, nodes: int) -> None:
    outputs = [helper.make_node("Neg", [name], [f"{name}_out"]) for name in ("a", "b")]
    model = _model(_labels("a", LONG - 1), _labels("b", last), *outputs)
    del model.graph.output[:2]
    result = surgery.apply(model, recipe.parse("steps: [common-subexpressions]"))
    assert len(result.proto.graph.node) == nodes
