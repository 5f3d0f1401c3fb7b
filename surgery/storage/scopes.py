"""The scopes of a model of onnx-ir: its graph, the subgraphs of nodes, the bodies of functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from onnx import AttributeProto

if TYPE_CHECKING:
    import onnx_ir as ir

# The numbers of onnx-ir, which is not imported here: it takes longer than it takes to start a run of the original.
_GRAPH, _GRAPHS = int(AttributeProto.GRAPH), int(AttributeProto.GRAPHS)


def scopes(model: ir.Model) -> Iterator[ir.Graph]:
    """Yield the main graph, its subgraphs at any depth, and the bodies of functions with theirs."""
    return nested([model.graph, *(function.graph for function in model.functions.values())])


def nested(graphs: Iterable[ir.Graph]) -> Iterator[ir.Graph]:
    """Yield graphs, each with its subgraphs at any depth after it."""
    pending = [*graphs][::-1]
    while pending:
        scope = pending.pop()
        yield scope
        pending += [inner for node in scope for inner in subgraphs(node)][::-1]


def subgraphs(node: ir.Node) -> Sequence[ir.Graph]:
    """List the graphs that the attributes of a node hold."""
    attributes = node.attributes.data
    if not attributes:  # asked of every node, over and over
        return ()
    found: list[ir.Graph] = []
    for attribute in attributes.values():
        kind = attribute.type
        if kind in (_GRAPH, _GRAPHS) and not attribute.is_ref():
            found += [attribute.as_graph()] if kind == _GRAPH else attribute.as_graphs()
    return found


def bodies(attribute: ir.Attr) -> list[ir.Graph]:
    """List the graphs in an attribute."""
    if attribute.is_ref() or attribute.type not in (_GRAPH, _GRAPHS):
        return []
    return [attribute.as_graph()] if attribute.type == _GRAPH else [*attribute.as_graphs()]


def values(graphs: Iterable[ir.Graph]) -> Iterator[ir.Value]:
    """Yield each value of the graphs once: inputs, initializers, node outputs."""
    for graph in graphs:
        yield from graph.inputs
        for value in graph.initializers.values():
            if not value.is_graph_input():
                yield value
        for node in graph:
            yield from node.outputs
