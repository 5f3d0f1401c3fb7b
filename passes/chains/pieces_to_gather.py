"""Pieces of one value that are put together again."""

import numpy as np

from surgery import Graph, Node, Parity, Value, graph_pass

from ._gather import MOST, is_quick
from ._slices import Piece, piece_of


@graph_pass("pieces-to-gather", parity=Parity.EXACT)
def pieces_to_gather(graph: Graph) -> None:
    """Turn Slices or Split outputs of one value that a Concat joins along the same axis into one Gather.

    Right because each result is a list of positions along one axis of the value, of known extent, and so is the
    whole; Gather takes elements by such a list. Where it is all positions in order, the value itself takes the
    place of the result. This is how a roll is exported: the end of an axis is put in front of its beginning.
    Gather moves what lies after the axis in one piece; where that is small the pieces stay, for many small moves
    are slow. So they do where something else reads them, since then no node is saved.

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
    """Return the value, the axis, its extent and the positions that a Concat joins; None when it joins others."""
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
    """Return whether all that the pieces of a Concat come from is read by it alone."""
    makers = dict.fromkeys(part.producer for part in node.inputs if part is not None)
    pieces = [value for maker in makers if maker is not None for value in maker.outputs]
    return not any(value.is_output or any(reader != node for reader in value.consumers) for value in pieces)
