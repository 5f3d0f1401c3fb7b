"""Inputs without effect."""

from surgery import Graph, Parity, graph_pass


@graph_pass("drop-unused-inputs", parity=Parity.EXACT, changes=("inputs",))
def drop_unused_inputs(graph: Graph, *, keep: tuple[str, ...] = ()) -> None:
    """Remove inputs of the model that are neither read by a node nor an output.

    Right because the values of such inputs have no effect. Callers must no longer pass them, because runtimes reject
    unknown inputs. The default value of an input is removed with it.

    Options:
        keep: Unused inputs to keep, by name.

    Example:
        g (float[2] x, int64 unused) => (float[2] y) { y = Relu(x) }
    """
    for value in graph.inputs():
        if not value.is_used and value.name not in keep:
            with graph.site() as new:
                new.drop_input(value)
