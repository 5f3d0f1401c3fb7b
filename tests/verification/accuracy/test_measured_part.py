"""The part of a model upstream of its custom operators, in which losses are measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from surgery.base.promises import Parity
from surgery.engine.pipeline import pipeline, runner
from surgery.engine.pipeline.expectations import Speed
from surgery.engine.recipe import parse
from surgery.model import storage
from surgery.model.graph import text
from surgery.verification.accuracy.measured_part import MeasuredPart, unmeasured
from surgery.verification.comparing.details import Status
from surgery.verification.inputs.spec import DataSpec
from surgery.verification.verdict.verifier import Verifier

HEADER = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]> g (float[N,4] x) => (float[N,4] y, float[N,4] z)'


def model(body: str, header: str = HEADER) -> onnx.ModelProto:
    return text.parse(f"{header} {{ {body} }}")


def part(proto: onnx.ModelProto) -> MeasuredPart | None:
    return MeasuredPart.of(proto.SerializeToString())


def shown(skeleton: bytes) -> tuple[list[str], list[str]]:
    graph = onnx.load_model_from_string(skeleton).graph
    return [node.op_type for node in graph.node], [value.name for value in graph.output]


@pytest.mark.parametrize(
    ("body", "nodes", "outputs"),
    [
        ("a = Tanh(x) y = acme.Foo(a) z = Neg(x)", ["Tanh", "Neg"], ["z", "a"]),
        # What is downstream, or leads only downstream, is left out.
        ("a = Tanh(x) b = acme.Foo(a) c = Abs(x) y = Add(b, c) z = Neg(b)", ["Tanh"], ["a"]),
        # Of two in a row, the second reads what cannot be computed; its other input can.
        ("a = Tanh(x) b = acme.Foo(a) c = Abs(x) y = acme.Foo(b, c) z = Neg(y)", ["Tanh", "Abs"], ["a", "c"]),
        # A constant says nothing, and neither does an input of the model.
        ("k = Constant<value_float=1.0>() y = acme.Foo(x, k) a = Tanh(x) z = acme.Bar(a)", ["Tanh"], ["a"]),
        ("y = acme.Foo(x) z = Tanh(y)", None, None),
        ("y = Tanh(x) z = Neg(x)", None, None),
        ("z = Tanh(x) y = acme.Foo(z)", ["Tanh"], ["z"]),
        # A plugin in the domain of onnx, and a kernel that only a GPU has.
        ("a = Tanh(x) y = EfficientNMS_TRT(a) z = Neg(a)", ["Tanh", "Neg"], ["z", "a"]),
        ("a = Tanh(x) y = com.microsoft.PackedAttention(a) z = Neg(a)", ["Tanh", "Neg"], ["z", "a"]),
    ],
)
def test_the_part_ends_at_custom_operators(body: str, nodes: list[str] | None, outputs: list[str] | None) -> None:
    found = part(model(body))
    assert (None if found is None else shown(found.skeleton)) == (None if nodes is None else (nodes, outputs))


def test_a_custom_operator_in_a_subgraph_or_a_function_counts() -> None:
    header = """<ir_version: 8, opset_import: ["" : 17, "acme" : 1, "own" : 1]>
        g (float[N,4] x, bool c) => (float[N,4] y)"""
    inner = (
        "then_branch = t () => (float[N,4] u) { u = acme.Foo(a) }, else_branch = e () => (float[N,4] v) { v = Neg(a) }"
    )
    proto = model(f"a = Tanh(x) d = Not(c) y = If(d) <{inner}>", header)
    found = part(proto)
    assert found is not None and shown(found.skeleton) == (["Not"], ["d"])
    functions = """
        <domain: "own", opset_import: ["" : 17, "acme" : 1]> Outer (a) => (b) { b = own.Inner(a) }
        <domain: "own", opset_import: ["" : 17, "acme" : 1]> Inner (a) => (b) { b = acme.Foo(a) }
        <domain: "own", opset_import: ["" : 17]> Plain (a) => (b) { b = Neg(a) }"""
    proto = onnx.parser.parse_model(f"{header} {{ a = own.Plain(x) y = own.Outer(a) }} {functions}")
    found = part(proto)
    assert found is not None and shown(found.skeleton) == (["Plain"], ["a"])


def test_inputs_stay_even_if_only_what_is_left_out_reads_them() -> None:
    header = """<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
        g (float[N,4] x, float[N] other, float[4] w, float[4] u) => (float[N,4] y)
        <float[4] w = {1, 2, 3, 4}, float[4] u = {1, 2, 3, 4}>"""
    found = part(model("a = Mul(x, w) b = acme.Foo(a, other) y = Mul(b, u)", header))
    assert found is not None and shown(found.skeleton) == (["Mul"], ["a"])
    graph = onnx.load_model_from_string(found.skeleton).graph
    assert [value.name for value in graph.input] == ["x", "other", "w", "u"]
    assert [tensor.name for tensor in graph.initializer] == ["w", "u"]


BEFORE = "a = Tanh(x) y = acme.Foo(a) z = Neg(x)"


@pytest.mark.parametrize(
    ("body", "nodes", "outputs"),
    [
        (BEFORE, ["Tanh", "Neg"], ["z", "a"]),
        ("b = Sinh(x) y = acme.Foo(b) z = Neg(x)", ["Sinh", "Neg", "Identity"], ["z", "a"]),
        # The name is another value's now.
        ("a = Sinh(x) b = Abs(a) y = acme.Foo(b) z = Neg(x)", ["Sinh", "Abs", "Neg", "Identity"], ["z", "a"]),
        ("y = acme.Foo(x) z = Neg(x)", ["Neg", "Identity"], ["z", "a"]),
        ("y = Tanh(x) z = Neg(x)", None, None),
        ("y = acme.Foo() z = Neg(x)", None, None),
        ("a = Tanh(x) y = acme.Foo('', a) z = Neg(x)", None, None),
    ],
)
def test_the_same_part_of_a_changed_model(body: str, nodes: list[str] | None, outputs: list[str]) -> None:
    before = part(model(BEFORE))
    assert before is not None
    changed = model(body.replace("''", "none"))
    for node in changed.graph.node:
        node.input[:] = ["" if name == "none" else name for name in node.input]
    found = before.of_changed(changed.SerializeToString())
    assert (None if found is None else shown(found)) == (None if nodes is None else (nodes, outputs))


def test_a_custom_operator_is_found_by_its_name() -> None:
    first = model("a = Tanh(x) b = Abs(x) y = acme.Foo(a) z = acme.Foo(b)")
    for number, node in enumerate(first.graph.node):
        node.name = f"n{number}"
    before = part(first)
    assert before is not None and before.operators == ("acme:Foo",)
    moved = onnx.ModelProto()
    moved.CopyFrom(first)
    nodes = [*moved.graph.node]
    del moved.graph.node[:]
    moved.graph.node.extend([nodes[1], nodes[0], nodes[3], nodes[2]])
    for number, name in enumerate(("other", "third")):
        moved.graph.node[2 + number].output[0] = moved.graph.output[number].name = name
    found = before.of_changed(moved.SerializeToString())
    assert found is not None and shown(found) == (["Abs", "Tanh"], ["a", "b"])


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("a = Tanh(x) y = acme.Foo(a) z = Neg(x)", {"y"}),
        ("a = Tanh(x) b = acme.Foo(a) c = Abs(x) y = Add(b, c) z = Neg(b)", {"b", "c", "y", "z"}),
        ("y = Tanh(x) z = Neg(x)", set()),
    ],
)
def test_nodes_on_which_nothing_measured_depends(body: str, names: set[str]) -> None:
    assert unmeasured(model(body)) == names


def test_outputs_that_the_part_does_not_have_are_dropped_from_given_sets() -> None:
    found = part(model(BEFORE))
    arrays = {name: np.zeros((1, 4), np.float32) for name in "xyz"}
    assert found is not None
    (data,) = found.data([DataSpec(Path("a.npz"), arrays)])
    assert data.arrays is not None and [*data.arrays] == ["x", "z"] and data.path == Path("a.npz")


def test_a_loss_is_measured_and_limited_at_the_inputs_of_a_custom_operator() -> None:
    original = model("a = Tanh(x) y = acme.Foo(a) z = Neg(x)")
    near = model("b = Tanh(x) k = Constant<value_float=0.001>() d = Add(b, k) y = acme.Foo(d) z = Neg(x)")
    far = model("b = Sinh(x) y = acme.Foo(b) z = Neg(x)")
    retyped = model("b = Tanh(x) c = Cast<to=10>(b) y = acme.Foo(c) z = Neg(x)")
    gone = model("y = Tanh(x) z = Neg(x)")
    verifier = Verifier(original.SerializeToString())
    found = [verifier.verify(one.SerializeToString(), Parity.LOSSY) for one in (near, far, retyped, gone)]
    verifier.close()
    assert [one.status for one in found] == [Status.LOSSY, Status.DIFFERENT, Status.DIFFERENT, Status.UNVERIFIED]
    assert "output 'a'" in found[0].message
    assert found[0].message.endswith("measured at the inputs of acme:Foo, which cannot be run here")
    assert found[0].details is not None and found[0].details.accuracy is not None
    assert found[0].details.accuracy["summary"].endswith(", before acme:Foo")
    assert found[2].message == "the changed model fails where the original runs: output 'a' is float16, not float32"
    assert found[3].message == "the changed model lacks an input of acme:Foo, where the loss is measured"


def detector(operator: str = "acme.Foo") -> onnx.ModelProto:
    proto = text.parse(f"""<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
        g (float[N,64] x, float[64,64] w, float[64,64] v) => (float[N,64] y)
        {{ a = MatMul(x, w) b = Relu(a) c = {operator}(b) d = MatMul(c, v) y = Relu(d) }}""")
    for node in proto.graph.node:
        node.name = f"node {node.output[0]}"
    del proto.graph.input[1:]
    rng = np.random.default_rng(0)
    for name in "wv":
        values = (rng.standard_normal((64, 64)) / 8).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    kind = onnx.helper.make_tensor_value_info("c", 1, ["N", 64])
    proto.graph.value_info.append(kind)
    return proto


def test_what_cannot_be_measured_is_converted_too_if_that_is_accepted() -> None:
    for policy, changed in (("refuse", 1), ("accept", 2)):
        recipe = parse(f"steps: [to-float16]\nverify: {{unverified: {policy}}}")
        result = runner.run(storage.from_proto(detector()), recipe)
        kinds = [tensor.data_type for tensor in result.proto.graph.initializer]
        assert result.ok and kinds.count(10) == changed, result.steps


@pytest.mark.parametrize(
    ("operator", "step", "narrow"), [("acme.Foo", "to-float16", 10), ("EfficientNMS_TRT", "quantize-static", 3)]
)
def test_lossy_steps_change_what_can_be_measured(
    monkeypatch: pytest.MonkeyPatch, operator: str, step: str, narrow: int
) -> None:
    compared: list[list[str]] = []

    def speed(least: float, stored: object, models: Sequence[onnx.ModelProto], *_: object) -> Speed:
        compared.extend([node.op_type for node in one.graph.node] for one in models)
        return Speed("found 2", True, 2.0)

    monkeypatch.setattr(pipeline, "speed", speed)
    result = runner.run(storage.from_proto(detector(operator)), parse(f"steps: [{step}]\nexpect: {{speed: 1}}"))
    (record,) = result.steps
    assert result.ok and record.status == "committed", record.message
    assert {one.reason for one in record.refusals if one.anchor == "node d"} & {
        "it touches a node on which no measured value depends: 'node d'",
        "no calibration input gives an activation a value",
    }
    title = operator.replace(".", ":")
    assert [one.what for one in result.expectations] == [f"speed: >= 1 (found 2, before {title})"]
    assert compared[0] == ["MatMul", "Relu"] and len(compared[1]) > 2 and "Relu" in compared[1]
    kinds = {tensor.name: tensor.data_type for tensor in result.proto.graph.initializer}
    assert kinds["v"] == 1 and narrow in kinds.values()
