"""Operators with subgraphs, and the one walk over the nodes and subgraphs of a model as a message.

Needs a row in `BODIES` or `OWN_MODELS` for each operator with a subgraph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from surgery.operators.forms import Schema

if TYPE_CHECKING:
    import onnx


BODIES = {"If": (1, 0), "Loop": (2, 1), "Scan": (0, 0), "SequenceMap": (0, 0)}
"""Operators that run a subgraph: how many inputs decide how often, or which of them, it runs; and how many outputs of
the subgraph come before those that the node hands on."""


OWN_MODELS = frozenset({"BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"})
"""Operators of ONNX Runtime that run separate models, whose inputs and outputs are not those of the node."""


def without_row(schema: Schema) -> Iterator[str]:
    """Yield the attributes that hold subgraphs of an operator of which nothing is known."""
    if schema.name not in BODIES.keys() | OWN_MODELS:
        yield from (f"subgraph {name}" for name, kind in schema.attributes.items() if kind.startswith("GRAPH"))


def bodies(attribute: onnx.AttributeProto) -> Sequence[onnx.GraphProto]:
    """List the graphs in an attribute."""
    if attribute.HasField("g"):
        return [*attribute.graphs, attribute.g]
    graphs: Sequence[onnx.GraphProto] = attribute.graphs
    return graphs


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs in the attributes of a node."""
    for attribute in node.attribute:
        yield from bodies(attribute)


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and its subgraphs at any depth."""
    pending = [graph]
    while pending:
        current = pending.pop()
        yield current
        for node in current.node:
            pending.extend(subgraphs(node))


def nested(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, each with those of its subgraphs after it."""
    stack = [*reversed(nodes)]
    while stack:
        node = stack.pop()
        yield node
        for graph in subgraphs(node):
            stack.extend(reversed(graph.node))


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield every node of a model: main graph, functions, subgraphs at any depth."""
    yield from nested(model.graph.node)
    for function in model.functions:
        yield from nested(function.node)


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node and its subgraphs read; those of values that the subgraphs make are among them."""
    for inner in nested([node]):
        yield from (name for name in inner.input if name)
        for graph in subgraphs(inner):
            yield from (value.name for value in graph.output)
