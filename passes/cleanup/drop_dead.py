"""Nodes, functions and initializers that nothing reads."""

from surgery import Graph, Parity, graph_pass


@graph_pass("drop-dead", parity=Parity.EXACT)
def drop_dead(graph: Graph) -> None:
    """Remove nodes, model-local functions and initializers that no output needs.

    Right because operators have no side effects, so nodes that no graph output depends on are unobservable. This holds
    in the main graph, in subgraphs and in functions. A node without outputs stays, because it must have an effect.
    Overridable initializers are part of the interface and stay; so do all inputs of the model. In IR versions before 4,
    an initializer is removed together with its input entry, which was mandatory.

    Example:
        g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
            a = Add(x, w)
            y = Relu(x)
        }
    """
    _drop_functions(graph)
    # Subgraphs before the nodes that contain them, and readers before producers: one site for each loose end.
    for node in reversed(graph.nodes()):
        if not node.is_removed and node.outputs and not any(value.is_used for value in node.outputs):
            graph.remove(node)
    _drop_functions(graph)
    for value in graph.constants():
        if not value.is_used:
            with graph.site() as new:
                new.drop(value)


def _drop_functions(graph: Graph) -> None:
    unused = graph.uncalled()
    if unused:
        with graph.site() as new:
            for function in unused:
                new.drop_function(function)
