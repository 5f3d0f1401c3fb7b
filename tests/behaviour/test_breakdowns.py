"""Models that once ended a command: each is read, changed and verified as others are."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import surgery
from surgery.base.operators.dtypes import spread
from surgery.engine.recipe.loader import parse
from surgery.features.inspection.activations import activations
from surgery.features.inspection.costs import costs
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.proto.draws import draws
from surgery.model.shapes.symbols import combine, normal, shown

FLOATS = TensorProto.FLOAT
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]


def info(name: str, kind: int = FLOATS, shape: tuple[int | str, ...] = (2,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    initializers: tuple[onnx.TensorProto, ...] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=9)


def classifier(labels: dict[str, list[int] | list[str]], weight: float = 0.5) -> onnx.ModelProto:
    """Build what exporters make of a classifier: a sequence of maps from class to probability."""
    key = TensorProto.STRING if "classlabels_strings" in labels else TensorProto.INT64
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(key, helper.make_tensor_type_proto(FLOATS, [])))
    scores = helper.make_node(
        "LinearRegressor",
        ["x"],
        ["scores"],
        domain="ai.onnx.ml",
        targets=3,
        coefficients=[0.1, 0.2, 0.3, 0.4, weight, -0.6],
        intercepts=[0.1, 0.2, 0.3],
    )
    nodes = [
        scores,
        helper.make_node("Softmax", ["scores"], ["p"]),
        helper.make_node("Identity", ["p"], ["q"]),
        helper.make_node("ZipMap", ["q"], ["probabilities"], domain="ai.onnx.ml", **labels),
    ]
    return model(nodes, [info("x", shape=("N", 2))], [helper.make_value_info("probabilities", maps)])


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [0, 1, 2]}, {"classlabels_strings": ["a", "b", "c"]}])
def test_maps_are_compared(labels: dict[str, list[int] | list[str]]) -> None:
    result = surgery.apply(classifier(labels), "tidy")
    assert result.ok and result.steps[0].verdict is not None
    assert result.steps[0].status == "committed" and result.steps[0].verdict.status == "equal"


def test_a_map_with_other_values_or_other_keys_is_different() -> None:
    original = classifier({"classlabels_int64s": [0, 1, 2]})
    values = surgery.verify(original, classifier({"classlabels_int64s": [0, 1, 2]}, weight=0.75))
    keys = surgery.verify(original, classifier({"classlabels_int64s": [0, 1, 3]}))
    assert values.verdict.status == keys.verdict.status == "different"
    assert "probabilities" in values.verdict.message


def sparse(name: str) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([1.0, 2.0], np.float32), name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1, 3], np.int64), "i"), [4])


@pytest.mark.parametrize("attribute", ["sparse_value", "value"])
def test_a_sparse_constant_is_left_unchanged(attribute: str) -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], **{attribute: sparse("c")}),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.ones(4, np.float32))),
        helper.make_node("Neg", ["k"], ["n"]),
        helper.make_node("Add", ["x", "n"], ["a"]),
        helper.make_node("Identity", ["a"], ["b"]),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    proto = model(nodes, [info("x", shape=(4,))], [info("y", shape=(4,))])
    steps = "[fold-constants, common-subexpressions, merge-constants, dedupe-initializers, infer-shapes]"
    result = surgery.apply(proto, parse(f"recipe: r\nverify: {{unverified: accept}}\nsteps: {steps}"))
    assert result.failure is None
    assert sum(node.op_type == "Constant" for node in result.proto.graph.node) == 1
    assert surgery.inspect(proto).nodes == 6


def test_a_sparse_constant_is_not_a_graph_output() -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], sparse_value=sparse("c")),
        helper.make_node("Identity", ["c"], ["y"]),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Identity", ["r"], ["z"]),
    ]
    proto = model(nodes, [info("x", shape=(4,))], [info("y", shape=(4,)), info("z", shape=(4,))])
    result = surgery.apply(proto, parse("recipe: r\nsteps: [drop-identity]"))
    assert result.ok and [node.op_type for node in result.proto.graph.node] == ["Constant", "Identity", "Relu"]
    why = "the graph output is a tensor, but a runtime returns a sparse constant as it is stored"
    assert [refusal.reason for refusal in result.steps[0].refusals] == [why]


def test_a_sparse_output_cannot_be_compared() -> None:
    cpu = onnxruntime.OrtDevice.make("cpu", 0)
    values, places = np.array([1.0, 2.0], np.float32), np.array([1, 3], np.int64)
    output = onnxruntime.SparseTensor.sparse_coo_from_numpy(np.array([4], np.int64), values, places, cpu)
    with pytest.raises(TypeError, match="an output is a sparse tensor, which cannot be compared"):
        spread(output)


def test_steps_at_a_sparse_initializer_are_verified() -> None:
    nodes = [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["x", "d"], ["y"])]
    proto = model(nodes, [info("x", shape=(4,))], [info("y", shape=(4,))])
    proto.graph.sparse_initializer.append(sparse("c"))
    result = surgery.apply(proto, "tidy")
    assert result.ok and result.failure is None
    assert [step.status for step in result.steps[:2]] == ["committed", "unchanged"]
    assert [node.op_type for node in result.proto.graph.node] == ["Add"]
    assert [tensor.values.name for tensor in result.proto.graph.sparse_initializer] == ["c"]
    assert result.end is not None and result.end.status == "equal"


def test_an_if_without_a_branch_is_kept() -> None:
    branch = helper.make_graph([helper.make_node("Neg", ["x"], ["p"])], "t", [], [info("p")])
    condition = numpy_helper.from_array(np.array(True), "c")
    proto = model([helper.make_node("If", ["c"], ["y"], then_branch=branch)], [info("x")], [info("y")], (condition,))
    result = surgery.apply(proto, parse("recipe: r\nverify: {unverified: accept}\nsteps: [inline-if]"))
    assert result.ok and [step.status for step in result.steps] == ["unchanged"]


def test_the_doc_string_of_an_output_is_kept() -> None:
    proto = text.parse("g (float[2] x) => (float[2] y) { r = Relu(x) y = Identity(r) }")
    proto.graph.output[0].doc_string = "what it is"
    result = surgery.apply(proto, "tidy")
    assert [node.op_type for node in result.proto.graph.node] == ["Relu"]
    assert result.proto.graph.output[0].doc_string == "what it is"


@pytest.mark.parametrize(
    ("ratio", "count"),
    [("value_float=0.0", 0), ("value=float {0}", 0), ("value_float=0.5", 1), ("value_int=0", 0), ("value_int=1", 1)],
)
def test_a_dropout_of_ratio_zero_is_not_random_in_any_notation(ratio: str, count: int) -> None:
    body = f"r = Constant<{ratio}>() t = Constant<value=bool {{1}}>() y = Dropout(x, r, t)"
    found = draws(text.parse(f"g (float[4] x) => (float[4] y) {{ {body} }}"))
    assert found is not None and sum(found.values()) == count


NAMES = ["?", "batch size", "a:b", "", "10**10**10", "2*N", "x if y", "é", "__import__('os').getcwd()", "9" * 5000]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_dim_may_have_any_name(name: str) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["z"]),
        helper.make_node("Concat", ["x", "x"], ["twice"], axis=0),
        helper.make_node("Add", ["x", "z"], ["a"]),
        helper.make_node("Identity", ["a"], ["y"]),
    ]
    shape = (name, 3)
    proto = model(nodes, [info("x", shape=shape)], [info("y", shape=shape), info("twice", shape=(None, 3))])
    graph = Graph(storage.ir_from_proto(proto))
    known = {value.name: value.shape for node in graph.nodes() for value in node.outputs}
    assert known["a"] is not None and known["a"][1] == 3
    assert known["twice"] is not None and known["twice"][0] != known["a"][0]
    assert "dim_x" not in str(costs(graph).to_json()) + str(activations(graph).to_json())
    result = surgery.apply(proto, parse("recipe: r\nverify: {mode: 'off'}\nsteps: [drop-identity, infer-shapes]"))
    assert result.failure is None
    assert result.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == name
    declared = [dim.dim_param for item in result.proto.graph.value_info for dim in item.type.tensor_type.shape.dim]
    assert not any("dim_x" in item for item in declared)


def test_the_name_of_a_dim_is_not_arithmetic() -> None:
    proto = text.parse("g (float[N] x, float[N] z) => (float[N] y) { y = Add(x, z) }")
    proto.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "2*N"
    graph = Graph(storage.ir_from_proto(proto))
    one, other = (value.shape for value in graph.inputs())
    assert combine("Equal", one[0], other[0]) is None  # 2*N of N would be another number
    assert shown(str(combine("Mul", other[0], 2))) == "2*'2*N'"


def test_huge_powers_are_not_computed() -> None:
    assert normal("N**2") == "N**2"
    assert normal("10**10**10") == "10**10**10"
