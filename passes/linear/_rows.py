"""Operators that work row by row.

A row is a slice along the last axis. An operator works row by row if each row of its outputs depends only on the same
row of its inputs, so it computes the same whether the rows are arranged along one axis or several.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from surgery import RESHAPES, Node, Refusal, Value

Dims = tuple[int | str, ...]

_ALONG_AXIS = ("Hardmax", "LayerNormalization", "LogSoftmax", "LpNormalization", "RMSNormalization", "Softmax")
_REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")


@dataclass(frozen=True)
class RowWise:
    """How a node works on rows.

    `stacked` are the positions of the inputs that hold the rows, `vectors` those of constants [1, ..., 1, n] that are
    combined with every row. On a matrix the node has `attributes` in addition to its own, and constant axes as its
    input at position `axes`. With `moves`, the node only arranges the rows along other axes.
    """

    stacked: tuple[int, ...] = (0,)
    vectors: tuple[int, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    axes: int | None = None
    moves: bool = False


def dims_of(value: Value | None) -> Dims | None:
    """Return the dims of a stack of rows, all known, none 0, the last a number; None for other values."""
    dims = None if value is None else value.shape
    if dims is None or len(dims) < 2 or not isinstance(dims[-1], int):
        return None
    known = tuple(dim for dim in dims if dim is not None and dim != 0)
    return known if len(known) == len(dims) else None


def row_wise(node: Node) -> RowWise | None:
    """Return how a node works row by row on inputs of rank 3 or more; None if it is not known to do so."""
    rule = _same_shape if node.is_unary else _broadcast if node.is_broadcasting else _RULES.get(node.op)
    try:
        found = rule(node) if rule is not None and (node.domain or node.opset >= 8) else None
    except Refusal:
        return None
    if found is None:
        return None
    stacked = [node.input(position) for position in found.stacked]
    values = [value for value in stacked if value is not None] + [out for out in node.outputs if out.is_used]
    if any(value.scope is not node.scope for value in values):
        return None
    shapes = [dims_of(value) for value in values]
    if any(dims is None for dims in shapes):
        return None
    ranks, leading = {len(dims or ()) for dims in shapes}, {dims[:-1] for dims in shapes if dims}
    return found if found.moves or (len(leading) == 1 and min(ranks) > 2) else None


def _is_last(axis: Any, node: Node) -> bool:
    rank = node.required_input(0).rank
    return rank is not None and axis in (-1, rank - 1)


def _on_matrix(axis: int) -> int:
    """Return the last axis of a matrix, counted from the same end as `axis`."""
    return axis if axis < 0 else 1


def _same_shape(node: Node) -> RowWise | None:
    return RowWise()


def _broadcast(node: Node) -> RowWise | None:
    whole = dims_of(node.outputs[0])
    if whole is None:
        return None
    stacked, vectors = [], []
    for position, value in enumerate(node.inputs):
        dims = None if value is None else value.shape
        if value is None or dims is None:
            return None
        if len(dims) == len(whole) and dims[:-1] == whole[:-1] and not value.is_constant:
            stacked.append(position)
        elif any(dim != 1 for dim in dims[:-1]):
            return None
        elif len(dims) > 2:
            if not value.is_constant:
                return None
            vectors.append(position)
    return RowWise(tuple(stacked), tuple(vectors)) if stacked else None


def _along_axis(node: Node) -> RowWise | None:
    axis = node.attr("axis")
    alone = not any(value.is_used for value in node.outputs[1:])
    vectors = all(value is None or value.rank in (0, 1) for value in node.inputs[1:])
    return RowWise(attributes={"axis": _on_matrix(axis)}) if _is_last(axis, node) and alone and vectors else None


def _one_branch(node: Node) -> RowWise | None:
    scale = node.input(1)
    return RowWise() if node.attr("num_branches") == 1 and (scale is None or scale.rank == 1) else None


def _reduction(node: Node) -> RowWise | None:
    if not node.attr("keepdims"):
        return None
    if node.opset < (13 if node.op == "ReduceSum" else 18):
        axes = node.attr("axes")
        last = axes is not None and len(axes) == 1 and _is_last(axes[0], node)
        return RowWise(attributes={"axes": [_on_matrix(axes[0])]}) if last else None
    return _with_axes(node, 1)


def _with_axes(node: Node, position: int) -> RowWise | None:
    """Return the rule of a node whose axes input is a constant with only the last axis; otherwise None."""
    value = node.input(position)
    axes = None if value is None or not value.is_constant else value.elements
    if axes is None or len(axes) != 1 or not _is_last(axes[0], node):
        return None
    return RowWise(axes=None if axes[0] == -1 else position)


def _slice(node: Node) -> RowWise | None:
    return _with_axes(node, 3) if node.opset >= 10 else None


def _split(node: Node) -> RowWise | None:
    axis = node.attr("axis")
    return RowWise(attributes={"axis": _on_matrix(axis)}) if _is_last(axis, node) else None


def _concat(node: Node) -> RowWise | None:
    axis = node.attr("axis")
    if not _is_last(axis, node):
        return None
    return RowWise(tuple(range(len(node.inputs))), attributes={"axis": _on_matrix(axis)})


def _gather(node: Node) -> RowWise | None:
    axis = node.attr("axis")
    indices = node.required_input(1)
    return RowWise(attributes={"axis": _on_matrix(axis)}) if _is_last(axis, node) and indices.rank == 1 else None


def _matmul(node: Node) -> RowWise | None:
    return RowWise() if node.required_input(1).rank == 2 else None


def _reshape(node: Node) -> RowWise | None:
    before, after = dims_of(node.required_input(0)), dims_of(node.outputs[0])
    if before is None or after is None or before[-1] != after[-1] or len(before) + len(after) == 4:
        return None
    return RowWise(moves=True)


_RULES: dict[str, Callable[[Node], RowWise | None]] = {
    **dict.fromkeys(_ALONG_AXIS, _along_axis),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(RESHAPES, _reshape),
    "Concat": _concat,
    "Gather": _gather,
    "MatMul": _matmul,
    "Slice": _slice,
    "Split": _split,
    "com.microsoft::BranchwiseRMSNorm": _one_branch,
}
