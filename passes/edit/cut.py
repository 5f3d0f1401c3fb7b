"""New inputs and outputs of a model at given tensors."""

from surgery import Graph, Parity, TensorNames, UsageError, Value, graph_pass

from ._asked import asked, keep_outputs, main_nodes, require_type


@graph_pass("cut", parity=Parity.EXACT, changes=("inputs", "outputs"))
def cut(graph: Graph, *, inputs: TensorNames | None = None, outputs: TensorNames | None = None) -> None:
    """Cut the model at tensors: those in `inputs` become inputs, and those in `outputs` replace the outputs after them.

    A tensor in `inputs` becomes an input of the model; the nodes and inputs that only it needed are removed. A tensor
    in `outputs` becomes an output, and the outputs that depend on it are removed. Unlike in `extract`, all other inputs
    and outputs stay.

    Right because the remaining tensors are computed as before: for verification, nodes of the original compute the new
    inputs, and each output is compared with the value of the original.

    Options:
        inputs: The tensors that become inputs, by name or glob.
        outputs: The tensors that become outputs, by name or glob.

    Example:
        # options: {inputs: a, outputs: b}
        g (float[2] x) => (float[2] y, float[2] z) { a = Relu(x) b = Exp(a) y = Neg(b) z = Abs(x) }
    """
    if not inputs and not outputs:
        raise UsageError("the place to cut is missing", todo="name tensors in 'inputs' or 'outputs'")
    starts = [value for value in graph.tensors(inputs or ()) if not value.is_input or value.is_overridable]
    ends = graph.tensors(outputs or ())
    _require_use(graph, starts, ends)
    downstream = graph.below(ends)
    gone = {value for node in downstream for value in node.outputs} - {*ends} | {*starts}
    kept = [value for value in graph.outputs() if value not in gone]
    read = [value for value in graph.inputs() if value.is_used]
    with asked(graph) as new:
        keep_outputs(graph, new, list(dict.fromkeys([*kept, *ends])))
        for value in starts:
            require_type(value)
            new.cut(value)
        for node in downstream:
            if not any(value.is_used for value in node.outputs):
                new.remove(node)
    with graph.site() as new:
        for value in read:
            if value in graph.inputs() and not value.is_used:
                new.drop_input(value)


def _require_use(graph: Graph, starts: list[Value], ends: list[Value]) -> None:
    """Raise UsageError for a tensor that would be both an input and an output, or an unread input."""
    read = {value for node in main_nodes(graph) for value in graph.reads(node)}
    for value in starts:
        if value in ends:
            raise UsageError(f"'{value.name}' would be both an input and an output", todo="omit it on one side")
        if value not in read:
            raise UsageError(f"nothing reads '{value.name}'", todo="omit it from the inputs")
