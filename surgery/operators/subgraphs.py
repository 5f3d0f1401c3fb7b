"""The subgraphs of a graph, as messages: the one walk over what the attributes of nodes hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and its subgraphs at any depth."""
    pending = [graph]
    while pending:
        current = pending.pop()
        yield current
        for node in current.node:
            for attribute in node.attribute:
                pending.extend(bodies(attribute))


def bodies(attribute: onnx.AttributeProto) -> Sequence[onnx.GraphProto]:
    """List the graphs in an attribute."""
    if attribute.HasField("g"):
        return [*attribute.graphs, attribute.g]
    graphs: Sequence[onnx.GraphProto] = attribute.graphs
    return graphs
