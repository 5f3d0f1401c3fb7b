"""Passes of onnx-graphsurgeon: what it loses is restored, weights stay mapped, its own examples run."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import helper
from support import ROOT, corpus
from support.breadth import sampled

from surgery import Parity, graph_pass
from surgery.base.errors import PassError
from surgery.base.operators.message_tensors import to_array
from surgery.engine import recipe
from surgery.engine.bridges import graphsurgeon
from surgery.engine.bridges.preserve import Remains
from surgery.engine.pipeline import runner
from surgery.model import storage
from surgery.model.graph import text


def carried(model: onnx.ModelProto, function: object = lambda graph: graph) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return a model without its weights, and what comes back of it."""
    stored = storage.from_proto(model)
    skeleton = storage.proto_from_ir(storage.ir_from_proto(stored.proto, stored.weights), stored.weights)
    return skeleton, graphsurgeon.run(skeleton, stored.weights, function)


@pytest.mark.parametrize("part", sampled(range(8), 4))
def test_unchanged_models_round_trip(part: int) -> None:
    for name, source in list(corpus.models())[part::32]:
        model = onnx.load(source) if isinstance(source, Path) else onnx.load_from_string(source)
        skeleton, back = carried(model)
        assert corpus.same(skeleton, back), name


@pytest.mark.parametrize("name", sampled(["bert-tiny.dy", "resnet-tiny", "llama-tiny"], 3))
def test_copies_of_the_graph_are_recognised(name: str) -> None:
    model = onnx.load(ROOT / "models" / f"{name}.onnx")
    model.graph.node[0].doc_string = "first"
    skeleton, back = carried(model, lambda graph: graph.copy())
    assert corpus.same(skeleton, back)


def test_an_unsupported_model_is_refused_before_the_pass_runs() -> None:
    model = text.parse("g (float[n] x) => (float[n] y) { y = acme.Odd(x) }")
    model.opset_import.add(domain="acme", version=1)
    model.graph.node[0].attribute.add(name="mode", type=onnx.AttributeProto.STRING, s=b"\xff")
    with pytest.raises(PassError, match="onnx-graphsurgeon cannot represent the model: a text in it is not UTF-8"):
        carried(model, lambda graph: pytest.fail("the pass ran"))


def test_what_a_round_trip_would_lose_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    written = graphsurgeon._written

    def losing(graph: gs.Graph, remains: Remains) -> onnx.ModelProto:
        back = written(graph, remains)
        back.graph.node[1].attribute[0].ClearField("doc_string")
        return back

    model = text.parse("g (float[n, m] x) => (float[n, m] y) { t = Exp(x) y = Softmax<axis = 0>(t) }")
    model.graph.node[1].attribute[0].doc_string = "along columns"
    monkeypatch.setattr(graphsurgeon, "_written", losing)
    with pytest.raises(PassError, match=r"cannot represent graph\.node\[1\]\.attribute\[0\]\.doc_string of the model"):
        carried(model, lambda graph: pytest.fail("the pass ran"))


def test_a_result_that_cannot_be_written_is_an_error() -> None:
    def spoil(graph: gs.Graph) -> gs.Graph:
        graph.nodes[0].attrs["mode"] = object()
        return graph

    with pytest.raises(PassError, match="onnx-graphsurgeon cannot write the model: "):
        carried(text.parse("g (float[n] x) => (float[n] y) { y = Exp(x) }"), spoil)


@pytest.mark.parametrize(
    ("error", "reason"), [(ValueError("one line\n\n  and another"), "one line and another"), (KeyError(), "KeyError")]
)
def test_an_error_is_told_in_one_line(error: Exception, reason: str) -> None:
    with pytest.raises(PassError) as found, graphsurgeon._named_errors("cannot write"):
        raise error
    assert found.value.what == f"onnx-graphsurgeon cannot write the model: {reason}"


def test_a_constant_that_a_function_gets_is_written_before_its_nodes() -> None:
    model = text.parse(
        """<ir_version: 10, opset_import: ["": 18, "own": 1]> g (float[n] x) => (float[n] y) { y = own.scaled(x) }
        <domain: "own", opset_import: ["": 18]> scaled (a) => (b) { t = Exp(a) b = Neg(t) }"""
    )
    model.functions[0].metadata_props.add(key="from", value="elsewhere")

    def edit(graph: gs.Graph) -> gs.Graph:
        (function,) = graph.functions
        exp = next(node for node in function.nodes if node.op == "Exp")
        exp.op, exp.inputs = "Add", [*exp.inputs, gs.Constant("one", np.ones(1, np.float32))]
        return graph

    _, back = carried(model, edit)
    (function,) = back.functions
    assert [node.op_type for node in function.node] == ["Constant", "Add", "Neg"]
    assert function.node[0].output[0] in function.node[1].input and function.metadata_props[0].value == "elsewhere"
    onnx.checker.check_model(back, full_check=True)


