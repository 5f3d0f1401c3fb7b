"""Changed inputs and outputs of a model with a custom operator, which does not run as a whole."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

import onnx
import pytest

import surgery
from surgery.base.promises import Parity
from surgery.engine import recipe as recipes
from surgery.model.graph import text
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.signature.terms import see
from surgery.verification.signature.tracker import SignatureTracker

HEAD = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>'
DETECTOR = "a = Tanh(x) b = Neg(a) boxes = acme.Nms(b, a) y = Add(boxes, boxes) z = Abs(a)"


def model(body: str = DETECTOR, ports: str = "(float[N,4] x) => (float[N,4] y, float[N,4] z)") -> onnx.ModelProto:
    return text.parse(f"{HEAD} g {ports} {{ {body} }}")


def ports(values: Collection[onnx.ValueInfoProto]) -> list[str]:
    return [value.name for value in values]


@pytest.mark.parametrize(
    ("step", "inputs", "outputs", "nodes"),
    [
        ("set-dims: {dims: {N: 2}}", ["x"], ["y", "z"], 5),
        ("add-outputs: {outputs: [b]}", ["x"], ["y", "z", "b"], 5),
        ("remove-outputs: {outputs: [z]}", ["x"], ["y"], 4),
        ("remove-outputs: {outputs: [y]}", ["x"], ["z"], 2),
        ("cut: {outputs: [b]}", ["x"], ["b", "z"], 3),
        ("extract: {outputs: [b]}", ["x"], ["b"], 2),
        ("extract: {inputs: [b, a]}", ["b", "a"], ["y", "z"], 3),
        ("rename: {inputs: {x: pixels}}", ["pixels"], ["y", "z"], 5),
    ],
)
def test_a_changed_signature_is_verified(step: str, inputs: list[str], outputs: list[str], nodes: int) -> None:
    result = surgery.apply(model(), recipes.parse(f"steps: [{{{step}}}]"))
    assert result.ok, result
    graph = result.proto.graph
    assert (ports(graph.input), sorted(ports(graph.output)), len(graph.node)) == (inputs, sorted(outputs), nodes)


@pytest.mark.parametrize(
    ("body", "passes"),
    [
        (DETECTOR, True),
        (DETECTOR.replace("Abs(a)", "Abs(b)"), True),
        (DETECTOR.replace("Abs(a)", "Sin(a)"), False),
        (DETECTOR.replace("Neg(a)", "Sin(a)"), False),
        (DETECTOR.replace("Nms(b, a)", "Nms(a, b)"), False),
        (DETECTOR.replace("Add(boxes, boxes)", "Sub(boxes, boxes)"), False),
    ],
)
def test_a_wrong_model_with_another_signature_is_not(body: str, passes: bool) -> None:
    original, changed = model(), model(body)
    changed.graph.output.append(onnx.ValueInfoProto(name="b"))
    with closing(SignatureTracker(original.SerializeToString(), InputsSpec(), VerifySpec())) as tracker:
        verdict = tracker.verify(changed, changed.SerializeToString(), Parity.EXACT, {})
    assert verdict.passed is passes, verdict


@pytest.mark.parametrize(
    ("outputs", "kept"),
    [(["y", "z"], ["a", "b", "boxes", "y", "z"]), (["z"], ["a", "z"]), (["y"], ["a", "b", "boxes", "y"])],
)
def test_a_reference_loses_the_nodes_that_only_lost_outputs_need(outputs: list[str], kept: list[str]) -> None:
    original, changed = model(), model()
    del changed.graph.output[:]
    changed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    with closing(SignatureTracker(original.SerializeToString(), InputsSpec(), VerifySpec())) as tracker:
        terms = tracker.references.comparable(changed, {}, ())
        seen = see(original, changed, terms.match)
        terms.verifier.close()
    assert [node.output[0] for node in seen.graph.node] == kept
    assert ports(seen.graph.output) == outputs
