"""How operators compute the same on values whose axes are in another order.

A value of a region is the Transpose by `perm` of the value that replaces it: its axis i is axis perm[i] of that value.
So an axis that a node names gets another number, and what is listed for each axis another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from surgery import Node, Value

from ._shared import constant_ints, has_parameters

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Turned:
    """A node on turned values: its operator, changed attributes, and new constants by the position of the input.

    `data` are the positions of the inputs that are turned, None for all; `perm` is that of the outputs.
    """

    perm: list[int]
    data: tuple[int, ...] | None = (0,)
    op: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[int, Array] = field(default_factory=dict)


Rule = Callable[[Node, list[int]], Turned | None]


PLAIN = frozenset({"Concat", "LogSoftmax", "Softmax"})
"""Operators along an axis that occur between elementwise ones."""


def is_plain(node: Node) -> bool:
    """Return whether a node works element by element, or along one axis of values of the same rank."""
    return node.is_unary or node.is_broadcasting or node.op in PLAIN


def turned(node: Node, perm: list[int], *, convolve: bool = False) -> Turned | None:
    """Return how a node computes the same on data whose axes are in another order; None if it is not known to.

    With `convolve`, a product over the channels may become a Conv.
    """
    if has_parameters(node) or node.opset < 7:
        return None
    if node.is_unary:
        return Turned(perm)
    if node.is_broadcasting:
        return Turned(perm, None)
    if node.op == "MatMul":
        return _product(node, perm, convolve=convolve)
    rule = _RULES.get(node.op)
    return rule(node, perm) if rule is not None else None


def _along(node: Node, perm: list[int], *, since: int = 7, default: int | None = None) -> Turned | None:
    """Turn an operator that works along one axis."""
    axis = node.attr("axis", default)
    if node.opset < since or axis is None or not -len(perm) <= axis < len(perm):
        return None
    return Turned(perm, None if node.op == "Concat" else (0,), attributes={"axis": perm[axis]})


def _gather(node: Node, perm: list[int]) -> Turned | None:
    """Turn a Gather by a list of indices, which keeps the rank."""
    return _along(node, perm, default=0) if node.required_input(1).rank == 1 else None


def _quantize(node: Node, perm: list[int]) -> Turned | None:
    """Turn QuantizeLinear and DequantizeLinear with a single scale, or one for each element of an axis."""
    scale = node.required_input(1)
    if scale.rank == 0 or (scale.is_constant and scale.size == 1):
        return Turned(perm)
    return _along(node, perm, since=13, default=1) if scale.rank == 1 and not node.attr("block_size", 0) else None


def _pad(node: Node, perm: list[int]) -> Turned | None:
    rank = len(perm)
    if node.opset < 11:
        pads = tuple(node.attr("pads") or ())
        return Turned(perm, attributes={"pads": _both(pads, perm)}) if len(pads) == 2 * rank else None
    if node.input(3) is not None:
        return _axes_input(node, perm, 3)
    found = constant_ints(node.input(1))
    if found is None or len(found) != 2 * rank:
        return None
    return Turned(perm, constants={1: np.array(_both(found, perm), np.int64)})


def _both(pads: Sequence[int], perm: list[int]) -> list[int]:
    """Reorder amounts for the beginnings, and then for the ends, of all axes."""
    rank = len(perm)
    return [*_reordered(pads[:rank], perm), *_reordered(pads[rank:], perm)]


def _reordered(items: Sequence[Any], perm: list[int]) -> list[Any]:
    """Reorder items, one for each axis of a value, for the value that replaces it."""
    return [items[perm.index(axis)] for axis in range(len(perm))]


def _axes_input(node: Node, perm: list[int], position: int) -> Turned | None:
    """Turn an operator with a constant list of axes as an input."""
    value = node.required_input(position)
    axes = _within(constant_ints(value), perm)
    if axes is None or value.dtype is None:
        return None
    return Turned(perm, constants={position: np.array([perm[axis] for axis in axes], value.dtype.numpy())})


def _within(axes: Sequence[int] | None, perm: list[int]) -> list[int] | None:
    """Return axes counted from the first one; None if they are not known, or do not exist."""
    rank = len(perm)
    known = axes is not None and all(-rank <= axis < rank for axis in axes)
    return [axis % rank for axis in axes] if axes is not None and known else None


def _slice(node: Node, perm: list[int]) -> Turned | None:
    if node.opset < 10:
        axes = _within(node.attr("axes") or range(len(node.attr("starts"))), perm)
        return None if axes is None else Turned(perm, attributes={"axes": [perm[axis] for axis in axes]})
    if node.input(3) is not None:
        return _axes_input(node, perm, 3)
    starts = node.required_input(1).static_shape
    axes = None if starts is None or len(starts) != 1 else _within(range(starts[0]), perm)
    return None if axes is None else Turned(perm, constants={3: np.array([perm[axis] for axis in axes], np.int64)})


def _tile(node: Node, perm: list[int]) -> Turned | None:
    repeats = constant_ints(node.input(1))
    if repeats is None or len(repeats) != len(perm):
        return None
    return Turned(perm, constants={1: np.array(_reordered(repeats, perm), np.int64)})


def _resize(node: Node, perm: list[int]) -> Turned | None:
    """Turn a Resize by constant scales or sizes, for all axes.

    Runtimes interpolate along the last two axes only, so these must be the ones that are resized then.
    """
    if node.opset < 11 or node.attr("axes") or node.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    if node.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    shape, given = node.required_input(0).shape, _amounts(node)
    if shape is None or given is None or given[1].size != len(perm):
        return None
    position, amounts = given
    same = (amounts == 1).tolist() if position == 2 else [size == dim for size, dim in zip(amounts.tolist(), shape)]
    changed = [perm[axis] for axis, is_same in enumerate(same) if not is_same]
    if node.attr("mode", "nearest") != "nearest" and not all(axis >= len(perm) - 2 for axis in changed):
        return None
    return Turned(perm, constants={position: np.array(_reordered(amounts.tolist(), perm), amounts.dtype)})


def _amounts(node: Node) -> tuple[int, Array] | None:
    """Return the position and the elements of the scales or sizes of a Resize, if they are constant."""
    for position in (2, 3):
        value = node.input(position)
        if value is not None and value.size != 0:
            array = value.constant
            return None if array is None else (position, array.reshape(-1))
    return None


def _reduction(node: Node, perm: list[int]) -> Turned | None:
    rank, keeps = len(perm), bool(node.attr("keepdims", 1))
    position = None if node.opset < (13 if node.op == "ReduceSum" else 18) else 1
    if position is None:
        given = tuple(node.attr("axes") or range(rank))
    elif node.input(1) is None:
        given = () if node.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    else:
        given = constant_ints(node.input(1)) or ()
    axes = _within(given, perm)
    if not axes:
        return None
    return _reduced(perm, axes, keeps=keeps, position=position)


def _reduced(perm: list[int], axes: list[int], *, keeps: bool, position: int | None) -> Turned:
    """Turn a reduction over axes that are an attribute, or the input at a position."""
    now = [perm[axis] for axis in axes]
    after = perm if keeps else _remaining(perm, axes)
    if position is None:
        return Turned(after, attributes={"axes": now})
    return Turned(after, constants={position: np.array(now, np.int64)})


def _remaining(perm: list[int], axes: Sequence[int]) -> list[int]:
    """Return the permutation of the axes that are left when some are removed."""
    kept = [now for axis, now in enumerate(perm) if axis not in axes]
    return [sorted(kept).index(now) for now in kept]


def _extreme(node: Node, perm: list[int]) -> Turned | None:
    """Turn ArgMax and ArgMin."""
    axes = _within([node.attr("axis", 0)], perm)
    if axes is None:
        return None
    after = perm if node.attr("keepdims", 1) else _remaining(perm, axes)
    return Turned(after, attributes={"axis": perm[axes[0]]})


def _product(node: Node, perm: list[int], *, convolve: bool) -> Turned | None:
    """Turn a product with a constant matrix over the last axis: it stays one, or is a Conv of the channels."""
    weight, rank = node.required_input(1), len(perm)
    if node.required_input(0).is_constant or weight.rank != 2 or not weight.is_constant:
        return None
    if perm[-1] == rank - 1:
        return Turned(perm)
    array = weight.constant if convolve and weight.reads == 1 and not weight.is_output else None
    is_image = perm[0] == 0 and perm[-1] == 1 and rank in (3, 4, 5)
    if not is_image or array is None or array.dtype.name not in ("float32", "float16"):
        return None
    ones = [1] * (rank - 2)
    kernel = np.ascontiguousarray(array.T).reshape(*array.shape[::-1], *ones)
    return Turned(perm, op="Conv", attributes={"kernel_shape": ones}, constants={1: kernel})


def data_of(node: Node, made: Turned) -> list[Value]:
    """Return the inputs that are turned with the node."""
    positions = range(len(node.inputs)) if made.data is None else made.data
    return [value for value in (node.input(position) for position in positions) if value is not None]


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("ArgMax", "ArgMin"), _extreme),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), partial(_along, since=13, default=-1)),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantize),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"), _reduction),
    **dict.fromkeys(("ReduceProd", "ReduceSum", "ReduceSumSquare", "ReduceLogSum"), _reduction),
    "Concat": _along,
    "Gather": _gather,
    "LpNormalization": partial(_along, default=-1),
    "Pad": _pad,
    "Resize": _resize,
    "Slice": _slice,
    "Split": partial(_along, default=0),
    "Tile": _tile,
    "TopK": partial(_along, since=10, default=-1),
}