def test_a_new_constant_with_sparse_values_stays_sparse() -> None:
    model = text.parse("g (float[5] x) => (float[5] y) { y = Add(x, s) }")
    values = helper.make_tensor("s", 1, [2], [1.0, 2.0])
    indices = helper.make_tensor("", onnx.TensorProto.INT64, [2], [0, 3])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [5]))

    def edit(graph: gs.Graph) -> gs.Graph:
        (node,) = graph.nodes
        node.inputs[1] = gs.Constant("copy", node.inputs[1]._values)
        return graph

    _, back = carried(model, edit)
    (sparse,) = back.graph.sparse_initializer
    assert sparse.values.name == "copy" and sparse.dims == [5] and not back.graph.initializer
    assert to_array(sparse.values).tolist() == [1, 2] and to_array(sparse.indices).tolist() == [0, 3]


def test_names_docs_and_declarations_of_kept_values_are_restored() -> None:
    model = text.parse("g (float[n] x) => (float[n] y) { a = Exp(x) b = Neg(a) y = Abs(b) }")
    model.graph.doc_string, model.doc_string = "the graph", "the model"
    model.metadata_props.add(key="author", value="me")
    model.graph.node[2].doc_string = "the last"
    model.graph.node[2].metadata_props.add(key="line", value="7")
    a = model.graph.value_info.add(name="a", doc_string="grows")
    a.type.CopyFrom(model.graph.input[0].type)
    model.graph.quantization_annotation.add(tensor_name="b")

    def edit(graph: gs.Graph) -> gs.Graph:
        exp, neg, end = graph.nodes
        exp.outputs[0].name = "grown"
        end.inputs = exp.outputs
        neg.outputs.clear()
        return graph.cleanup()

    _, back = carried(model, edit)
    assert (back.doc_string, back.graph.doc_string, len(back.metadata_props)) == ("the model", "the graph", 1)
    assert [(node.op_type, node.doc_string) for node in back.graph.node] == [("Exp", ""), ("Abs", "the last")]
    assert back.graph.node[1].metadata_props[0].value == "7"
    assert [(value.name, value.doc_string) for value in back.graph.value_info] == [("grown", "grows")]
    assert not back.graph.quantization_annotation


def test_unsupported_types_are_hidden_and_restored() -> None:
    model = text.parse("g (seq(float[n]) s, optional(float[n]) o, float[n] x) => (float[n] y) { y = Neg(x) }")
    seen = []

    def look(graph: gs.Graph) -> gs.Graph:
        seen.extend(graph.inputs)
        graph.nodes[0].op = "Abs"
        return graph

    skeleton, back = carried(model, look)
    assert seen[1].dtype is None and seen[2].dtype == np.float32
    assert list(back.graph.input) == list(skeleton.graph.input)
    assert [node.op_type for node in back.graph.node] == ["Abs"]


def test_an_overridable_initializer_is_not_a_constant() -> None:
    model = text.parse(
        "g (float[2] x, float[2] w) => (float[2] y) <float[2] v = {1, 2}> { a = Add(x, v) y = Mul(a, w) }"
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "w"))
    kinds = {}

    def look(graph: gs.Graph) -> gs.Graph:
        kinds.update({name: type(tensor).__name__ for name, tensor in graph.tensors().items()})
        return graph.fold_constants().cleanup()

    skeleton, back = carried(model, look)
    assert (kinds["w"], kinds["v"]) == ("Variable", "Constant")
    assert corpus.same(skeleton, back)


