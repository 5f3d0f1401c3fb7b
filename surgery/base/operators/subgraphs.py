"""Operators with subgraphs, and the walk over the nodes and subgraphs of a protobuf model.

Needs a row in `BODIES` or `OWN_MODELS` for each operator with a subgraph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from surgery.base.operators.forms import Schema

if TYPE_CHECKING:
    import onnx


BODIES = {"If": (1, 0), "Loop": (2, 1), "Scan": (0, 0), "SequenceMap": (0, 0)}
"""Operators that run a subgraph: the number of leading inputs that decide which subgraph runs, or how often, and the
number of leading outputs of the subgraph that are not outputs of the node."""


OWN_MODELS = frozenset({"BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"})
"""Operators of ONNX Runtime that run separate models with inputs and outputs of their own."""


def without_row(schema: Schema) -> Iterator[str]:
    """Yield the subgraph attributes of an operator without a row."""
    if schema.name not in BODIES.keys() | OWN_MODELS:
        yield from (f"subgraph {name}" for name, kind in schema.attributes.items() if kind.startswith("GRAPH"))


def bodies(attribute: onnx.AttributeProto) -> Sequence[onnx.GraphProto]:
    """List the graphs in an attribute."""
    if attribute.HasField("g"):
        return [*attribute.graphs, attribute.g]
    graphs: Sequence[onnx.GraphProto] = attribute.graphs
    return graphs


def initializer_names(graph: onnx.GraphProto) -> set[str]:
    """Return the names of the initializers of a graph, including sparse ones."""
    return {one.name for one in graph.initializer} | {one.values.name for one in graph.sparse_initializer}


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
    """Yield nodes, each followed by the nodes of its subgraphs."""
    stack = [*reversed(nodes)]
    while stack:
        node = stack.pop()
        yield node
        for graph in subgraphs(node):
            stack.extend(reversed(graph.node))


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield every node of a model: main graph, functions, and subgraphs at any depth."""
    yield from nested(model.graph.node)
    for function in model.functions:
        yield from nested(function.node)


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node and its subgraphs read, including names of values produced in the subgraphs."""
    for inner in nested([node]):
        yield from (name for name in inner.input if name)
        for graph in subgraphs(inner):
            yield from (value.name for value in graph.output)
