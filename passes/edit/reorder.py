"""The order of inputs and outputs."""

from collections.abc import Sequence

from surgery import Graph, Parity, TensorNames, UsageError, Value, graph_pass

from ._asked import asked


@graph_pass("reorder", parity=Parity.EXACT, changes=("order",))
def reorder(graph: Graph, *, inputs: TensorNames | None = None, outputs: TensorNames | None = None) -> None:
    """Put inputs and outputs of the model into another order.

    Listed ones come first, in the order of the list; the others follow in the order that they have. For callers that
    pass inputs or read outputs by position: ONNX Runtime takes inputs by name, and returns all outputs in the order of
    the model. Right because each input and output keeps its name and its value: results are compared by name.

    Inputs with a default, which a caller may leave out, can be listed too, and so move before or after others.

    Options:
        inputs: names of inputs, or globs, all or only those that come first.
        outputs: names of outputs, or globs, all or only those that come first.

    Example:
        # options: {inputs: [b, a], outputs: [z]}
        g (float[2] a, float[2] b) => (float[2] y, float[2] z) { y = Relu(a) z = Sub(b, a) }
    """
    if not inputs and not outputs:
        raise UsageError("there is nothing to do", todo="list inputs or outputs, the first one first")
    first = _listed(graph, graph.inputs(), inputs or (), "input")
    last = _listed(graph, graph.outputs(), outputs or (), "output")
    with asked(graph) as new:
        if _moves(graph.inputs(), first):
            new.order_ports(inputs=first)
        if _moves(graph.outputs(), last):
            new.order_ports(outputs=last)


def _listed(graph: Graph, ports: Sequence[Value], names: Sequence[str], kind: str) -> list[Value]:
    """Return the inputs or outputs of these names; UsageError for a name that is unknown or listed twice.

    What fits a glob has the order of the model, without what was listed before.
    """
    known = {port.name: port for port in ports}
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        raise UsageError(f"the {kind} '{twice}' is listed twice")
    unknown = [name for name in names if name not in known and not any(mark in name for mark in "*?[")]
    if unknown:
        listed = ", ".join(f"'{name}'" for name in unknown)
        raise UsageError(f"the model has no {kind} {listed}", todo=f"it has {', '.join(known)}")
    return graph.tensors(names, among=ports, kind=f"{kind} of the model")


def _moves(ports: Sequence[Value], first: Sequence[Value]) -> bool:
    return [*ports[: len(first)]] != [*first]
