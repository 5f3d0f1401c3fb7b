"""The parts of a model, each with a digest: also those that few models have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from surgery.engine.provenance.model_digests import identity_of
from surgery.model import storage
from surgery.model.wire.digests import STATEMENT_KEY


def sparse(name: str) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.float32([1, 2]), name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.int64([0, 3]), ""), [5])


def tensor(name: str, value: float = 1.0) -> onnx.TensorProto:
    return numpy_helper.from_array(np.float32([value]), name)


def sample() -> onnx.ModelProto:
    """Return a model with a part of each kind."""
    body = helper.make_graph(
        [helper.make_node("Neg", ["w"], ["n"])], "body", [], [helper.make_empty_tensor_value_info("n")]
    )
    nodes = [
        helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body),
        helper.make_node("Own", ["x"], ["", "z"], domain="d", name="own"),
        helper.make_node("Own", ["x"], [], domain="d"),
    ]
    nodes[1].attribute.append(helper.make_attribute("sparse", sparse("")))
    nodes[1].attribute.append(helper.make_attribute("lists", [tensor("one"), tensor("two")]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 9, [])],
        [helper.make_empty_tensor_value_info("y")],
        [tensor("w"), tensor("a")],
        "a graph",
        [helper.make_tensor_value_info("z", 1, [2])],
        sparse_initializer=[sparse("s")],
    )
    graph.metadata_props.add(key="from", value="here")
    function = helper.make_function(
        "d", "Own", ["i"], ["o"], [helper.make_node("Relu", ["i"], ["o"])], [helper.make_opsetid("", 21)]
    )
    function.attribute_proto.append(helper.make_attribute("alpha", 0.5))
    model = helper.make_model(graph, functions=[function], ir_version=10, producer_name="test")
    training = model.training_info.add()
    training.initialization.CopyFrom(helper.make_graph([helper.make_node("Abs", ["w"], ["v"])], "first", [], []))
    training.algorithm.CopyFrom(helper.make_graph([helper.make_node("Exp", ["w"], ["u"])], "later", [], []))
    training.update_binding.add(key="w", value="u")
    model.metadata_props.add(key=STATEMENT_KEY, value="{}")
    model.metadata_props.add(key="other", value="1")
    return model


def parts(model: onnx.ModelProto) -> dict[str, list[str]]:
    stored = storage.from_proto(model)
    with stored.weights:
        found = identity_of(stored).parts
    digests: dict[str, list[str]] = {}
    for part in found:
        digests.setdefault(part.place, []).append(part.digest)
    return digests


CHANGES: dict[str, tuple[Callable[[onnx.ModelProto], object], set[str]]] = {
    "the statement": (lambda m: m.metadata_props.__delitem__(0), set()),
    "other metadata": (lambda m: m.metadata_props.add(key="k"), {"metadata_props"}),
    "metadata of the graph": (lambda m: m.graph.metadata_props.add(key="k"), {"graph metadata_props"}),
    "the order of initializers": (lambda m: m.graph.initializer.reverse(), set()),
    "an element": (lambda m: m.graph.initializer[0].CopyFrom(tensor("w", 2.0)), {"initializer 'w'"}),
    "a note on a tensor": (lambda m: m.graph.initializer[0].metadata_props.add(key="k"), {"initializer 'w'"}),
    "a segment of a tensor": (lambda m: setattr(m.graph.initializer[0].segment, "end", 1), {"initializer 'w'"}),
    "the dims of a sparse one": (lambda m: m.graph.sparse_initializer[0].dims.append(1), {"initializer 's', dims"}),
    "an index of a sparse one": (
        lambda m: m.graph.sparse_initializer[0].indices.CopyFrom(numpy_helper.from_array(np.int64([0, 4]), "")),
        {"initializer 's', indices"},
    ),
    "a value of a sparse attribute": (
        lambda m: m.graph.node[1].attribute[0].sparse_tensor.values.CopyFrom(tensor("", 3.0)),
        {"Own 'own', attribute 'sparse', values"},
    ),
    "a node of a branch": (
        lambda m: setattr(m.graph.node[0].attribute[0].g.node[0], "op_type", "Abs"),
        {"If 'y', attribute 'else_branch', Neg 'n'", "If 'y', attribute 'else_branch', Abs 'n'"},
    ),
    "a declaration": (lambda m: setattr(m.graph.value_info[0], "doc_string", "z"), {"declaration of 'z'"}),
    "a function": (lambda m: m.functions[0].input.append("j"), {"function 'd::Own'"}),
    "a node of a function": (lambda m: m.functions[0].node[0].input.append("j"), {"function 'd::Own', Relu 'o'"}),
    "a default of a function": (
        lambda m: setattr(m.functions[0].attribute_proto[0], "f", 0.25),
        {"function 'd::Own', attribute 'alpha'"},
    ),
    "a binding": (lambda m: setattr(m.training_info[0].update_binding[0], "value", "v"), {"training 0, bindings"}),
    "the first values": (
        lambda m: m.training_info[0].initialization.node[0].input.append("x"),
        {"training 0, initialization, Abs 'v'"},
    ),
    "the algorithm": (
        lambda m: m.training_info[0].algorithm.node[0].input.append("x"),
        {"training 0, algorithm, Exp 'u'"},
    ),
    "a node without outputs": (lambda m: m.graph.node[2].input.append("x"), {"Own 'number 2'"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_shows_in_its_part_alone(what: str) -> None:
    change, places = CHANGES[what]
    before, changed = parts(sample()), sample()
    change(changed)
    after = parts(changed)
    assert {place for place in before.keys() | after.keys() if before.get(place) != after.get(place)} == places


def test_fields_that_onnx_does_not_know_are_a_part() -> None:
    unknown = b"\xfa\x3f\x03abc"  # the field 1023
    model = onnx.ModelProto.FromString(sample().SerializeToString() + unknown)
    added = parts(model).keys() - parts(sample()).keys()
    assert added == {"fields of a newer version of ONNX"}
