"""Remove the lineage of nodes and constants from the file."""

from surgery import Graph, Node, Parity, Value, graph_pass


@graph_pass("strip-lineage", parity=Parity.EXACT)
def strip_lineage(graph: Graph) -> None:
    """Remove the lineage that passes left in the metadata of nodes and constants, and nothing else.

    Each node that a pass creates records the pass and the original nodes that it comes from. Operators do not read
    metadata, so the outputs are bit-identical. Use it as the last step, to make the file smaller or to hide its
    history; `surgery inspect --lineage` and `surgery diff` then know less.
    """
    things: list[Node | Value] = [*graph.nodes(), *graph.constants()]
    with graph.site() as edit:
        for thing in things:
            if thing.lineage is not None:
                edit.strip_lineage(thing)
