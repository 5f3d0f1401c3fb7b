"""Values that keep the old size where a freed dim is needed: they are followed up to the constants that hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from surgery import Builder, Graph, Node, Value

from ._counting import Counter
from ._old_sizes import Meets, Sizes
from ._sizes import same_in_every_run


class Stuck(Exception):  # noqa: N818 - a reason, which the pass turns into an error
    """A value cannot get the freed dim; the reason names its constant."""

    def __init__(self, node: Node, reason: str) -> None:
        super().__init__(reason)
        self.node = node


Place = tuple[Node, int, int]
"""An input of a node, by its index, and an axis of it."""


@dataclass
class Follower:
    """Replaces what gives values the old size, at the inputs that read it, by what has the size of a freed dim.

    This is done only where a value with the old size meets the freed dim, for which the model would be invalid
    otherwise: that a number equals the old size shows nothing.
    """

    graph: Graph
    sizes: Sizes
    ports: Mapping[str, tuple[Value, int]]
    counter: Counter = field(init=False)
    pending: list[tuple[Place, Callable[[Builder], Value]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counter = Counter(self.graph, self.ports)

    def follow(self, node: Node, met: Meets) -> list[Node]:
        """Give an operand the freed dim; return the nodes whose inputs have changed. Stuck if nothing was changed."""
        self.pending = []
        self._place((node, met.index, met.axis), met.dim)
        for (reader, index, _), make in self.pending:
            with self.graph.site(reader) as new:
                new.set_input(reader, index, make(new))
        return list(dict.fromkeys(reader for (reader, _, _), _ in self.pending))

    def stand_in(self, node: Node, met: Meets) -> list[Node]:
        """Replace an operand that cannot follow by zeros of the right dims, to find further nodes; the run fails."""
        value = node.required_input(met.index)
        dims = [met.dim if axis == met.axis else dim for axis, dim in enumerate(value.shape or ())]
        known = [dim for dim in dims if isinstance(dim, int) or dim in self.ports]
        if value.dtype is None or len(known) < len(dims):
            return []
        with self.graph.site(node) as new:
            zero = new.constant(np.zeros([], value.dtype.numpy()), "zero")
            new.set_input(
                node,
                met.index,
                new.node("Expand", zero, self.counter.target([dim for dim in dims if dim is not None], new)),
            )
        return [node]

    def _place(self, place: Place, dim: str) -> None:
        """Find the inputs above one that have to be replaced, for it to have the freed dim along an axis."""
        node, index, axis = place
        value = node.required_input(index)
        extent = (value.shape or ())[axis]
        if extent == dim:
            return
        if dim not in self.ports or extent != self.sizes.sizes[dim]:
            raise self._stuck(node, value, axis)
        array = same_in_every_run(value)
        make = None if array is None else self.counter.counted(value, array, axis, dim, is_angle=node.op in _ANGLES)
        if make is not None and node.opset < Counter.FIRST_OPSET:
            raise Stuck(node, f"positions in {value.name} can be counted from opset {Counter.FIRST_OPSET} on")
        if make is not None:
            self.pending.append((place, make))
            return
        above = value.producer
        if above is None:
            raise self._stuck(node, value, axis)
        rule = _elementwise if above.is_broadcasting or above.is_unary else _RULES.get(above.op)
        if rule is None:
            raise self._stuck(node, value, axis)
        rule(self, above, value, axis, dim)

    def target(self, node: Node, index: int, place: int, dim: str) -> None:
        """Have one element of a constant target follow a freed dim."""
        elements = node.required_input(index).elements
        if elements is None:
            raise Stuck(node, f"the target {node.required_input(index).name} is computed")
        parts: list[int | str] = [dim if at == place else item for at, item in enumerate(elements)]
        if not all(isinstance(part, int) or part in self.ports for part in parts):
            raise Stuck(node, f"the target {node.required_input(index).name} is computed")
        self.pending.append(((node, index, 0), lambda new: self.counter.target(parts, new)))

    def rows(self, node: Node, table: Value, axis: int, dim: str) -> None:
        """Stuck if a table has no more rows along an axis than the old size."""
        extent = (table.shape or (None,) * (axis + 1))[axis]
        if extent == dim:
            return
        size = self.sizes.sizes[dim]
        if not isinstance(extent, int) or same_in_every_run(table) is None:
            raise Stuck(node, f"it looks up {size} positions of {table.name}, which has {extent}")
        if extent <= size:
            raise Stuck(node, f"the table {table.name} has {extent} rows, and none for further positions")

    def _stuck(self, node: Node, value: Value, axis: int) -> Stuck:
        """Return an exception that names the node in which the freed dim becomes a dim of the old size."""
        shape, pending = list(value.shape or ()), [value]
        array = same_in_every_run(value)
        if array is not None:
            return Stuck(node, f"the constant {value.name} has {shape[axis]} different slices along the dim")
        for upper in pending:
            above = upper.producer
            if above is None:
                continue
            operands = [operand for operand in above.inputs if operand is not None]
            if any(self.sizes.axes(operand) for operand in operands):
                made = "an unknown shape" if upper.shape is None else list(upper.shape)
                return Stuck(above, f"it turns {list(operands[0].shape or ())} into {made}")
            pending += [operand for operand in operands if operand not in pending]
        return Stuck(node, f"{value.name} is {shape}")


def _elementwise(one: Follower, node: Node, value: Value, axis: int, dim: str) -> None:
    rank = len(value.shape or ())
    operands = node.inputs[:1] if node.is_unary else node.inputs
    for index, operand in enumerate(operands):
        place = axis - rank + len((operand.shape if operand else None) or ())
        if operand is not None and place >= 0 and (operand.shape or ())[place] != 1:
            one._place((node, index, place), dim)


def _expand(one: Follower, node: Node, value: Value, axis: int, dim: str) -> None:
    data = node.required_input(0)
    place = axis - len(value.shape or ()) + len(data.shape or ())
    if place >= 0 and (data.shape or ())[place] != 1:
        one._place((node, 0, place), dim)
    elements = node.required_input(1).elements or ()
    at = axis - len(value.shape or ()) + len(elements)
    if not elements or (at >= 0 and elements[at] != 1):
        one.target(node, 1, at, dim)


def _transpose(one: Follower, node: Node, value: Value, axis: int, dim: str) -> None:
    order = node.attr("perm") or range(len(value.shape or ()))[::-1]
    one._place((node, 0, order[axis]), dim)


def _reshape(one: Follower, node: Node, value: Value, axis: int, dim: str) -> None:
    """Follow the axis of the operand that has the same extent and the same number of elements between positions."""
    data, shape = node.required_input(0), list(value.shape or ())
    was = list(data.shape or ())
    fitting = [at for at, extent in enumerate(was) if extent == shape[axis] and _inner(was, at) == _inner(shape, axis)]
    if len(fitting) != 1:
        raise Stuck(node, f"it turns {was} into {shape}")
    one._place((node, 0, fitting[0]), dim)


def _inner(shape: list[int | str | None], axis: int) -> int | None:
    rest = [dim for dim in shape[axis + 1 :] if isinstance(dim, int)]
    return prod(rest) if len(rest) == len(shape) - axis - 1 else None


def _gather(one: Follower, node: Node, value: Value, axis: int, dim: str) -> None:
    data, indices = node.required_input(0), node.required_input(1)
    along, rank = int(node.attr("axis", 0)) % len(data.shape or (0,)), len(indices.shape or ())
    if along <= axis < along + rank:
        one.rows(node, data, along, dim)
        one._place((node, 1, axis - along), dim)
    else:
        one._place((node, 0, axis if axis < along else axis - rank + 1), dim)


def _gather_elements(one: Follower, node: Node, value: Value, axis: int, dim: str) -> None:
    data, along = node.required_input(0), int(node.attr("axis", 0)) % len(value.shape or (0,))
    if axis != along:
        raise Stuck(node, f"it turns {list(data.shape or ())} into {list(value.shape or ())}")
    one.rows(node, data, along, dim)
    one._place((node, 1, axis), dim)


def _gather_nd(one: Follower, node: Node, value: Value, axis: int, dim: str) -> None:
    """Follow indices of which those count that look up a dim with as many positions."""
    data, indices = node.required_input(0), node.required_input(1)
    shape, batch = indices.shape or (None,), int(node.attr("batch_dims", 0))
    if axis >= len(shape) - 1 or axis < batch or (shape[-1] != 1 and indices.constant is None):
        raise Stuck(node, f"it turns {list(data.shape or ())} into {list(value.shape or ())}")
    array = indices.constant
    moving = (
        [0] if array is None else [at for at in range(array.shape[-1]) if np.any(np.diff(array[..., at], axis=axis))]
    )
    for column in moving:
        one.rows(node, data, batch + column, dim)
    one._place((node, 1, axis), dim)


def _slice(one: Follower, node: Node, value: Value, axis: int, dim: str) -> None:
    """Follow the end of a slice of a longer constant from its first position."""
    data = node.required_input(0)
    starts, ends, axes, steps = ((one_.elements if (one_ := node.input(at)) else None) for at in (1, 2, 3, 4))
    rank = len(value.shape or ())
    places = [int(at) % rank for at in axes or range(len(ends or ()))]
    if axis not in places:
        one._place((node, 0, axis), dim)
        return
    at = places.index(axis)
    whole = starts is None or ends is None or starts[at] != 0 or (steps is not None and steps[at] != 1)
    if whole or node.opset < 10 or ends is None or ends[at] != one.sizes.sizes[dim]:
        raise Stuck(node, f"it turns {list(data.shape or ())} into {list(value.shape or ())}")
    one.rows(node, data, axis, dim)
    one.target(node, 2, at, dim)


def _unsqueeze(one: Follower, node: Node, value: Value, axis: int, dim: str) -> None:
    """Follow the axis with the same number among those that are not inserted."""
    given = node.input(1)
    axes = node.attr("axes") if given is None else given.elements
    if axes is None:
        raise Stuck(node, "its axes are computed")
    rank = len(value.shape or ())
    one._place((node, 0, [at for at in range(rank) if at not in [int(item) % rank for item in axes]].index(axis)), dim)


_ANGLES = ("Cos", "Sin")
_RULES: dict[str, Callable[[Follower, Node, Value, int, str], None]] = {
    "Expand": _expand,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Reshape": _reshape,
    "Slice": _slice,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
