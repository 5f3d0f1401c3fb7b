"""Inputs that make no difference."""

from surgery import Graph, Parity, graph_pass


@graph_pass("drop-unused-inputs", parity=Parity.EXACT, changes=("inputs",))
def drop_unused_inputs(graph: Graph, *, keep: tuple[str, ...] = ()) -> None:
    """Remove inputs of the model that are neither read by a node nor an output.

    Right because nothing that a caller gives there has an influence. Callers must not give it any more: a runtime
    refuses an input that it does not know. With an input goes its default value, if it has one.

    Options:
        keep: Inputs that stay although nothing reads them, by name.

    Example:
        g (float[2] x, int64 unused) => (float[2] y) { y = Relu(x) }
    """
    for value in graph.inputs():
        if not value.is_used and value.name not in keep:
            with graph.site() as new:
                new.drop_input(value)
