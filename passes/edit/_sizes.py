"""How each operator may contain the size of a freed dim, and what it can read instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from surgery import Builder, Node, Refusal, Value, compute

Dims = Sequence[int | str | None]
_TO_THE_END = 2**31 - 1
_RANGES = 11
"""The first opset with Range."""


class BakedIn(Exception):  # noqa: N818 - a reason, which the pass turns into an error
    """A node needs the old size; the error is detected at a node that reads its result."""

    def __init__(self, node: Node, reason: str) -> None:
        super().__init__(reason)
        self.node = node


@dataclass(frozen=True)
class Sizes:
    """The old sizes of the freed dims by name, and the old shapes of values."""

    sizes: Mapping[str, int]
    shapes: Mapping[Value, Dims | None]

    @property
    def told(self) -> str:
        """The old sizes, for a message."""
        return " or ".join(str(size) for size in dict.fromkeys(self.sizes.values()))

    def axes(self, value: Value) -> list[int]:
        """List the axes of a value that depend on a freed dim."""
        return [axis for axis, dim in enumerate(value.shape or ()) if isinstance(dim, str) and self._names(dim)]

    def missing(self, value: Value, target: Sequence[int | str]) -> list[int]:
        """List the axes that depend on a freed dim which a target, of numbers and names, does not follow."""
        followed = {name for item in target if isinstance(item, str) for name in self._names(item)}
        return [axis for axis in self.axes(value) if not self._names(str((value.shape or ())[axis])) <= followed]

    def _names(self, dim: str) -> set[str]:
        words = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in dim).split()
        return self.sizes.keys() & set(words)

    def old(self, value: Value) -> Dims:
        """Return the old shape of a value; refuse if it is not known."""
        shape = self.shapes.get(value, value.shape)
        if shape is None:
            raise Refusal(f"the shape of {value.name} is not known")
        return shape

    def extent(self, value: Value, axis: int) -> tuple[int, int]:
        """Return the old size of a freed dim, which is outermost in its axis, and the elements between its positions.

        A dim that is computed otherwise, such as floor(t/2) after a stride, is free as a whole.
        """
        dim, old = (value.shape or ())[axis], self.old(value)
        factors = str(dim).split("*")
        freed = [factor for factor in factors if factor in self.sizes]
        others = [factor for factor in factors if factor not in self.sizes]
        inner, whole = _product(old[axis + 1 :], value), old[axis]
        if len(freed) == 1 and all(factor.isdecimal() for factor in others):
            return self.sizes[freed[0]], prod(map(int, others)) * inner
        if not isinstance(whole, int):
            raise Refusal(f"dim {axis} of {value.name} is {dim}")
        return whole, inner

    def contradiction(self, value: Value) -> str:
        """Return a text if the shape of a value is not the old one for the old sizes; empty if it is."""
        new, old = value.shape, self.shapes.get(value)
        if new is None or old is None:
            return ""
        same = len(new) == len(old) and all(self._agree(here, there) for here, there in zip(new, old))
        return "" if same else f"[{', '.join(map(str, new))}] in the place of [{', '.join(map(str, old))}]"

    def _agree(self, new: int | str | None, old: int | str | None) -> bool:
        if not isinstance(old, int) or new is None:
            return True
        factors = [self.sizes.get(factor, factor) for factor in str(new).split("*")]
        numbers = [int(factor) for factor in factors if str(factor).isdecimal()]
        return len(numbers) < len(factors) or prod(numbers) == old


def _product(dims: Dims, value: Value) -> int:
    numbers = [dim for dim in dims if isinstance(dim, int)]
    if len(numbers) < len(dims):
        raise Refusal(f"{value.name} has other free dims")
    return prod(numbers)


def _reshape(node: Node, sizes: Sizes, new: Builder) -> None:
    """Replace the old size in a target with 0 (copy) or -1, and other dims that were -1 with 0 or numbers."""
    data, result = node.required_input(0), node.outputs[0]
    target = node.input(1)
    wanted = target.elements if target is not None else tuple(node.attr("shape") or ())
    if wanted is None:
        return
    was, old = sizes.old(data), sizes.old(result)
    copied = [not node.attr("allowzero", 0) and same for same in map(_same, old, [*was, *[None] * len(old)])]
    held = {_place(data, axis, result, sizes): axis for axis in sizes.missing(data, wanted)}
    found = list(wanted)
    for place, axis in held.items():
        if wanted[place] not in (0, -1):
            found[place] = 0 if place == axis and copied[place] else -1
    for place, item in enumerate(wanted):
        if item == -1 and place not in held and found.count(-1) > 1:
            found[place] = 0 if copied[place] else _product(old[place : place + 1], result)
    if found.count(-1) > 1:
        raise Refusal("more than one dim of the target would have to be inferred")
    if found == list(wanted):
        return
    if target is None:
        new.set_attribute(node, "shape", found)
    else:
        parts = [0 if isinstance(item, str) and copied[place] else item for place, item in enumerate(found)]
        new.set_input(node, 1, _target(target, parts, new))


def _same(one: int | str | None, other: int | str | None) -> bool:
    return one is not None and one == other


def _target(old: Value, parts: Sequence[int | str | Value], new: Builder) -> Value:
    """Return a target of numbers and computed extents; names stand for elements of the old target."""
    numbers = [part for part in parts if isinstance(part, int)]
    if len(numbers) == len(parts):
        return new.constant(np.array(numbers, np.int64), old.name)
    made = [
        new.constant(np.array([part], np.int64), old.name)
        if isinstance(part, int)
        else _element(old, place, new)
        if isinstance(part, str)
        else part
        for place, part in enumerate(parts)
    ]
    return new.node("Concat", *made, axis=0)


def _place(data: Value, axis: int, result: Value, sizes: Sizes) -> int:
    """Find the dim of the result that contains a freed axis, by the number of elements between its positions."""
    was, old = sizes.old(data), sizes.old(result)
    if len(old) == 1:
        return 0
    if len(old) > axis and all(map(_same, was[: axis + 1], old[: axis + 1])):
        return axis
    size, step = sizes.extent(data, axis)
    fitting = []
    for place, dim in enumerate(old):
        inner = _product(old[place + 1 :], result)
        if isinstance(dim, int) and inner <= step and inner * dim >= step * size and step % max(inner, 1) == 0:
            fitting.append((inner * dim != step * size or inner != step, place != axis, place))
    if not fitting:
        raise Refusal(f"no dim of the target {list(old)} holds it")
    return min(fitting)[-1]


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
        new.set_input(node, 1, _target(target, found, new))


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
        parts = [_extent(data, kept[place], new) if place in kept else item for place, item in enumerate(wanted)]
        new.set_input(node, 3, _target(target, parts, new))


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


def _extent(value: Value, axis: int, new: Builder) -> Value:
    """Return the extent of one axis as a vector of one element."""
    return _element(new.node("Shape", value), axis, new, "axis")


def _element(vector: Value, place: int, new: Builder, name: str = "place") -> Value:
    """Return one element of a vector as a vector."""
    return new.node("Gather", vector, new.constant(np.array([place], np.int64), name), axis=0)


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
                    new.set_input(node, index, _enlarged(value, axis, free, axis, sizes, new))


def _enlarged(value: Value, axis: int, like: Value, other: int, sizes: Sizes, new: Builder) -> Value:
    """Repeat the only slice of a value along an axis to the length of another value."""
    shape = value.shape or ()
    slice_ = value if shape[axis] == 1 else new.constant(_one_slice(value, axis, sizes), value.name)
    return _repeated(slice_, len(shape), axis, _extent(like, other, new), new)


def _repeated(slice_: Value, rank: int, axis: int, extent: Value, new: Builder) -> Value:
    """Repeat a value that has one slice along an axis."""
    ones = [new.constant(np.ones(count, np.int64), "ones") if count else None for count in (axis, rank - axis - 1)]
    parts = [part for part in (ones[0], extent, ones[1]) if part is not None]
    return new.node("Expand", slice_, parts[0] if len(parts) == 1 else new.node("Concat", *parts, axis=0))


def _one_slice(value: Value, axis: int, sizes: Sizes) -> np.ndarray[Any, Any]:
    array = _same_in_every_run(value)
    if array is None:
        raise _origin(value, sizes)
    first = array.take([0], axis)
    if not np.array_equal(np.broadcast_to(first, array.shape), array, equal_nan=array.dtype.kind == "f"):
        raise Refusal(f"the constant {value.name} has {array.shape[axis]} different slices along the dim")
    return np.ascontiguousarray(first)


def _same_in_every_run(value: Value) -> np.ndarray[Any, Any] | None:
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


def _counted(value: Value, axis: int, like: tuple[Value, int], new: Builder) -> Value | None:
    """Look up as many rows of a table as a freed dim has, where the positions 0, 1, 2 to the old size were; else None.

    So exporters write position embeddings: the table has rows for longer inputs.
    """
    node = value.producer
    if node is None or node.op != "Gather" or node.attr("axis", 0) or node.opset < _RANGES:
        return None
    table, positions = node.required_input(0), _same_in_every_run(node.required_input(1))
    if positions is None or axis >= positions.ndim or positions.size != positions.shape[axis]:
        return None
    rows = (table.shape or (None,))[0]
    if not np.array_equal(positions.reshape(-1), np.arange(positions.size)) or rows == positions.size:
        return None
    zero, one = (new.constant(np.array(number, np.int64), "count") for number in (0, 1))
    count = new.node("Reshape", _extent(*like, new), new.constant(np.array([], np.int64), "scalar"))
    form = new.constant(np.array([-1 if place == axis else 1 for place in range(positions.ndim)], np.int64), "form")
    return new.node("Gather", table, new.node("Reshape", new.node("Range", zero, count, one), form), axis=0)


def _origin(value: Value, sizes: Sizes) -> Exception:
    """Return an exception that names the node in which the freed dim becomes a dim of the old size."""
    shape, pending = list(value.shape or ()), [value]
    for upper in pending:
        node = upper.producer
        if node is None:
            continue
        operands = [operand for operand in node.inputs if operand is not None]
        if any(sizes.axes(operand) for operand in operands):
            taken = list(operands[0].shape or ())
            made = "an unknown shape" if upper.shape is None else list(upper.shape)
            return BakedIn(node, f"it turns {taken} into {made}")
        pending += [operand for operand in operands if operand not in pending]
    return Refusal(f"{value.name} is {shape}")


def _broadcast(node: Node, sizes: Sizes, new: Builder) -> None:
    """Broadcast constants that repeat one slice along a freed dim."""
    _broadcast_all(node, range(len(node.inputs)), 0, sizes, new)


def _matmul(node: Node, sizes: Sizes, new: Builder) -> None:
    """Broadcast matrices that are the same along a freed dim; the dims that are summed over must already fit."""
    shapes = [value.shape or () for value in node.inputs if value is not None]
    if all(shapes) and shapes[0][-1] != shapes[1][-2:][0]:
        raise Refusal(f"it multiplies {shapes[0][-1]} by {shapes[1][-2:][0]}")
    _broadcast_all(node, (0, 1), 2, sizes, new)


def _gemm(node: Node, sizes: Sizes, new: Builder) -> None:
    """Broadcast the term that is added."""
    rows, term = node.required_input(0), node.input(2)
    axis = 1 if node.attr("transA") else 0
    if term is not None and axis in sizes.axes(rows) and len(term.shape or ()) == 2:
        _narrow(node, 2, 0, sizes, new)


def _broadcast_all(node: Node, operands: Sequence[int], skipped: int, sizes: Sizes, new: Builder) -> None:
    """Narrow constants along the axes, counted from the last, that are freed in another operand."""
    values = {index: value for index in operands if (value := node.input(index)) is not None}
    freed = {axis - len(value.shape or ()) for value in values.values() for axis in sizes.axes(value)}
    for index, value in values.items():
        for place in freed:
            axis = place + len(value.shape or ())
            if place < -skipped and axis >= 0:
                _narrow(node, index, axis, sizes, new, [other for other in values.values() if other != value])


def _narrow(node: Node, index: int, axis: int, sizes: Sizes, new: Builder, others: Sequence[Value] = ()) -> None:
    """Keep one slice of an operand along a freed axis, or look up as many as another operand has."""
    value = node.required_input(index)
    shape = value.shape or ()
    if not isinstance(shape[axis], int) or shape[axis] == 1:
        return
    for like in others:
        place = axis - len(shape) + len(like.shape or ())
        if place in sizes.axes(like):
            made = _counted(value, axis, (like, place), new)
            if made is not None:
                new.set_input(node, index, made)
                return
    new.set_input(node, index, new.constant(_one_slice(value, axis, sizes), value.name))


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
        new.set_input(node, index, None if zero else _enlarged(value, axis, data, batch, sizes, new))


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
    new.set_input(node, 1, _repeated(same, array.ndim, 0, _extent(data, 0, new), new))
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
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
}
"""The rule for each operator; "broadcast" is for all operators that broadcast their operands."""
