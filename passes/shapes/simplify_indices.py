"""Indices of all positions in order, and comparisons of positions."""

from __future__ import annotations

import numpy as np

from surgery import Graph, Node, Parity, Value, graph_pass

from ._broadcasting import declare, shrink
from ._coordinates import counts_up, grid, smallest
from ._targets import COPY, INFER, reshaped

_SWAPPED = {
    "Greater": "Less",
    "GreaterOrEqual": "LessOrEqual",
    "Less": "Greater",
    "LessOrEqual": "GreaterOrEqual",
}


@graph_pass("simplify-indices", parity=Parity.EXACT)
def simplify_indices(graph: Graph) -> None:
    """Turn a Gather or GatherND of all positions in order into a Reshape; fold comparisons of positions with numbers.

    Right because the indices are followed from the Range that creates them, through sums and products with extents: if
    they count 0, 1, 2 ... up to the size of the gathered axis, each element keeps its position. A position is never
    negative, so it is at least 0 in every run; the result is written as one element if its consumers broadcast.

    Example:
        g (float[batch,seq] x) => (float[batch,1,seq] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] flat = {-1}, int64[2] last = {1, 2}, int64[2] first = {0, 1}>
        {
            s = Shape(x)
            b = Gather(s, zero)
            t = Gather(s, one)
            rows = Range(zero, b, one)
            columns = Range(zero, t, one)
            r = Unsqueeze(rows, last)
            c = Unsqueeze(columns, first)
            p = Mul(r, t)
            i = Add(p, c)
            d = Reshape(x, flat)
            y = Gather(d, i)
        }
    """
    for node in graph.nodes("Gather", "GatherND"):
        indices = node.required_input(1)
        if indices.is_constant or indices.producer is None or not _takes_all(node, indices):
            continue
        with graph.site(node) as new:
            found = _as_reshape(node.required_input(0), node.outputs[0])
            new.require(found is not None, "more than one dim moves to another position")
            if found is not None:
                source, target = found
                shape = new.constant(np.array(target, dtype=np.int64), name="shape")
                new.replace(node.outputs[0], new.node("Reshape", source, shape))
    for node in graph.nodes(*_SWAPPED):
        answer = _answer(node)
        if answer is None:
            continue
        with graph.site(node) as new:
            changed = shrink(node.outputs[0], ())
            new.require(changed is not None, "the result must be computed for each position")
            declare(new, {value: dims for value, dims in (changed or {}).items() if value != node.outputs[0]})
            new.replace(node.outputs[0], new.constant(np.array(answer), name="answer"))


def _takes_all(node: Node, indices: Value) -> bool:
    """Return whether the indices list all positions of the data, in order."""
    shape = node.required_input(0).shape
    if not shape:
        return False
    if node.op == "Gather":
        return node.attr("axis") in (0, -len(shape)) and counts_up(indices, shape[0])
    return not node.attr("batch_dims", 0) and _names_places(indices, shape)


def _names_places(indices: Value, shape: tuple[int | str | None, ...]) -> bool:
    """Return whether index tuples are the coordinates themselves, in order and with the same extents."""
    joined, places = indices.producer, indices.shape
    if joined is None or joined.op != "Concat" or places is None or joined.attr("axis") not in (-1, len(places) - 1):
        return False
    axes: list[int] = []
    for value, extent in zip(joined.inputs, shape):
        found = None if value is None or value.shape is None or value.shape[-1] != 1 else grid(value)
        if found is None or found.offset != 0 or list(found.factors.values()) != [1]:
            return False
        (axis,) = found.factors
        if extent is None or places[axis] != extent:
            return False
        axes.append(axis)
    others = [extent for axis, extent in enumerate(places[:-1]) if axis not in axes]
    return len(axes) == len(joined.inputs) and axes == sorted(set(axes)) and all(extent == 1 for extent in others)


def _as_reshape(data: Value, result: Value) -> tuple[Value, list[int]] | None:
    """Find a tensor with the elements of the data that a Reshape with a constant shape turns into the result."""
    for source in reshaped(data):
        shape = source.shape
        if shape is not None and result.shape is not None and 0 not in shape and 0 not in result.shape:
            before = [*shape, *[None] * len(result.shape)]
            target = [
                extent if isinstance(extent, int) else COPY if extent is not None and extent == dim else INFER
                for extent, dim in zip(result.shape, before)
            ]
            if target.count(INFER) <= 1:
                return source, target
    return None


def _answer(node: Node) -> bool | None:
    """Return the result of a comparison of positions with a number if it is the same for all; otherwise None."""
    for index, op in ((0, node.op), (1, _SWAPPED[node.op])):
        lowest, limit = smallest(node.required_input(index)), node.required_input(1 - index).elements
        if lowest is None or limit is None or len(limit) != 1 or not isinstance(limit[0], int):
            continue
        if op in ("GreaterOrEqual", "Less") and lowest >= limit[0]:
            return op == "GreaterOrEqual"
        if op in ("Greater", "LessOrEqual") and lowest > limit[0]:
            return op == "Greater"
    return None
