"""Insertion of nodes that are written as text."""

from surgery import Builder, Graph, Keeps, Node, NodeSelector, NodeText, Parity, UsageError, Value, graph_pass

from ._asked import asked, outermost


@graph_pass("insert-nodes", parity=Parity.INTENDED, changes=("types", "dims"))
def insert_nodes(
    graph: Graph,
    *,
    text: NodeText,
    names: dict[str, str] | None = None,
    nodes: NodeSelector | None = None,
    keeps: Keeps = "nothing",
) -> None:
    """Insert nodes that are written as ONNX text, anywhere in the main graph.

    Names in the text are those of tensors. A line that defines a tensor of the model replaces it: what read the old
    tensor reads the new one, and nodes that nothing reads any more are removed. Until then, the name is the old tensor,
    so `t = Mul(t, 2)` inserts an operator after `t`. Other lines define new tensors. A name that has other characters
    than letters, digits, dots and underscores gets a short one in `names`.

    Operators, attributes and constants are written as in `emit` of a rule. This changes the results, unless `keeps`
    declares otherwise.

    Example:
        # options: {text: "t = Mul(a, 2)\\na = Clip(t, 0, 6)"}
        g (float[2] x) => (float[2] y) { a = Exp(x) y = Neg(a) }

    Options:
        text: The nodes, one on each line: `t = Mul(x, 2)`.
        names: Tensors of the model, by the names that the text has for them.
        nodes: The nodes that read the new tensors; by default, all that read the replaced ones.
        keeps: The promise about the results, which is verified; by default, results are not compared.
    """
    chosen = None if nodes is None else graph.select(nodes)
    replaced = text.replaces(graph, names or {})
    readers = outermost(graph, chosen if chosen is not None else [one for value in replaced for one in value.consumers])
    with asked(graph, readers[0] if readers else None) as new:
        made = text.build(graph, new, names or {})
        for value, other in made.items() if chosen is None else ():
            new.outdates(value)
            new.replace(value, other)
        if chosen is not None:
            _connect(graph, new, chosen, made)


def _connect(graph: Graph, new: Builder, nodes: list[Node], made: dict[Value, Value]) -> None:
    """Let nodes read the new values; UsageError for one that does not read any replaced tensor."""
    for node in nodes:
        places = [index for index, value in enumerate(node.inputs) if value is not None and value in made]
        if not places:
            names = ", ".join(value.name for value in made) or "nothing"
            raise UsageError(f"'{node.label}' does not read what the text replaces: {names}", todo="select other nodes")
        for index in places:
            value = node.inputs[index]
            assert value is not None
            new.set_input(node, index, made[value])
        for result in node.outputs:
            new.outdates(result)
