"""Weights that a caller may override."""

from surgery import Graph, Parity, graph_pass


@graph_pass("initializers-from-inputs", parity=Parity.EXACT, changes=("inputs",))
def initializers_from_inputs(graph: Graph, *, keep: tuple[str, ...] = ()) -> None:
    """Remove initializers from the inputs of the model, so that callers cannot override them.

    Right for callers that leave these inputs to their defaults. IR version 3 required exporters to list every weight as
    an input; since IR version 4, such a weight is only a default value and cannot be folded. Models of IR version 3 are
    not changed, because there such weights are constants.

    Options:
        keep: Inputs that are not changed, by name.

    Example:
        g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }
    """
    for value in graph.inputs():
        if value.is_overridable and value.name not in keep:
            with graph.site() as new:
                new.drop_input(value)
