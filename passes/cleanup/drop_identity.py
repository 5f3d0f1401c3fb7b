"""Identity nodes."""

from surgery import Graph, Parity, graph_pass


@graph_pass("drop-identity", parity=Parity.EXACT)
def drop_identity(graph: Graph) -> None:
    """Remove Identity nodes.

    Right because Identity copies its input, so its consumers can read that input. An Identity stays if a graph output
    needs it, because its input is a graph input, a constant, a value from outside the subgraph, or another output of
    the same graph.

    Example:
        g (float[2] x) => (float[2] y) {
            a = Identity(x)
            b = Relu(a)
            y = Identity(b)
        }
    """
    for node in graph.nodes("Identity"):
        with graph.site(node) as new:
            new.replace(node.outputs[0], node.required_input(0))
