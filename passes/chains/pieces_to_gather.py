"""Pieces of one value that are concatenated again."""

import numpy as np

from surgery import Graph, Node, Parity, Value, graph_pass

from ._gather import MOST, is_quick
from ._slices import Piece, piece_of


@graph_pass("pieces-to-gather", parity=Parity.EXACT)
def pieces_to_gather(graph: Graph) -> None:
    """Turn Slices or Split outputs of one value that a Concat joins along the same axis into one Gather.

    Right because each piece is a list of positions along one axis of known extent, and so is their concatenation;
    Gather selects elements by such a list. If the list is all positions in order, the value itself replaces the result.
    A roll is exported in this form: the end of an axis is placed before its beginning. Gather moves contiguous blocks
    after the axis; if these are small, the pieces stay, because many small moves are slow. They also stay if they have
    other consumers, because no node would be saved.

    Example:
        g (float[N,4,32] x) => (float[N,4,32] y)
        <int64[1] zero = {0}, int64[1] cut = {-1}, int64[1] last = {9223372036854775807}, int64[1] axis = {1}>
        {
            a = Slice(x, cut, last, axis)
            b = Slice(x, zero, cut, axis)
            y = Concat<axis = 1>(a, b)
        }
    """
    for node in graph.nodes("Concat"):
        found = _positions(node)
        if found is None:
            continue
        source, axis, whole, positions = found
        with graph.site(node) as new:
            if positions == list(range(whole)):
                new.replace(node.outputs[0], source)
                continue
            new.require(len(positions) <= MOST, "the list of positions would be long")
            new.require(is_quick(source, axis), "each index would move few elements")
            new.require(_leave_with(node), "the pieces are read by others")
            indices = new.constant(np.array(positions, np.int64), "positions")
            new.replace(node.outputs[0], new.node("Gather", source, indices, axis=axis))


def _positions(node: Node) -> tuple[Value, int, int, list[int]] | None:
    """Return the value, the axis, its extent and the positions that a Concat joins; None for other Concats."""
    if len(node.inputs) < 2 or node.opset < 4 or node.attributes["axis"].is_ref():
        return None
    positions: list[int] = []
    cuts: list[Piece] = []
    for part in node.inputs:
        cut = None if part is None else piece_of(part)
        if cut is None or (cuts and (cut.source, cut.axis) != (cuts[0].source, cuts[0].axis)):
            return None
        cuts.append(cut)
        positions += cut.indices
    source, axis = cuts[0].source, cuts[0].axis
    if source.rank is None or node.attr("axis") % source.rank != axis:
        return None
    return source, axis, cuts[0].whole, positions


def _leave_with(node: Node) -> bool:
    """Return whether the Concat is the only reader of all results of the nodes that cut its pieces."""
    makers = dict.fromkeys(part.producer for part in node.inputs if part is not None)
    pieces = [value for maker in makers if maker is not None for value in maker.outputs]
    return not any(value.is_output or any(reader != node for reader in value.consumers) for value in pieces)
