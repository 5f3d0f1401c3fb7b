"""Remove what the file says of where its nodes come from."""

from surgery import Graph, Node, Parity, Value, graph_pass


@graph_pass("strip-lineage", parity=Parity.EXACT)
def strip_lineage(graph: Graph) -> None:
    """Remove the lineage that passes left in the metadata of nodes and constants, and nothing else.

    Each node that a pass makes says which pass that was and of which nodes of the original it was made. No operator
    reads metadata, so that every output stays the same, bit by bit. Put it last, where the file is to be as small as
    it can be or is not to tell how it came about; `surgery inspect --lineage` and `surgery diff` then know less.
    """
    things: list[Node | Value] = [*graph.nodes(), *graph.constants()]
    with graph.site() as edit:
        for thing in things:
            if thing.lineage is not None:
                edit.strip_lineage(thing)
