"""The scopes of an onnx-ir model: its graph, the subgraphs of nodes, and the bodies of functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from onnx import AttributeProto

if TYPE_CHECKING:
    import onnx_ir as ir

# The numbers of onnx-ir, which is not imported here because its import takes longer than starting a reference run.
_GRAPH, _GRAPHS = int(AttributeProto.GRAPH), int(AttributeProto.GRAPHS)


def scopes(model: ir.Model) -> Iterator[ir.Graph]:
    """Yield the main graph and the function bodies, each with its subgraphs at any depth."""
    return nested([model.graph, *(function.graph for function in model.functions.values())])


def nested(graphs: Iterable[ir.Graph]) -> Iterator[ir.Graph]:
    """Yield graphs, each followed by its subgraphs at any depth."""
    pending = [*graphs][::-1]
    while pending:
        scope = pending.pop()
        yield scope
        pending += [inner for node in scope for inner in subgraphs(node)][::-1]


def subgraphs(node: ir.Node) -> Sequence[ir.Graph]:
    """List the graphs in the attributes of a node."""
    attributes = node.attributes.data
    if not attributes:  # a fast path, because this is called very often
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
    """Yield each value of the graphs once: inputs, initializers and node outputs."""
    for graph in graphs:
        yield from graph.inputs
        for value in graph.initializers.values():
            if not value.is_graph_input():
                yield value
        for node in graph:
            yield from node.outputs


def captured(graphs: Sequence[ir.Graph]) -> set[ir.Value]:
    """Return the values of other graphs that graphs read, or return as their outputs."""
    read = {value for graph in graphs for node in graph for value in node.inputs if value is not None}
    return read.union(*(graph.outputs for graph in graphs)).difference(values(graphs))
