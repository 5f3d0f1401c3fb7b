"""Which requested facts are unknown where a pass declines, and where they get lost."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from surgery.base.promises import Parity
from surgery.engine.registry.passes import Pass
from surgery.engine.why import explain as why
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph


def ask(graph: Graph) -> None:
    """Ask for the shapes of what Add reads."""
    for node in graph.nodes("Add"):
        with graph.site(node) as new:
            shapes = [value.shape for value in node.inputs if value is not None]
            known = all(shape is not None and None not in shape for shape in shapes)
            new.require(not known, "the shapes are known")
            new.require(known, "the shapes are not known")


def asked(body: str) -> why.RefusedNode:
    """Explain the pass at the first Add; a comment declares the shape of u."""
    body, _, declaration = body.partition("#")
    model = text.parse(
        f'<ir_version: 10, opset_import: ["": 20, "own": 1]> g (float[n] x) => (float[m] y) {{ {body} }}'
    )
    if declaration:
        dims = [int(dim) if dim.isdigit() else None for dim in declaration.strip(" []").split(",")]
        model.graph.value_info.append(onnx.helper.make_tensor_value_info("u", 1, dims))
    stored = storage.from_proto(model)
    declared = Pass("asking", Parity.CLOSE, "graph", ask)
    (refusals,) = why.explain(declared, stored.proto, stored.weights, contained=False).refusals
    return refusals.places[0]


@pytest.mark.parametrize(
    ("body", "unknown"),
    [
        ("y = Add(x, x)", ()),
        ("u = own.Odd(x) y = Add(u, x)  # [3,4]", ()),
        ("[odd] u = own.Odd(x) y = Add(u, x)", ("the shape of 'u', nor that of what own::Odd 'odd' makes",)),
        # It gets lost further up, and later nodes only pass it on.
        ("[odd] u = own.Odd(x) v = Relu(u) w = Neg(v) y = Add(w, x)",
         ("the shape of 'w', nor that of what own::Odd 'odd' makes",)),
        # One origin is named once, and several are named, the latest first.
        ("[odd] u = own.Odd(x) v = Relu(u) y = Add(u, v)",
         ("the shape of 'v', nor that of what own::Odd 'odd' makes",)),
        ("[odd] u = own.Odd(x) [even] v = own.Even(x) y = Add(u, v)",
         ("the shape of 'v', nor that of what own::Even 'even' makes",
          "the shape of 'u', nor that of what own::Odd 'odd' makes")),
    ],
)  # fmt: skip
def test_unknown_facts_are_named_with_their_origin(body: str, unknown: tuple[str, ...]) -> None:
    found = asked(body)
    assert found.unknown == unknown
    assert (found.op, found.anchor.split(" ")[0], len(found.inputs), len(found.outputs)) == ("Add", "Add", 2, 1)


def test_types_of_inputs_and_outputs_are_listed() -> None:
    found = asked("a = Relu(x) y = Add(a, x)")
    assert (found.inputs, found.outputs) == (("float[n] a", "float[n] x"), ("float[n] y",))


def absent(graph: Graph) -> None:
    """Decline without a node, and at a node with an omitted input."""
    with graph.site() as new:
        new.require(False, "nothing here")
    for node in graph.nodes("Clip"):
        with graph.site(node) as new:
            new.require(False, "it clips")


def test_a_refusal_without_a_node_and_one_with_an_omitted_input() -> None:
    model = text.parse("g (float[2] x, float h) => (float[2] y) { y = Clip(x, , h) }")
    stored = storage.from_proto(model)
    found = why.explain(Pass("absent", Parity.CLOSE, "graph", absent), stored.proto, stored.weights, contained=False)
    first, second = sorted(found.refusals, key=lambda one: one.reason)
    assert first.reason == "it clips" and first.places[0].inputs == ("float[2] x", "", "float h")
    assert first.where.startswith("why/test_unknown_facts.py:")
    assert second.places[0] == why.RefusedNode("", "", (), (), second.places[0].values, ())


def test_an_input_of_unknown_type_has_no_shape() -> None:
    def look(graph: Graph) -> None:
        for node in graph.nodes("Identity"):
            with graph.site(node) as new:
                new.require(node.inputs[0].shape is not None, "no shape")  # type: ignore[union-attr]

    untyped: Any = onnx.ModelProto()
    untyped.CopyFrom(text.parse("g (float[2] s) => (float[2] t) { t = Identity(s) }"))
    for value in (untyped.graph.input[0], untyped.graph.output[0]):
        value.ClearField("type")
    stored = storage.from_proto(untyped)
    found = why.explain(Pass("look", Parity.CLOSE, "graph", look), stored.proto, stored.weights, contained=False)
    assert found.refusals[0].places[0].unknown == ("the shape of 's'",)
