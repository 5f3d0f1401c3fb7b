"""One order for the nodes of a model, however they stand in the file."""

from collections.abc import Iterable, Iterator
from typing import Any

from surgery import Graph, Node, Parity, Value, graph_pass


@graph_pass("canonical-order", parity=Parity.EXACT)
def canonical_order(graph: Graph) -> None:
    """Sort nodes, initializers and declared types into an order that depends only on the computation.

    Two files of one model that differ in these orders become equal byte by byte, which keeps version control and
    caches quiet. Right because every node still stands after what it reads.

    The order is that of a depth-first walk from the outputs, in their order: what the first operand of a node needs,
    then what its second operand needs, then the node itself. So a value is made shortly before it is read, and few
    values are alive at a time; an order by depth would keep a value of each branch. What a subgraph captures counts as
    operands of the node that holds it, after its own. Nodes that no output needs come last, by the names of what they
    make. Initializers stand in the order in which they are first read, then by name. Takes linear time, but for names.

    Example:
        g (float[2] x) => (float[2] y) { b = Exp(x) a = Neg(x) y = Sub(a, b) }
    """
    walk = _Walk(graph)
    with graph.site() as new:
        # What stands inside comes after what is around it, and is needed first.
        for scope in reversed(graph.scopes):
            nodes = walk.order(scope)
            new.arrange(scope, nodes, walk.initializers(scope, nodes))


class _Walk:
    """Orders graphs, those inside others first. `captured` holds what each of them reads of those around it."""

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
        """Add nodes to those that are done, each after what it needs."""
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
        """Yield the nodes of a graph that make values."""
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
