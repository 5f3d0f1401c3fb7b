"""A part of a model as a separate model."""

from surgery import Builder, Graph, Node, NodeSelector, Parity, TensorNames, UsageError, Value, graph_pass

from ._asked import asked, keep_outputs, main_nodes, outermost, require_type


@graph_pass("extract", parity=Parity.EXACT, changes=("inputs", "outputs", "order"))
def extract(
    graph: Graph,
    *,
    inputs: TensorNames | None = None,
    outputs: TensorNames | None = None,
    nodes: NodeSelector | None = None,
) -> None:
    """Extract a submodel: only the nodes between the tensors `inputs` and the tensors `outputs`.

    The inputs and outputs of the piece are those tensors, in this order, with the names, types and dims that they have
    in the model, inferred where they are not declared; so adjacent pieces fit together. Without `inputs`, the piece
    begins at the inputs of the model; without `outputs`, it ends at its outputs. With `nodes`, the piece consists of
    these nodes: its inputs are the values that they read from other nodes, its outputs the values that other nodes read
    from them. Constants, captured values and called functions are included. Overridable initializers stay overridable.

    Right because the tensors of the piece are computed as in the model: for verification, nodes of the model compute
    its inputs, and its outputs are compared with the values of the model.

    Options:
        inputs: The tensors that become inputs, by name or glob.
        outputs: The tensors that become outputs, by name or glob.
        nodes: The nodes of the piece, instead of `inputs` and `outputs`.

    Example:
        # options: {inputs: a, outputs: b}
        g (float[2] x) => (float[2] y) { a = Relu(x) b = Exp(a) y = Neg(b) }
    """
    if nodes is not None:
        if inputs or outputs:
            raise UsageError("extract takes either 'nodes' or 'inputs' and 'outputs'", todo="omit one of them")
        starts, ends = _boundary(graph, outermost(graph, graph.select(nodes)))
    elif inputs or outputs:
        starts, ends = graph.tensors(inputs or ()), graph.tensors(outputs or ()) or graph.outputs()
    else:
        raise UsageError("extract needs a selection", todo="give 'inputs' and 'outputs', or 'nodes'")
    piece = graph.above(ends, starts)
    _require_closed(graph, starts, ends, piece)
    names = [value.name for value in starts]
    with asked(graph) as new:
        _keep(graph, new, starts, ends, piece)
    _tidy(graph, names)


def _boundary(graph: Graph, chosen: list[Node]) -> tuple[list[Value], list[Value]]:
    """Return the tensors at which a set of nodes of the main graph begins and ends."""
    made = [value for node in chosen for value in node.outputs if value.name]
    own = {*made}
    read = dict.fromkeys(value for node in chosen for value in graph.reads(node))
    starts = [value for value in read if value not in own and not value.is_constant and not value.is_overridable]
    inside = set(chosen)
    outside = {value for node in main_nodes(graph) if node not in inside for value in graph.reads(node)}
    dead = {value for node in chosen if not any(out.is_used for out in node.outputs) for value in node.outputs}
    ends = [value for value in made if value.is_output or value in outside or value in dead]
    return starts, ends


def _require_closed(graph: Graph, starts: list[Value], ends: list[Value], piece: list[Node]) -> None:
    """Raise UsageError unless the piece needs all tensors in `starts`, and no other input of the model."""
    both = next((value for value in starts if value in ends), None)
    if both is not None:
        raise UsageError(f"'{both.name}' would be both an input and an output", todo="omit it on one side")
    read = {value for node in piece for value in graph.reads(node)}
    useless = next((value for value in starts if value not in read), None)
    if useless is not None:
        raise UsageError(f"the outputs do not depend on '{useless.name}'", todo="omit it from the inputs")
    needed = [value for value in graph.inputs() if value in read or value in ends]
    more = [f"'{value.name}'" for value in needed if value not in starts and not value.is_overridable]
    if starts and more:
        raise UsageError(f"the outputs also depend on {', '.join(more)}", todo="add the missing inputs")


def _keep(graph: Graph, new: Builder, starts: list[Value], ends: list[Value], piece: list[Node]) -> None:
    """Reduce the model to the piece, except for inputs that it does not read."""
    inside = set(piece)
    keep_outputs(graph, new, ends)
    for value in starts:
        if not value.is_input:
            require_type(value)
            new.cut(value)
    for node in main_nodes(graph):
        # Nodes that lead to a removed output are removed with it; the others are dead.
        if node not in inside and not any(value.is_used for value in node.outputs):
            new.remove(node)


def _tidy(graph: Graph, names: list[str]) -> None:
    """Remove inputs, constants and functions that the piece does not need, and put the inputs in order."""
    inputs = sorted(graph.inputs(), key=lambda value: names.index(value.name) if value.name in names else len(names))
    unread = [value for value in inputs if not value.is_used]
    kept = [value for value in inputs if value.is_used]
    constants = [value for value in graph.constants() if not value.is_used]
    functions = graph.uncalled()
    with graph.site() as new:
        for value in unread:
            new.drop_input(value)
        for value in constants:
            new.drop(value)
        for function in functions:
            new.drop_function(function)
        if kept != [value for value in graph.inputs() if value in kept]:
            new.order_ports(inputs=kept)
