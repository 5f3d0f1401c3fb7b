"""The scopes of a model of onnx-ir: its graph, the subgraphs of nodes, the bodies of functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx_ir as ir


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
        if (kind == ir.AttributeType.GRAPH or kind == ir.AttributeType.GRAPHS) and not attribute.is_ref():
            found += [attribute.as_graph()] if kind == ir.AttributeType.GRAPH else attribute.as_graphs()
    return found


def bodies(attribute: ir.Attr) -> list[ir.Graph]:
    """List the graphs in an attribute."""
    if attribute.is_ref() or attribute.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return []
    return [attribute.as_graph()] if attribute.type == ir.AttributeType.GRAPH else [*attribute.as_graphs()]


def values(graphs: Iterable[ir.Graph]) -> Iterator[ir.Value]:
    """Yield each value of the graphs once: inputs, initializers, node outputs."""
    for graph in graphs:
        yield from graph.inputs
        for value in graph.initializers.values():
            if not value.is_graph_input():
                yield value
        for node in graph:
            yield from node.outputs
