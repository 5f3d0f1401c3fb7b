"""Passes that are wrong on purpose, to show what the engine does about them."""

import os

import numpy as np

from surgery import Builder, Graph, Match, Parity, Value, graph_pass, pattern_pass


@pattern_pass("wrong-drop-relu", match="y = Relu(x)", parity=Parity.EXACT)
def wrong_drop_relu(m: Match, new: Builder) -> Value:
    """Drop every Relu."""
    value: Value = m.x
    return value


@graph_pass("wrong-rename-output", parity=Parity.EXACT)
def wrong_rename_output(graph: Graph) -> None:
    """Rename the first output after the engine's back."""
    graph.ir.graph.outputs[0].name = "renamed"


@graph_pass("wrong-invalid-node", parity=Parity.EXACT)
def wrong_invalid_node(graph: Graph) -> None:
    """Put in an operator that does not exist."""
    (node, *_) = graph.nodes("Relu")
    with graph.site(node) as new:
        new.replace(node.outputs[0], new.node("NoSuchOperator", node.required_input(0)))


@graph_pass("wrong-raise", parity=Parity.EXACT)
def wrong_raise(graph: Graph) -> None:
    """Change something, then raise."""
    (node, *_) = graph.nodes("Relu")
    with graph.site(node) as new:
        new.replace(node.outputs[0], new.node("Abs", node.required_input(0)))
    raise ValueError(f"gave up in process {os.getpid() > 0}")


@graph_pass("wrong-by-a-little", parity=Parity.CLOSE)
def wrong_by_a_little(graph: Graph, *, error: float = 1e-3) -> None:
    """Multiply each Relu by almost one.

    Options:
        error: how far from one
    """
    for node in graph.nodes("Relu"):
        with graph.site(node) as new:
            relu = new.node("Relu", node.required_input(0))
            factor = new.constant(np.array(1 + error, np.float32))
            new.replace(node.outputs[0], new.node("Mul", relu, factor))


@graph_pass("wrong-not-exact", parity=Parity.EXACT)
def wrong_not_exact(graph: Graph) -> None:
    """Promise identical bits, and change the last of them."""
    for node in graph.nodes("Relu"):
        with graph.site(node) as new:
            relu = new.node("Relu", node.required_input(0))
            factor = new.constant(np.array(1 + 1e-6, np.float32))
            new.replace(node.outputs[0], new.node("Mul", relu, factor))
