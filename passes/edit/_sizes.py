"""How each operator may contain the size of a freed dim, and what it can read instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from surgery import Builder, Node, Refusal, Value, compute

from ._old_sizes import Meets, Sizes, dim_of, extent
from ._reshaping import reshape, target_of

_TO_THE_END = 2**31 - 1


def _expand(node: Node, sizes: Sizes, new: Builder) -> None:
    """Replace the target of a freed dim with 1 if the dim was expanded to its own old size."""
    data, target = node.required_input(0), node.required_input(1)
    wanted = target.elements
    if wanted is None:
        return
    found, was = list(wanted), sizes.old(data)
    for axis in sizes.missing(data, wanted):
        place = axis - len(was) + len(found)
        if place >= 0 and found[place] == was[axis]:
            found[place] = 1
        elif place >= 0 and found[place] != 1:
            raise Refusal(f"it expands {was[axis]} to {found[place]}")
    if found != list(wanted):
        new.set_input(node, 1, target_of(target, found, new))


def _resize(node: Node, sizes: Sizes, new: Builder) -> None:
    """Compute the target size of a dim that is not resized from the operand."""
    data, target = node.required_input(0), node.input(3)
    wanted = None if target is None else target.elements
    if target is None or wanted is None:
        return
    was = sizes.old(data)
    axes = [axis % len(was) for axis in node.attr("axes") or range(len(was))]
    kept = {place: axis for place, axis in enumerate(axes) if axis in sizes.axes(data) and wanted[place] == was[axis]}
    if kept:
        parts = [extent(data, kept[place], new) if place in kept else item for place, item in enumerate(wanted)]
        new.set_input(node, 3, target_of(target, parts, new))


def pinned(node: Node, sizes: Sizes) -> str:
    """Describe the freed dims that a Resize turns into numbers, whatever they are; empty if there are none."""
    data, target = node.required_input(0), node.input(3)
    wanted = None if target is None else target.elements
    if node.op != "Resize" or target is None or wanted is None:
        return ""
    rank = len(data.shape or ())
    axes = [axis % rank for axis in node.attr("axes") or range(rank)]
    free = [(axis, item) for axis, item in zip(axes, wanted) if axis in sizes.axes(data) and isinstance(item, int)]
    if not free:
        return ""
    result = node.outputs[0].name
    dims = " and ".join(f"dim {axis} of '{result}' stays {item}" for axis, item in free)
    return f"{dims}, as '{target.name}' of node '{node.label}' (Resize) is constant: scales would follow the input"


def _concat(node: Node, sizes: Sizes, new: Builder) -> None:
    """Expand operands that repeat one slice along a freed dim to the size of that dim."""
    along = node.attr("axis")
    operands = [value for value in node.inputs if value is not None]
    for free in operands:
        for axis in sizes.axes(free):
            if axis == along % len(sizes.old(free)):
                continue
            for index, value in enumerate(operands):
                if isinstance((value.shape or (None,) * (axis + 1))[axis], int):
                    new.set_input(node, index, _enlarged(node, index, axis, (free, axis), new))


def _enlarged(node: Node, index: int, axis: int, like: tuple[Value, int], new: Builder) -> Value:
    """Repeat the only slice of an operand along an axis to the length of another value."""
    value = node.required_input(index)
    shape = value.shape or ()
    slice_ = value if shape[axis] == 1 else new.constant(_one_slice(node, index, axis, dim_of(*like)), value.name)
    return _repeated(slice_, len(shape), axis, extent(*like, new), new)


def _repeated(slice_: Value, rank: int, axis: int, extent: Value, new: Builder) -> Value:
    """Repeat a value that has one slice along an axis."""
    ones = [new.constant(np.ones(count, np.int64), "ones") if count else None for count in (axis, rank - axis - 1)]
    parts = [part for part in (ones[0], extent, ones[1]) if part is not None]
    return new.node("Expand", slice_, parts[0] if len(parts) == 1 else new.node("Concat", *parts, axis=0))


def _one_slice(
    node: Node, index: int, axis: int, dim: str, array: np.ndarray[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    """Return the slice that an operand repeats along an axis; Meets if it is not a constant, or has other slices.

    `array` has its elements, if these were narrowed along another axis.
    """
    array = same_in_every_run(node.required_input(index)) if array is None else array
    if array is None:
        raise Meets(index, axis, dim)
    first = array.take([0], axis)
    if not np.array_equal(np.broadcast_to(first, array.shape), array, equal_nan=array.dtype.kind == "f"):
        raise Meets(index, axis, dim)
    return np.ascontiguousarray(first)


def same_in_every_run(value: Value) -> np.ndarray[Any, Any] | None:
    """Return the elements of a constant, or of what is computed from constants alone; None for any other value."""
    if value.is_constant or value.producer is None:
        return value.constant
    pending = [value]
    seen = {value}
    for upper in pending:
        node = upper.producer
        if (node is None and not upper.is_constant) or (node is not None and (node.has_subgraphs or node.is_random)):
            return None
        operands = {operand for operand in (node.inputs if node else []) if operand} - seen
        pending += operands
        seen |= operands
    tensor = compute([value])[0].tensor
    return None if tensor is None else np.asarray(tensor.numpy())


def _broadcast(node: Node, sizes: Sizes, new: Builder) -> None:
    """Broadcast constants that repeat one slice along a freed dim."""
    _broadcast_all(node, range(len(node.inputs)), 0, sizes, new)


def _matmul(node: Node, sizes: Sizes, new: Builder) -> None:
    """Broadcast matrices that are the same along a freed dim; the dims that are summed over must already fit."""
    left, right = (list(value.shape or ()) for value in node.inputs if value is not None)
    inner = [(0, len(left) - 1), (1, max(len(right) - 2, 0))]
    if left and right and left[-1] != right[inner[1][1]]:
        for (index, axis), (other, place) in (inner, inner[::-1]):
            freed = place in sizes.axes(node.required_input(other))
            if freed and same_in_every_run(node.required_input(index)) is None:
                raise Meets(index, axis, dim_of(node.required_input(other), place))
        raise Refusal(f"it multiplies {left[-1]} by {right[inner[1][1]]}")
    _broadcast_all(node, (0, 1), 2, sizes, new)


def _gemm(node: Node, sizes: Sizes, new: Builder) -> None:
    """Broadcast the term that is added."""
    rows, term = node.required_input(0), node.input(2)
    axis = 1 if node.attr("transA") else 0
    if term is not None and axis in sizes.axes(rows) and len(term.shape or ()) == 2:
        _narrow(node, 2, {0: dim_of(rows, axis)}, new)


def _broadcast_all(node: Node, operands: Sequence[int], skipped: int, sizes: Sizes, new: Builder) -> None:
    """Narrow constants along the axes, counted from the last, that are freed in another operand."""
    values = {index: value for index in operands if (value := node.input(index)) is not None}
    freed = {
        axis - len(value.shape or ()): dim_of(value, axis) for value in values.values() for axis in sizes.axes(value)
    }
    for index, value in values.items():
        rank = len(value.shape or ())
        wanted = {rank + place: dim for place, dim in freed.items() if place < -skipped and rank + place >= 0}
        _narrow(node, index, wanted, new)


def _narrow(node: Node, index: int, freed: Mapping[int, str], new: Builder) -> None:
    """Keep one slice of an operand along each freed axis."""
    value = node.required_input(index)
    shape = value.shape or ()
    array = None
    for axis, dim in freed.items():
        if isinstance(shape[axis], int) and shape[axis] != 1:
            array = _one_slice(node, index, axis, dim, array)
    if array is not None:
        new.set_input(node, index, new.constant(array, value.name))


def _recurrent(node: Node, sizes: Sizes, new: Builder) -> None:
    """Remove initial states that are zero, and repeat others that are the same for the whole batch."""
    data = node.required_input(0)
    batch_first = bool(node.attr("layout", 0))
    batch = 0 if batch_first else 1
    if batch not in sizes.axes(data):
        return
    for index, axis in ((4, 0), (5, batch), (6, batch)):
        value = node.input(index)
        if value is None or not isinstance((value.shape or (None,) * 2)[axis], int):
            continue
        zero = index > 4 and value.constant is not None and not np.any(value.constant)
        new.set_input(node, index, None if zero else _enlarged(node, index, axis, (data, batch), new))


def _squeeze(node: Node, sizes: Sizes, new: Builder) -> None:
    """Refuse to remove a freed dim."""
    data, given = node.required_input(0), node.input(1)
    axes = node.attr("axes") if given is None else given.elements
    was = sizes.old(data)
    for axis in sizes.axes(data):
        gone = was[axis] == 1 if not axes else axis in [int(item) % len(was) for item in axes]
        new.require(not gone, f"it removes dim {axis}")


def _slice(node: Node, sizes: Sizes, new: Builder) -> None:
    """Refuse a slice up to the old size, which may or may not mean the whole dim."""
    data = node.required_input(0)
    if node.opset < 10:
        ends, axes = node.attr("ends"), node.attr("axes")
    else:
        ends, axes = (None if v is None else v.elements for v in (node.input(2), node.input(3)))
    was = sizes.old(data)
    for place, axis in enumerate(axes or range(len(ends or ()))):
        if int(axis) % len(was) in sizes.axes(data) and ends is not None:
            new.require(ends[place] != was[int(axis)], f"it slices up to {ends[place]}")


def _split(node: Node, sizes: Sizes, new: Builder) -> None:
    """Refuse to cut a freed dim into pieces of fixed sizes."""
    data = node.required_input(0)
    cuts = int(node.attr("axis")) % len(sizes.old(data)) in sizes.axes(data)
    new.require(not cuts or node.opset < 13, "it cuts the dim into pieces")


def _gather_nd(node: Node, sizes: Sizes, new: Builder) -> None:
    """Use a batch dim if constant indices enumerate the samples in order and are otherwise the same for each."""
    data, indices = node.required_input(0), node.required_input(1)
    array, batch = indices.constant, sizes.old(data)[0]
    if 0 not in sizes.axes(data) or array is None or array.shape[0] != batch or node.attr("batch_dims", 0):
        return
    samples = np.arange(array.shape[0]).reshape(-1, *[1] * (array.ndim - 2))
    rest = array[..., 1:]
    new.require(np.array_equal(array[..., 0], np.broadcast_to(samples, array.shape[:-1])), "it gathers across samples")
    new.require(rest.shape[-1], "it gathers whole samples")
    new.require(np.array_equal(rest, np.broadcast_to(rest[:1], rest.shape)), "it gathers unevenly")
    same = new.constant(np.ascontiguousarray(rest[:1]), indices.name)
    new.set_input(node, 1, _repeated(same, array.ndim, 0, extent(data, 0, new), new))
    new.set_attribute(node, "batch_dims", 1)


RULES: dict[str, Callable[[Node, Sizes, Builder], None]] = {
    "broadcast": _broadcast,
    "Concat": _concat,
    "Expand": _expand,
    "GRU": _recurrent,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "LSTM": _recurrent,
    "MatMul": _matmul,
    "RNN": _recurrent,
    "Reshape": reshape,
    "Resize": _resize,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
}
"""The rule for each operator; "broadcast" is for all operators that broadcast their operands."""
