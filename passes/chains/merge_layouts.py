"""Chains of Transpose, Reshape, Flatten, Squeeze and Unsqueeze."""

from collections import deque
from collections.abc import Iterator

from surgery import Graph, Node, Parity, Value, graph_pass

from ._layout import Plan, plan
from ._shared import MOVEMENTS, axes_of, is_known_movement

LONGEST = 12
"""Maximum number of nodes examined together; the rest of a longer chain is examined later."""


@graph_pass("merge-layouts", parity=Parity.EXACT)
def merge_layouts(graph: Graph) -> None:
    """Merge chains of Transpose, Reshape, Flatten, Squeeze and Unsqueeze into as few nodes as possible.

    Right because each of them only rearranges elements: it splits, merges or permutes axes. Through the chain, the
    parts of the original axes end up in some order, which at most one Reshape, one Transpose and one Reshape produce.
    Dims may be symbolic; a product like "64*batch" is split where a Reshape splits it. The chain stays if a dim cannot
    be given as a number, a copy (0) or one -1, or if the parts do not fit, as in 6·4 read as 4·6. Values with other
    consumers stay and do not count as saved.

    A Transpose that only moves axes of extent 1 becomes a Reshape, because no element moves. A -1 is used next to a 0
    only if the chain also has a -1, because such a dim cannot be inferred for an empty tensor.

    Example:
        g (float[N,3,4,5] x) => (float[N,3,5,4] y) <int64[3] joined = {-1, 4, 5}, int64[4] apart = {-1, 3, 5, 4}> {
            a = Reshape(x, joined)
            b = Transpose<perm = [0, 2, 1]>(a)
            c = Reshape(b, apart)
            y = Relu(c)
        }
    """
    todo = deque(graph.nodes(*MOVEMENTS))
    while todo:
        last = todo.popleft()
        if last.is_removed or not is_known_movement(last) or _goes_on(last):
            continue
        before = len(graph.changed_nodes)
        source = None
        with graph.site(last) as new:
            found = _best(last)
            if found is not None:
                new.replace(last.outputs[0], found.build(new))
                source = found.source.producer
        # If a whole chain is removed, the node before it becomes the end of a chain.
        todo.extend(Node(graph, node) for node in graph.changed_nodes[before:] if node.op_type in MOVEMENTS)
        todo.extend([source] if source is not None else [])


def _goes_on(last: Node) -> bool:
    """Return whether the chain continues after a node: its only reader moves elements, too."""
    value = last.outputs[0]
    readers = value.consumers
    return not value.is_output and len(readers) == 1 and is_known_movement(readers[0])


def _best(last: Node) -> Plan | None:
    """Return the plan that saves the most nodes; None if no plan saves any."""
    best, most = None, 0
    for source, length, leaving in _chains(last):
        path = _path(last, length)
        found = plan(source, last.outputs[0], [_step(node) for node in path])
        if found is None or (found.fails_on_empty and not any(_infers(node) for node in path)):
            continue
        saved = leaving - found.nodes
        turns = length == 1 and last.op == "Transpose" and found.is_reshape and saved == 0
        if saved > most or (turns and best is None):
            best, most = found, saved
    return best


def _path(last: Node, length: int) -> list[Node]:
    """Return the last nodes of the chain, in the order of computation."""
    path = [last]
    while len(path) < length:
        producer = path[-1].required_input(0).producer
        assert producer is not None
        path.append(producer)
    return path[::-1]


def _chains(last: Node) -> Iterator[tuple[Value, int, int]]:
    """Yield each possible start of the chain that ends here: the value, and the numbers of all and removed nodes."""
    node, leaving, shared = last, 1, False
    for length in range(1, LONGEST + 1):
        source = node.required_input(0)
        yield source, length, leaving
        producer = source.producer
        if producer is None or producer.scope is not last.scope or not is_known_movement(producer):
            return
        shared = shared or source.is_output or source.reads > 1
        leaving += not shared
        node = producer


def _infers(node: Node) -> bool:
    """Return whether a node is a Reshape that infers a dim."""
    return node.op == "Reshape" and -1 in (axes_of(node) or ())


def _step(node: Node) -> tuple[list[int] | None, Value]:
    """Return the permutation of a Transpose, or None for other nodes, and the result of the node."""
    result = node.outputs[0]
    if node.op != "Transpose":
        return None, result
    return node.attr("perm") or list(range(result.rank or 0))[::-1], result
