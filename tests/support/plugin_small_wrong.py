"""Small wrong passes, one for each way in which a repro must be cut."""

import numpy as np

from surgery import Graph, Parity, graph_pass


@graph_pass("drop-relu", parity=Parity.EXACT)
def drop_relu(graph: Graph) -> None:
    """Drop every Relu, which is right where its input is never negative."""
    for node in graph.nodes("Relu"):
        graph.replace(node.outputs[0], node.required_input(0))


@graph_pass("relu-to-abs", parity=Parity.EXACT)
def relu_to_abs(graph: Graph) -> None:
    """Make every Relu an Abs after the engine's back, which is right where its input is never negative."""
    for node in graph.ir.graph:
        if node.op_type == "Relu":
            node.op_type = "Abs"


@graph_pass("scale-relu", parity=Parity.CLOSE)
def scale_relu(graph: Graph, *, error: float) -> None:
    """Multiply each Relu by almost one.

    Options:
        error: how far from one
    """
    for node in graph.nodes("Relu"):
        with graph.site(node) as new:
            factor = new.constant(np.array(1 + error, np.float32))
            new.replace(node.outputs[0], new.node("Mul", new.node("Relu", node.required_input(0)), factor))


@graph_pass("drop-zero", parity=Parity.EXACT)
def drop_zero(graph: Graph) -> None:
    """Drop additions of zero, which turn -0.0 into 0.0."""
    for node in graph.nodes("Add"):
        graph.replace(node.outputs[0], node.required_input(0))


@graph_pass("pin-reshape", parity=Parity.EXACT)
def pin_reshape(graph: Graph, *, rows: int) -> None:
    """Reshape to a fixed number of rows.

    Options:
        rows: how many
    """
    for node in graph.nodes("Reshape"):
        with graph.site(node) as new:
            shape = new.constant(np.array([rows, -1]))
            new.replace(node.outputs[0], new.node("Reshape", node.required_input(0), shape))


@graph_pass("swap-scale", parity=Parity.EXACT)
def swap_scale(graph: Graph) -> None:
    """Read the weights of the first Mul in all others too."""
    first, *others = graph.nodes("Mul")
    for node in others:
        with graph.site(node) as new:
            new.set_input(node, 1, first.required_input(1))


@graph_pass("swap-halves", parity=Parity.EXACT)
def swap_halves(graph: Graph) -> None:
    """Negate what each Neg reads: right where that is done twice."""
    for node in graph.nodes("Neg"):
        with graph.site(node) as new:
            new.set_input(node, 0, new.node("Neg", node.required_input(0)))
