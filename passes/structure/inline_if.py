"""Branches that are always taken."""

from surgery import Builder, Graph, Node, Parity, graph_pass

from ._shared import inside_out, known_scalar, same_graphs

_BRANCHES = ("then_branch", "else_branch")


@graph_pass("inline-if", parity=Parity.EXACT)
def inline_if(graph: Graph) -> None:
    """Replace an If by one of its branches if the condition is constant or the branches are the same.

    Right because the nodes of a branch compute the same in the surrounding graph; a random operator is still evaluated
    once. The condition is known if it is a constant or follows from inferred shapes; removing an If may make more
    shapes known. Overridable initializers are not constant. Two branches are equal if they have the same operators in
    the same order, with bit-identical attributes and constants.

    Example:
        g (float[2] x) => (float[2] y) <bool c = {1}>
        {
            y = If (c) <
                then_branch = t () => (float[2] p) { p = Neg(x) },
                else_branch = e () => (float[2] q) { q = Exp(x) }
            >
        }
    """
    while _round(graph):
        # Little was known about values after an If; shapes that decide the next If may be known now.
        graph.facts.forget()


def _round(graph: Graph) -> bool:
    """Examine each If once; return whether any was removed."""
    before = sum(not site.skipped for site in graph.sites)
    for node in inside_out(graph, "If"):
        if any(name not in node.attributes for name in _BRANCHES):
            continue  # invalid If, reported by the checker
        with graph.site(node) as new:
            _inline(node, new)
    return sum(not site.skipped for site in graph.sites) > before


def _inline(node: Node, new: Builder) -> None:
    branches = {name: node.attributes[name].as_graph() for name in _BRANCHES}
    taken = known_scalar(node.required_input(0))
    if taken is None:
        new.require(same_graphs(*branches.values()), "the condition is not known, and the branches differ")
    outputs = new.inline(branches["else_branch" if taken is False else "then_branch"], [])
    for old, value in zip(node.outputs, outputs):
        if old.name:
            new.replace(old, value)
