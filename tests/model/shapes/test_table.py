"""What the table of shapes knows after a rewrite."""

import numpy as np
import onnx_ir as ir
import pytest

from surgery.engine.bridges.run_pass import apply
from surgery.engine.registry.catalog import catalog
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.shapes.inference import Inference


def test_a_shape_that_a_rewrite_makes_known_is_known_downstream() -> None:
    source = """
        <ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
        g (float[n,4] x) => (float[p,q] y) { a = acme.Unknown(x) b = Neg(a) c = Exp(b) y = Abs(c) }
    """
    graph = Graph(ir.from_proto(text.parse(source)), pass_name="test")
    (unknown,), (last,) = graph.nodes("acme::Unknown"), graph.nodes("Exp")
    assert last.outputs[0].shape is None
    with graph.site(unknown) as new:
        new.replace(unknown.outputs[0], new.node("Relu", unknown.required_input(0)))
    assert [node.outputs[0].shape for node in graph.nodes("Relu", "Neg", "Exp")] == [("n", 4)] * 3


def test_a_shape_that_becomes_known_is_known_downstream_of_a_graph_output() -> None:
    source = """
        <ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
        g (float[n,4] x) => (float[p,4] middle, int64[k] y) {
            a = acme.Unknown(x) middle = Neg(a) b = Exp(middle) s = Shape(b) y = Identity(s)
        }
    """
    graph = Graph(ir.from_proto(text.parse(source)), pass_name="test")
    (unknown,), (last,) = graph.nodes("acme::Unknown"), graph.nodes("Shape")
    assert last.outputs[0].elements == ("p", 4)
    with graph.site(unknown) as new:
        new.replace(unknown.outputs[0], new.node("Relu", unknown.required_input(0)))
    assert last.outputs[0].elements == ("n", 4)


def test_a_scalar_keeps_its_shape_when_a_node_is_inferred_again() -> None:
    """An empty list of dims is a shape, not a missing one: Add of [2,3] and a scalar is [2,3]."""
    source = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[n,3] x, float[m,1] z) => (float[p,q] y) {
            half = Constant<value = float {0.5}>() r = Relu(x) a = Add(r, half) b = Exp(a) y = Abs(b)
        }
    """
    graph = Graph(ir.from_proto(text.parse(source)), pass_name="test")
    (relu,), (last,) = graph.nodes("Relu"), graph.nodes("Exp")
    assert last.outputs[0].shape == ("n", 3)
    with graph.site(relu) as new:
        new.replace(relu.outputs[0], graph.inputs()[1])
    assert last.outputs[0].shape == ("m", 1)


DIRECTLY = "q = MatMul(middle, x)"
DEEPER = """q = If(c) <then_branch = d () => (float[?,?] r) { r = MatMul(middle, x) },
    else_branch = e () => (float[?,?] s) { s = Relu(middle) }>"""


@pytest.mark.parametrize("body", [DIRECTLY, DEEPER], ids=["directly", "deeper"])
def test_what_a_body_captures_keeps_its_declared_dims(body: str) -> None:
    """The body is inferred again with its node; the output of the model that it reads has dims without names."""
    source = f"""
        <ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
        g (float[2,2] x, bool c) => (float[?,?] middle, float[p,q] y) {{
            middle = acme.Unknown(x)
            n = Not(c)
            y = If(n) <then_branch = t () => (float[?,?] q) {{ {body} }},
                else_branch = o () => (float[?,?] a) {{ a = Relu(middle) }}>
        }}
    """
    model = ir.from_proto(text.parse(source))
    inference = Inference(model)
    facts = inference.everything()
    found = inference.one(model.graph[-1], facts.__getitem__)
    assert len(found[model.graph.outputs[1]].shape or ()) == 2
    assert [dim.value for dim in model.graph.outputs[0].shape or ()] == [None, None]


def test_contents_that_are_no_longer_known_are_forgotten() -> None:
    """A shape that only a declaration gives is unknown once the operand has another one, and so is what Shape reads."""
    source = """
        <ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
        g (float[2,3] x, float[2,1] z) => (int64[k] y) <float[2,3] a> {
            r = Relu(x) a = acme.Unknown(r) s = Shape(a) m = Neg(s) y = Abs(m)
        }
    """
    graph = Graph(ir.from_proto(text.parse(source)), pass_name="test")
    (relu,), (shape,), (last,) = graph.nodes("Relu"), graph.nodes("Shape"), graph.nodes("Neg")
    assert last.outputs[0].elements == (-2, -3)
    with graph.site(relu) as new:
        new.replace(relu.outputs[0], graph.inputs()[1])
    assert shape.outputs[0].elements is None
    assert last.outputs[0].elements is None


def test_the_rules_of_a_new_opset_apply_after_a_conversion() -> None:
    source = """
        <ir_version: 7, opset_import: ["" : 12]>
        g (float[2,3] x) => (float[p,q,r] y) { a = Unsqueeze<axes = [0]>(x) y = Relu(a) }
    """
    graph = Graph(ir.from_proto(text.parse(source)), pass_name="test")
    assert graph.nodes("Unsqueeze")[0].outputs[0].shape == (1, 2, 3)
    apply(catalog.find("upgrade-opset"), graph, {"to": 17})
    (added,) = graph.nodes("Unsqueeze")
    with graph.site(added) as new:
        again = new.node("Unsqueeze", graph.inputs()[0], new.constant(np.array([2], np.int64), name="axes"))
        new.replace(graph.nodes("Relu")[0].outputs[0], new.node("Exp", again))
    assert graph.nodes("Exp")[0].outputs[0].shape == (2, 3, 1)
