"""Chains of Concat."""

from surgery import Graph, Node, Parity, Value, graph_pass


@graph_pass("merge-concats", parity=Parity.EXACT)
def merge_concats(graph: Graph) -> None:
    """Merge Concats along the same axis into the Concat that reads them.

    Right because concatenation is associative. A Concat with other consumers stays and is not merged; otherwise its
    elements would be copied twice and no node saved.

    Example:
        g (float[A] a, float[B] b, float[C] c) => (float[N] y) {
            ab = Concat<axis = 0>(a, b)
            y = Concat<axis = 0>(ab, c)
        }
    """
    for node in graph.nodes("Concat"):
        with graph.site(node) as new:
            axis = node.attr("axis", 1)
            inputs = _flat(node, axis)
            if len(inputs) != len(node.inputs):
                new.replace(node.outputs[0], new.node("Concat", *inputs, axis=axis))


def _flat(node: Node, axis: int) -> list[Value | None]:
    """List the inputs of a Concat, replacing mergeable Concats with their own inputs at any depth."""
    found: list[Value | None] = []
    pending = [(value, node) for value in reversed(node.inputs)]
    while pending:
        value, reader = pending.pop()
        inner = None if value is None else value.producer
        if value is None or inner is None or not _goes_with(inner, reader, axis):
            found.append(value)
        else:
            pending += [(part, inner) for part in reversed(inner.inputs)]
    return found


def _goes_with(inner: Node, reader: Node, axis: int) -> bool:
    """Return whether a node is a Concat along the same axis whose only reader is `reader`."""
    if inner.op != "Concat" or inner.scope is not reader.scope:
        return False
    value = inner.outputs[0]
    if value.is_output or value.consumers != [reader]:
        return False
    own = inner.attr("axis", 1)
    return own == axis or (value.rank is not None and own % value.rank == axis % value.rank)
