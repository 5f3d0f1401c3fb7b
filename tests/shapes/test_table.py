"""What the table of shapes knows after a rewrite."""

import onnx_ir as ir

from surgery.graph import text
from surgery.graph.graph import Graph


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
