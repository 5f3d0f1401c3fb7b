"""Which values are computed from which."""

from collections.abc import Iterable
from functools import cached_property

from surgery import Graph, Node, Value


class Dependence:
    """Answers whether values are computed from others, by the order of the nodes as the pass found them.

    What stands before a node is not computed from its results: only the nodes in between are looked at.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def _places(self) -> dict[Node, int]:
        return {node: place for place, node in enumerate(self._graph.main_nodes())}

    def any_on(self, values: Iterable[Value], wanted: set[Value]) -> bool:
        """Return whether one of the values is computed from one of `wanted`, or is one."""
        makers = [value.producer for value in wanted]
        first = min((-1 if maker is None else self._places.get(maker, -1) for maker in makers), default=-1)
        pending, seen = [*values], set[Value]()
        while pending:
            current = pending.pop()
            if current in wanted:
                return True
            node = current.producer
            if current in seen or node is None or self._places.get(node, first) < first:
                continue
            seen.add(current)
            pending += [operand for operand in node.inputs if operand is not None]
        return False
