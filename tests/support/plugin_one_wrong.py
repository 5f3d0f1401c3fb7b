"""Passes that are right nearly everywhere, to show how the engine finds where they are not."""

from typing import Literal

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

How = Literal["axis", "crash", "checker", "refused", "pair"]


@graph_pass("spell-softmax", parity=Parity.CLOSE)
def spell_softmax(graph: Graph, *, wrong: int = 0, other: int = 0, how: How = "axis") -> None:
    """Write each Softmax over the last axis as Exp and a division.

    Options:
        wrong: the site, counted from 1, that is spelt wrongly
        other: another site that is spelt wrongly
        how: what is wrong there
    """
    for number, node in enumerate(graph.nodes("Softmax"), start=1):
        with graph.site(node) as new:
            x = node.required_input(0)
            if number not in (wrong, other):
                new.replace(node.outputs[0], _softmax(new, x, -1, graph.opset))
            elif how == "axis":
                new.replace(node.outputs[0], _softmax(new, x, -2, graph.opset))
            else:
                new.replace(node.outputs[0], _broken(new, node, how))


def _softmax(new: Builder, x: Value, axis: int, opset: int) -> Value:
    if opset < 18:
        largest = new.node("ReduceMax", x, axes=[-1], keepdims=1)
    else:
        largest = new.node("ReduceMax", x, new.constant(np.array([-1])), keepdims=1)
    powers = new.node("Exp", new.node("Sub", x, largest))
    total = new.node("ReduceSum", powers, new.constant(np.array([axis])), keepdims=1)
    return new.node("Div", powers, total)


def _broken(new: Builder, node: Node, how: How) -> Value:
    x = node.required_input(0)
    if how == "checker":
        return new.node("Softmax", x, temperature=2)
    if how == "refused":
        return new.node("Reshape", new.node("Reshape", x, new.constant(np.array([7, -1]))), new.node("Shape", x))
    # The quotient of the least integer and -1 is too large, and the processor stops there.
    least = new.constant(np.array(np.iinfo(np.int32).min, np.int32))
    quotient = new.node("Div", least, new.constant(np.array(-1, np.int32)))
    return new.node("Add", new.node("Softmax", x, axis=-1), new.node("Cast", quotient, to=1))


@graph_pass("wrong-without-sites", parity=Parity.EXACT)
def wrong_without_sites(graph: Graph) -> None:
    """Turn each Erf into Tanh after the engine's back."""
    for node in graph.ir.graph:
        if node.op_type == "Erf":
            node.op_type = "Tanh"


@graph_pass("wrong-next-to-sites", parity=Parity.EXACT)
def wrong_beside_sites(graph: Graph) -> None:
    """Rename the first output after the engine's back, and drop an Identity as a site."""
    graph.ir.graph.outputs[0].name = "renamed"
    for node in graph.nodes("Identity"):
        graph.replace(node.outputs[0], node.required_input(0))


@graph_pass("wrong-in-two-halves", parity=Parity.EXACT)
def wrong_in_two_halves(graph: Graph) -> None:
    """Negate what each Neg reads, and what it gives: right where both are done, or none."""
    for node in graph.nodes("Neg"):
        with graph.site(node) as new:
            new.set_input(node, 0, new.node("Neg", node.required_input(0)))
