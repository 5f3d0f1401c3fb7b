"""The outputs of a model."""

from surgery import Graph, Parity, TensorNames, UsageError, graph_pass

from ._asked import asked, keep_outputs, require_type


@graph_pass("set-outputs", parity=Parity.EXACT, changes=("outputs", "order"))
def set_outputs(graph: Graph, *, outputs: TensorNames) -> None:
    """Set the outputs of the model to exactly these tensors, in this order; remove nodes that are no longer needed.

    Right because each output has the value that this tensor has in the model. Inputs stay, even unused ones:
    `drop-unused-inputs` removes them. A new output has the known type and dims of the tensor.

    Options:
        outputs: The tensors, by name or glob.

    Example:
        # options: {outputs: [t, y]}
        g (float[2] x) => (float[2] y, float[2] z) { t = Relu(x) y = Exp(t) z = Neg(t) }
    """
    if not outputs:
        raise UsageError("a model must have an output", todo="name one in 'outputs'")
    wanted = graph.tensors(outputs)
    with asked(graph) as new:
        keep_outputs(graph, new, wanted)


@graph_pass("add-outputs", parity=Parity.EXACT, changes=("outputs",))
def add_outputs(graph: Graph, *, outputs: TensorNames) -> None:
    """Add intermediate tensors as outputs, after the existing ones.

    Right because nothing else changes: each new output has the value of this tensor in the model, with its known type
    and dims. A tensor that already is an output keeps its position.

    Options:
        outputs: The tensors, by name or glob.

    Example:
        # options: {outputs: t}
        g (float[2] x) => (float[2] y) { t = Relu(x) y = Exp(t) }
    """
    added = [value for value in graph.tensors(outputs) if not value.is_output]
    with asked(graph) as new:
        for value in added:
            require_type(value)
            new.add_output(value)


@graph_pass("remove-outputs", parity=Parity.EXACT, changes=("outputs",))
def remove_outputs(graph: Graph, *, outputs: TensorNames) -> None:
    """Remove outputs of the model and the nodes that only they need.

    Inputs stay, even unused ones: `drop-unused-inputs` removes them.

    Options:
        outputs: Outputs of the model, by name or glob; at least one must remain.

    Example:
        # options: {outputs: z}
        g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x) z = Neg(x) }
    """
    leaving = graph.tensors(outputs, among=graph.outputs(), kind="output of the model")
    if len(leaving) == len(graph.outputs()):
        raise UsageError("no output would be left", todo="keep one, or name the new ones with 'set-outputs'")
    with asked(graph) as new:
        for value in leaving:
            new.drop_output(value)
