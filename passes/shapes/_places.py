"""Index tuples that are coordinates: what a GatherND takes from its data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surgery import Node, Value

from ._coordinates import grid
from ._targets import Extent

_MOVES = frozenset({"Cast", "Expand", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_DEEPEST = 32
"""Maximum number of nodes from the indices back to a Range."""


@dataclass(frozen=True)
class Counted:
    """The first `extent` positions of a dim of the data, along `axis` of the result; `last` is one more than the last.

    The positions come from a Range with this limit, a scalar.
    """

    axis: int
    extent: Extent
    last: Value | None


@dataclass(frozen=True)
class Block:
    """A block of the data that begins at its origin: what a GatherND takes, in order.

    The axes of the result that count nothing, `ones`, have extent 1.
    """

    dims: tuple[Counted, ...]
    ones: tuple[int, ...]

    def cut(self, shape: tuple[Extent | None, ...]) -> list[int]:
        """Return the dims of the data, of this shape, that the block does not have whole."""
        pairs = zip(self.dims, shape)
        return [dim for dim, (counted, extent) in enumerate(pairs) if extent is None or counted.extent != extent]


def block(node: Node) -> Block | None:
    """Return what a GatherND takes if its index tuples are coordinates in order; otherwise None."""
    indices = node.required_input(1)
    joined, places = indices.producer, indices.shape
    if joined is None or joined.op != "Concat" or places is None or joined.attr("axis") not in (-1, len(places) - 1):
        return None
    dims: list[Counted] = []
    for value in joined.inputs:
        counted = None if value is None else _counted(value, places)
        if counted is None:
            return None
        dims.append(counted)
    axes = [counted.axis for counted in dims]
    ones = tuple(axis for axis in range(len(places) - 1) if axis not in axes)
    in_order = axes == sorted(set(axes)) and all(places[axis] == 1 for axis in ones)
    return Block(tuple(dims), ones) if in_order else None


def _counted(value: Value, places: tuple[Extent | None, ...]) -> Counted | None:
    """Read one element of each index tuple: the position along one axis."""
    found = None if value.shape is None or value.shape[-1] != 1 else grid(value)
    if found is None or found.offset != 0 or list(found.factors.values()) != [1]:
        return None
    (axis,) = found.factors
    extent = places[axis]
    return None if extent is None else Counted(axis, extent, _limit(value))


def _limit(value: Value) -> Value | None:
    """Return the limit of the Range that a value is made from by moves, if it is not negative; otherwise None."""
    for _ in range(_DEEPEST):
        node = value.producer
        if node is None or node.op not in (*_MOVES, "Range"):
            return None
        if node.op != "Range":
            value = node.required_input(0)
            continue
        limit, extents = node.required_input(1), node.outputs[0].shape
        # The extent of the Range would be max(0, limit) if the limit could be negative.
        return limit if limit.elements is not None and limit.elements == extents else None
    return None


def takes_all(indices: Value, shape: tuple[Extent | None, ...]) -> bool:
    """Return whether constant index tuples name all positions of the first dims of the data, in order."""
    tuples = indices.constant
    if tuples is None or not tuples.ndim or not 0 < tuples.shape[-1] <= len(shape):
        return False
    extents = shape[: tuples.shape[-1]]
    numbers = [extent for extent in extents if isinstance(extent, int)]
    rows = tuples.reshape(-1, tuples.shape[-1])
    if len(numbers) != len(extents) or len(rows) != np.prod(numbers):
        return False
    wanted = np.stack(np.unravel_index(np.arange(len(rows)), numbers), axis=-1)
    return bool((np.where(rows < 0, rows + np.array(numbers), rows) == wanted).all())
