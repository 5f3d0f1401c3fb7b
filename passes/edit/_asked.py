"""Edits that the user requested by name: an edit that cannot be done is an error, and is never skipped silently."""

from collections.abc import Iterator
from contextlib import contextmanager

from surgery import Builder, Graph, Node, UsageError, Value


@contextmanager
def asked(graph: Graph, anchor: Node | None = None) -> Iterator[Builder]:
    """Open a site; if it is refused, raise UsageError with the reason."""
    before = len(graph.refusals)
    with graph.site(anchor) as new:
        yield new
    for refused in graph.refusals[before:]:
        raise UsageError(refused.reason, where=refused.anchor or None)


def main_nodes(graph: Graph) -> list[Node]:
    """List the nodes of the main graph, in order."""
    return [node for node in graph.nodes() if node.scope is graph.main]


def outermost(graph: Graph, nodes: list[Node]) -> list[Node]:
    """List the main-graph nodes that are or contain these nodes, once each, in order; UsageError for function nodes."""
    holders = graph.holders()
    found: set[Node] = set()
    for node in nodes:
        place = node
        while place.scope is not graph.main:
            if place.scope not in holders:
                raise UsageError(f"'{node.label}' is in a function", todo="run inline-functions before this step")
            place = holders[place.scope]
        found.add(place)
    return [node for node in main_nodes(graph) if node in found]


def outer(graph: Graph, nodes: list[Node]) -> list[Node]:
    """List the nodes that are not inside another one of them."""
    holders, chosen = graph.holders(), set(nodes)

    def is_inside(node: Node) -> bool:
        around = holders.get(node.scope)
        return around is not None and (around in chosen or is_inside(around))

    return [node for node in nodes if not is_inside(node)]


def keep_outputs(graph: Graph, new: Builder, wanted: list[Value]) -> None:
    """Make exactly these values the outputs of the model, in this order."""
    outputs = graph.outputs()
    present, staying = set(outputs), set(wanted)
    added = [value for value in wanted if value not in present]
    for value in outputs:
        if value not in staying:
            new.drop_output(value)
    for value in added:
        require_type(value)
        new.add_output(value)
    if [*(value for value in outputs if value in staying), *added] != wanted:
        new.order_ports(outputs=wanted)


def require_type(value: Value) -> None:
    """Raise UsageError if a value cannot be an input or output because its type is not known."""
    if value.type is None:
        what = f"the type of '{value.name}' is not known, so it cannot be an input or output of a model"
        raise UsageError(what, todo="declare it, or choose a tensor whose type follows from operators that are known")
