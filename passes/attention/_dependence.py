"""Which values are computed from which."""

from collections.abc import Iterable
from functools import cached_property

from surgery import Graph, Node, Value


class Dependence:
    """Answers whether values are computed from others, using the order of the nodes at the start of the pass.

    Nodes before a node do not depend on its results, so only the nodes in between are visited.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def _places(self) -> dict[Node, int]:
        return {node: place for place, node in enumerate(self._graph.main_nodes())}

    def any_on(self, values: Iterable[Value], wanted: set[Value]) -> bool:
        """Return whether any of the values is in `wanted` or is computed from one of them."""
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
