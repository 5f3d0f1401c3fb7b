"""Indices of all positions in order, and comparisons of positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, data_type, graph_pass

from ._broadcasting import declare, shrink
from ._coordinates import counts_up, smallest
from ._places import Block, block, takes_all
from ._targets import MOVED, reshaped, restated

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
    they count 0, 1, 2 ... up to the size of the gathered axis, each element keeps its position. Constant index tuples
    are compared with all positions. A GatherND of the first positions along some axes becomes a Slice up to the limit
    of the Range, and an Unsqueeze. A position is never negative, so it is at least 0 in every run; the result is
    written as one element if its consumers broadcast. Instead of a Reshape that would reject an empty batch, because it
    cannot infer a dim there, the result is an Unsqueeze, a Squeeze or a Flatten.

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
        if _takes_all(node):
            with graph.site(node) as new:
                found = _as_reshape(node.required_input(0), node.outputs[0], node.opset, new)
                new.require(found is not None, MOVED)
                if found is not None:
                    new.replace(node.outputs[0], found)
        elif (taken := _first(node)) is not None:
            with graph.site(node) as new:
                _slice(node, taken, new)
    for node in graph.nodes(*_SWAPPED):
        answer = _answer(node)
        if answer is None:
            continue
        with graph.site(node) as new:
            changed = shrink(node.outputs[0], ())
            new.require(changed is not None, "the result must be computed for each position")
            declare(new, {value: dims for value, dims in (changed or {}).items() if value != node.outputs[0]})
            new.replace(node.outputs[0], new.constant(np.array(answer), name="answer"))


def _takes_all(node: Node) -> bool:
    """Return whether the indices list all positions of the data, in order."""
    shape, indices = node.required_input(0).shape, node.required_input(1)
    if not shape:
        return False
    if node.op == "Gather":
        computed = not indices.is_constant and indices.producer is not None
        return computed and node.attr("axis") in (0, -len(shape)) and counts_up(indices, shape[0])
    if node.attr("batch_dims", 0):
        return False
    if indices.is_constant:
        return takes_all(indices, shape)
    taken = block(node)
    return taken is not None and not taken.cut(shape)


def _first(node: Node) -> Block | None:
    """Return what a GatherND takes if that begins at the first position along each axis; otherwise None."""
    shape, batch = node.required_input(0).shape, node.attr("batch_dims", 0)
    return None if node.op != "GatherND" or not shape or batch else block(node)


def _slice(node: Node, taken: Block, new: Builder) -> None:
    data = node.required_input(0)
    new.require(node.opset >= 13, "the opset is older than 13")
    cut = taken.cut(data.shape or ())
    limits = [taken.dims[dim].last for dim in cut]
    ends = []
    for limit in limits:
        new.require(limit is not None, "the limit of the positions may be negative")
        if limit is not None:
            ends.append(_int64(limit, new))
    end = ends[0] if len(ends) == 1 else new.node("Concat", *ends, axis=0)
    sliced = new.node("Slice", data, _ints([0] * len(cut), new), end, _ints(cut, new))
    new.replace(node.outputs[0], new.node("Unsqueeze", sliced, _ints(taken.ones, new)) if taken.ones else sliced)


def _int64(number: Value, new: Builder) -> Value:
    """Return a scalar as a vector of int64."""
    same = number.dtype is not None and number.dtype.name == "INT64"
    return new.node("Reshape", number if same else new.node("Cast", number, to=data_type("int64")), _ints([1], new))


def _ints(numbers: Sequence[int], new: Builder) -> Value:
    return new.constant(np.array(numbers, dtype=np.int64), name="ints")


def _as_reshape(data: Value, result: Value, opset: int, new: Builder) -> Value | None:
    """Return the elements of the data in the shape of the result, unless that takes a computed shape."""
    found = (restated(source, result.shape or (None,), opset, new) for source in reshaped(data))
    return next((value for value in found if value is not None), None)


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
