"""Attributes of nodes."""

from surgery import Graph, Keeps, NodeSelector, Parity, UsageError, graph_pass, typed_attribute

from ._asked import asked


@graph_pass("set-attribute", parity=Parity.INTENDED, changes=("types", "dims"))
def set_attribute(
    graph: Graph,
    *,
    nodes: NodeSelector,
    name: str,
    value: int | float | str | list[int] | list[float] | list[str] | None = None,
    remove: bool = False,
    keeps: Keeps = "nothing",
) -> None:
    """Set or remove an attribute of the selected nodes.

    The schema of the operator, or the called model-local function, determines whether the attribute exists and its
    type; an integer is accepted for a float. Without a schema, the attribute keeps its type. Dependent types and dims
    are declared anew, including those of model outputs.

    This changes the results, unless `keeps` declares otherwise.

    Example:
        # options: {nodes: {op: LeakyRelu}, name: alpha, value: 0.1}
        g (float[2] x) => (float[2] y) { y = LeakyRelu<alpha = 0.2>(x) }

    Options:
        nodes: the nodes to change.
        name: the attribute.
        value: a number, a string, or a list of them.
        remove: remove the attribute, so that the operator's default applies.
        keeps: the promise about the results, which is verified; by default, results are not compared.
    """
    if remove == (value is not None):
        raise UsageError("give either a value or 'remove: true'")
    with asked(graph) as new:
        for node in graph.select(nodes):
            made = typed_attribute(node, name, value)
            held = node.attributes.get(name)
            if made is None or held is None or (held.type, held.value) != (made.type, made.value):
                new.set_attribute(node, name, made)
                for output in node.outputs:
                    new.outdates(output)
