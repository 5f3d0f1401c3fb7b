"""Slices that partition a value."""

from collections.abc import Sequence

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._shared import new_split
from ._slices import Piece, piece_of


@graph_pass("slices-to-split", parity=Parity.EXACT)
def slices_to_split(graph: Graph) -> None:
    """Turn the Slices of one value that cover an axis, each element once, into one Split.

    Right because a Split cuts an axis into adjacent blocks, and these Slices are such blocks: with step 1, along the
    same axis of known extent, each beginning where another ends. Slices of the same block share an output. If an
    element is missing or covered twice, the Slices stay. So do Slices in a subgraph.

    Example:
        g (float[N,4] x) => (float[N,2] y)
        <int64[1] zero = {0}, int64[1] two = {2}, int64[1] last = {9223372036854775807}, int64[1] axis = {1}>
        {
            a = Slice(x, zero, two, axis)
            b = Slice(x, two, last, axis)
            y = Mul(a, b)
        }
    """
    seen: set[Value] = set()
    for node in graph.nodes("Slice"):
        source = node.input(0)
        if source is None or source in seen or node.opset < 2:
            continue
        seen.add(source)
        readers = [reader for reader in source.consumers if reader.op == "Slice" and reader.input(0) == source]
        for axis, slices in _by_axis(readers).items():
            if len(slices) > 1:
                with graph.site(slices[0][0]) as new:
                    _split(source, axis, slices, new)


def _by_axis(readers: Sequence[Node]) -> dict[int, list[tuple[Node, Piece]]]:
    """Group the Slices that are blocks by axis, leaving out those in other scopes than the first."""
    found: dict[int, list[tuple[Node, Piece]]] = {}
    for reader in readers:
        cut = piece_of(reader.outputs[0]) if reader.scope is readers[0].scope else None
        if cut is not None and cut.is_block:
            found.setdefault(cut.axis, []).append((reader, cut))
    return found


def _split(source: Value, axis: int, slices: Sequence[tuple[Node, Piece]], new: Builder) -> None:
    blocks = sorted({(cut.indices.start, cut.indices.stop) for _, cut in slices})
    whole = slices[0][1].whole
    starts, stops = [start for start, _ in blocks], [stop for _, stop in blocks]
    new.require(len(blocks) > 1 and [*starts, whole] == [0, *stops], "the Slices leave out elements, or share some")
    outputs = new_split(source, axis, [stop - start for start, stop in blocks], slices[0][0].opset, new)
    for node, cut in slices:
        new.replace(node.outputs[0], outputs[starts.index(cut.indices.start)])
