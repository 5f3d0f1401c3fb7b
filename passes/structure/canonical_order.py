"""A canonical order for the nodes of a model, independent of their order in the file."""

from collections.abc import Iterable, Iterator
from typing import Any

from surgery import Graph, Node, Parity, Value, graph_pass


@graph_pass("canonical-order", parity=Parity.EXACT)
def canonical_order(graph: Graph) -> None:
    """Sort nodes, initializers and declared types into an order that depends only on the computation.

    Files of one model that differ only in these orders become equal byte by byte, which suits version control and
    caches. Right because every node still comes after its inputs.

    The order is that of a depth-first traversal from the outputs: the dependencies of the first operand of a node, then
    those of the second, then the node itself. So values are computed shortly before they are read, and few are alive at
    a time; an order by depth would keep a value of each branch. Values that a subgraph captures count as operands of
    its node, after its own. Unused nodes come last, ordered by the names of their outputs. Initializers are ordered by
    their first use, then by name. Takes linear time, except for sorting names.

    Example:
        g (float[2] x) => (float[2] y) { b = Exp(x) a = Neg(x) y = Sub(a, b) }
    """
    walk = _Walk(graph)
    with graph.site() as new:
        # Inner graphs come after the graphs that contain them, and are needed first.
        for scope in reversed(graph.scopes):
            nodes = walk.order(scope)
            new.arrange(scope, nodes, walk.initializers(scope, nodes))


class _Walk:
    """Orders graphs, inner graphs first. `captured` holds the values that each graph reads from enclosing graphs."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.captured: dict[Any, dict[Value, None]] = {}
        self.inner: dict[Node, list[Any]] = {}
        for scope, holder in graph.holders().items():
            self.inner.setdefault(holder, []).append(scope)

    def order(self, scope: Any) -> list[Node]:
        """List the nodes of a graph in order."""
        done: dict[Node, None] = {}
        self._visit(scope, self._makers(scope, (Value(self.graph, value) for value in scope.outputs)), done)
        dead = [node for item in scope if (node := Node(self.graph, item)) not in done]
        self._visit(scope, iter(sorted(dead, key=_name)), done)
        outputs = (Value(self.graph, value) for value in scope.outputs)
        read = dict.fromkeys([*(value for node in done for value in self._reads(node)), *outputs])
        self.captured[scope] = {value: None for value in read if value.scope is not scope}
        return list(done)

    def initializers(self, scope: Any, nodes: list[Node]) -> list[Value]:
        """List the initializers of a graph in order."""
        held = {Value(self.graph, value) for value in scope.initializers.values()}
        read = dict.fromkeys(value for node in nodes for value in self._reads(node) if value in held)
        return [*read, *sorted(held - read.keys(), key=lambda value: value.name)]

    def _visit(self, scope: Any, starts: Iterator[Node], done: dict[Node, None]) -> None:
        """Add nodes to `done`, each after the nodes that it needs."""
        seen = set(done)
        stack: list[tuple[Node | None, Iterator[Node]]] = [(None, starts)]
        while stack:
            node, needed = stack[-1]
            further = next((maker for maker in needed if maker not in seen), None)
            if further is not None:
                seen.add(further)
                stack.append((further, self._makers(scope, self._reads(further))))
                continue
            stack.pop()
            if node is not None:
                done[node] = None

    def _makers(self, scope: Any, values: Iterable[Value]) -> Iterator[Node]:
        """Yield the nodes of a graph that produce these values."""
        for value in values:
            maker = value.producer
            if maker is not None and maker.scope is scope:
                yield maker

    def _reads(self, node: Node) -> Iterator[Value]:
        yield from (value for value in node.inputs if value is not None)
        for scope in self.inner.get(node, ()):
            yield from self.captured[scope]


def _name(node: Node) -> str:
    return min((value.name for value in node.outputs if value.name), default=node.name)
