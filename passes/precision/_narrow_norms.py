"""Norms that are written out: converted as a whole, or not at all.

ONNX Runtime fuses a norm whose parts have one type, with Casts before and after it, but none with Casts inside.
"""

from __future__ import annotations

from collections.abc import Iterator

from surgery import Graph, Node

from ._narrow_nodes import is_default


def norms(graph: Graph) -> Iterator[list[Node]]:
    """Yield the nodes of each norm, from the square or the centred value to the division by the root of the mean."""
    for root in graph.nodes("Sqrt"):
        total = _maker(root, "Add")
        mean = _maker(total, "ReduceMean")
        square = _maker(mean, "Mul", "Pow")
        if total is None or mean is None or square is None:
            continue
        readers = list(_readers(root, "Div", "Reciprocal"))
        products = [node for one in readers if one.op == "Reciprocal" for node in _readers(one, "Mul")]
        centred = _maker(square, "Sub")
        first = _maker(centred, "ReduceMean")
        before = [] if centred is None or first is None else [first, centred]
        if any(node.op != "Reciprocal" for node in readers) or products:
            yield [*before, square, mean, total, root, *readers, *products]


def _maker(node: Node | None, *ops: str) -> Node | None:
    """Return the node with one of these operators that computes an input of a node in the same graph, or None."""
    makers = [] if node is None else [value.producer for value in node.inputs if value is not None]
    found = (maker for maker in makers if maker is not None and is_default(maker) and maker.op in ops)
    return next((maker for maker in found if node is not None and maker.scope is node.scope), None)


def _readers(node: Node, *ops: str) -> Iterator[Node]:
    """Yield the nodes with one of these operators that read the output of a node in the same graph."""
    for reader in dict.fromkeys(node.outputs[0].consumers):
        if reader.scope is node.scope and is_default(reader) and reader.op in ops:
            yield reader