def test_before_ir_version_4_each_initializer_stays_listed() -> None:
    model = text.parse(
        '<ir_version: 3, opset_import: ["": 8]> g (float[2] x, float[2] w) => (float[2] y) { y = Mul(x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "w"))

    def more(graph: gs.Graph) -> gs.Graph:
        graph.nodes[0].inputs[0] = gs.Constant("v", np.ones(2, np.float32))
        return graph

    _, back = carried(model, more)
    assert [entry.name for entry in back.graph.input] == ["x", "w", "v"]
    assert {tensor.name for tensor in back.graph.initializer} == {"w", "v"}


def test_constants_of_a_type_that_numpy_lacks() -> None:
    model = text.parse("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    arrays = [
        np.array([1, -2], ml_dtypes.float8_e4m3fnuz),
        np.array([1, 2], ml_dtypes.bfloat16),
        np.array([1, -2, 3], ml_dtypes.int4),
    ]

    def add(graph: gs.Graph) -> gs.Graph:
        constants = [gs.Constant(f"c{number}", array) for number, array in enumerate(arrays)]
        graph.nodes.append(gs.Node("Odd", domain="com.acme", inputs=constants, outputs=[gs.Variable("z")]))
        return graph

    _, back = carried(model, add)
    read = [to_array(tensor) for tensor in back.graph.initializer]
    assert all(a.dtype == b.dtype and (a == b).all() for a, b in zip(read, arrays, strict=True))


def test_empty_lists_keep_their_type() -> None:
    model = text.parse("g (float[2] x) => (float[2] y) { c = Constant<value_ints: ints = [1]>() y = Reshape(x, c) }")
    del model.graph.node[0].attribute[0].ints[:]

    def rename(graph: gs.Graph) -> gs.Graph:
        graph.nodes[0].name = "empty"
        return graph

    skeleton, back = carried(model, rename)
    assert back.graph.node[0].name == "empty"
    assert list(back.graph.node[0].attribute) == list(skeleton.graph.node[0].attribute)


BIG = 5000


def weighted() -> onnx.ModelProto:
    model = text.parse(f"g (float[{BIG}] x) => (float[{BIG}] y) {{ a = Mul(x, v) y = Add(a, w) }}")
    for name, seed in (("v", 1), ("w", 2)):
        model.graph.initializer.append(corpus.floats(name, BIG, seed=seed))
    return model


def test_weights_that_are_only_read_are_not_written_again() -> None:
    def read(graph: gs.Graph) -> gs.Graph:
        for tensor in graph.tensors().values():
            if isinstance(tensor, gs.Constant):
                assert tensor.values.shape == (BIG,)
        graph.tensors()["w"].values = graph.tensors()["w"].values.copy()
        return graph

    skeleton, back = carried(weighted(), read)
    assert corpus.same(skeleton, back)


def test_writing_to_a_weight_makes_a_new_tensor() -> None:
    def scale(graph: gs.Graph) -> gs.Graph:
        graph.tensors()["v"].values[...] *= 2
        graph.tensors()["v"].name = "twice"
        return graph

    model = weighted()
    stored = storage.from_proto(model)
    back = graphsurgeon.run(stored.proto, stored.weights, scale)
    twice, kept = back.graph.initializer
    assert (twice.name, kept) == ("twice", stored.proto.graph.initializer[1])
    expected = onnx.numpy_helper.to_array(model.graph.initializer[0])
    np.testing.assert_array_equal(stored.weights.read(twice), expected * 2)
    np.testing.assert_array_equal(stored.weights.read(stored.proto.graph.initializer[0]), expected)


def test_large_weights_are_available_when_a_pass_folds_constants() -> None:
    model = weighted()
    model.graph.node.insert(0, helper.make_node("Neg", ["v"], ["u"]))
    model.graph.node[1].input[1] = "u"
    _, back = carried(model, lambda graph: graph.fold_constants().cleanup())
    assert [node.op_type for node in back.graph.node] == ["Mul", "Add"]


# What the examples of onnx-graphsurgeon do


@graph_pass("example-remove", parity=Parity.EXACT)
def remove(graph: gs.Graph) -> None:
    """Remove a node."""
    fake = next(node for node in graph.nodes if node.name == "fake")
    fake.i().outputs = fake.outputs
    fake.outputs.clear()
    graph.cleanup()


@graph_pass("example-isolate", changes=("inputs", "outputs"))
def isolate(graph: gs.Graph) -> None:
    """Keep what is between two values."""
    tensors = graph.tensors()
    graph.inputs = [tensors["a"].to_variable(dtype=np.float32, shape=(1, 3))]
    graph.outputs = [tensors["b"].to_variable(dtype=np.float32, shape=(1, 3))]
    graph.cleanup()


@graph_pass("example-isolate-silently")
def isolate_silently(graph: gs.Graph) -> None:
    """Keep what is between two values, and do not say so."""
    isolate(graph)


@graph_pass("example-fold", parity=Parity.EXACT)
def fold(graph: gs.Graph) -> gs.Graph:
    """Fold constants."""
    return graph.fold_constants().cleanup()


@gs.Graph.register()
def put_clip(self: gs.Graph, inputs: list[gs.Tensor], outputs: list[gs.Tensor]) -> list[gs.Tensor]:
    """Put a Clip between values."""
    for tensor in inputs:
        tensor.outputs.clear()
    for tensor in outputs:
        tensor.inputs.clear()
    return self.layer(op="Clip", inputs=inputs, outputs=outputs)


@graph_pass("example-replace")
def replace(graph: gs.Graph) -> None:
    """Put a Clip in place of a Min and a Max."""
    tensors = graph.tensors()
    graph.put_clip([tensors["a"], tensors["low"], tensors["high"]], [tensors["b"]])
    graph.cleanup()


@gs.Graph.register()
def rows_by_rest(self: gs.Graph, data: gs.Tensor) -> gs.Tensor:
    """Compute the shape that Flatten gives."""
    (shape,) = self.layer(op="Shape", inputs=[data], outputs=["shape"])
    (rows,) = self.layer(op="Gather", inputs=[shape, np.array([0])], outputs=["rows"])
    (rest,) = self.layer(op="Gather", inputs=[shape, np.array([1, 2, 3])], outputs=["rest"])
    (size,) = self.layer(op="ReduceProd", inputs=[rest], attrs={"keepdims": 1}, outputs=["size"])
    return self.layer(op="Concat", inputs=[rows, size], attrs={"axis": 0}, outputs=["target"])[0]


@graph_pass("example-shapes", parity=Parity.EXACT)
def shapes(graph: gs.Graph) -> None:
    """Spell Flatten as a Reshape to a shape that is computed."""
    for node in [node for node in graph.nodes if node.op == "Flatten"]:
        data, result = node.inputs[0], node.outputs[0]
        node.outputs.clear()
        graph.layer(op="Reshape", inputs=[data, graph.rows_by_rest(data)], outputs=[result])
    graph.cleanup().toposort()


ISOLATED = """g (float[1,3] x) => (float[1,3] y) <float[1,3] w = {1, 2, 3}> {
    a = Exp(x)
    t = Mul(a, w)
    b = Relu(t)
    y = Neg(b)
}"""
EXAMPLES = {
    "remove": (
        "g (float[b,3] x) => (float[b,3] y) { t = Exp(x) [fake] u = Identity(t) y = Relu(u) }",
        {"Exp": 1, "Relu": 1},
    ),
    "fold": (
        "g (float[3] x) => (float[3] y) <float[3] p = {1, 2, 3}> { t = Add(p, p) u = Neg(t) y = Mul(u, x) }",
        {"Mul": 1},
    ),
    "replace": (
        """g (float[2,2] x) => (float[2,2] y) <float low = {0}, float high = {1}> {
            a = Exp(x) t = Min(a, high) b = Max(t, low) y = Neg(b)
        }""",
        {"Exp": 1, "Clip": 1, "Neg": 1},
    ),
    "shapes": (
        "g (float[b,2,3,4] x) => (float[b,24] y) { t = Exp(x) u = Flatten(t) y = Neg(u) }",
        {"Exp": 1, "Shape": 1, "Gather": 2, "ReduceProd": 1, "Concat": 1, "Reshape": 1, "Neg": 1},
    ),
}


def run(model: onnx.ModelProto, steps: str, verify: str = "{}") -> runner.Result:
    return runner.apply(model, recipe.parse(f"recipe: examples\nverify: {verify}\nsteps: [{steps}]", "examples.yaml"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_are_verified_steps(name: str) -> None:
    source, ops = EXAMPLES[name]
    result = run(text.parse(source), f"example-{name}")
    (step,) = result.steps
    assert (step.status, step.sites) == ("committed", 1), step.message
    assert step.verdict.status in ("equal", "close")
    assert result.output.ops == ops


def test_a_subgraph_is_isolated_only_by_a_pass_that_declares_it() -> None:
    silent = run(text.parse(ISOLATED), "example-isolate-silently")
    assert silent.steps[0].status == "failed" and "input 'x' is missing" in silent.steps[0].message
    result = run(text.parse(ISOLATED), "example-isolate")
    (step,) = result.steps
    assert (step.status, step.verdict.status) == ("committed", "equal"), step.message
    assert "input 'x' is missing" in step.verdict.message
    assert [value.name for value in (*result.proto.graph.input, *result.proto.graph.output)] == ["a", "b"]
    assert result.output.ops == {"Mul": 1, "Relu": 1}
