"""The axes of a tensor, traced through Reshapes and Transposes.

A dim is a product of numbers and symbols ("64*batch"); any other expression, such as "floor(n/2)", counts as one
symbol. A Reshape splits axes and joins their parts, a Transpose permutes them. A chain is fully described by the final
order and grouping of the parts of the source's axes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

Dims = Sequence[int | str | None]


@dataclass(frozen=True)
class Extent:
    """A product of a number and symbols."""

    number: int
    symbols: tuple[str, ...] = ()

    def over(self, other: Extent) -> Extent | None:
        """Divide by another extent; return None if there is a remainder."""
        if self.number % other.number:
            return None
        left = list(self.symbols)
        for symbol in other.symbols:
            if symbol not in left:
                return None
            left.remove(symbol)
        return Extent(self.number // other.number, tuple(left))


ONE = Extent(1)


def extent(dim: int | str | None) -> Extent | None:
    """Read a dim; return None if it is not known, or 0, which has no parts."""
    if isinstance(dim, int):
        return Extent(dim) if dim > 0 else None
    if dim is None:
        return None
    if not all(factor.isidentifier() or factor.isdecimal() for factor in dim.split("*")):
        return Extent(1, (dim,))
    number, symbols = 1, []
    for factor in dim.split("*"):
        if factor.isdecimal():
            number *= int(factor)
        else:
            symbols.append(factor)
    return Extent(number, tuple(sorted(symbols))) if number else None


def extents(dims: Dims | None) -> tuple[Extent, ...] | None:
    """Read all dims of a shape; return None if any cannot be read."""
    found = [extent(dim) for dim in dims or ()]
    known = tuple(item for item in found if item is not None)
    return known if dims is not None and len(known) == len(found) else None


class Axis:
    """An axis of the source, or a part of one; split when a Reshape requires it."""

    def __init__(self, size: Extent) -> None:
        self.size = size
        self.parts: tuple[Axis, ...] = ()

    def split(self, first: Extent, rest: Extent) -> tuple[Axis, Axis]:
        """Split into two parts, the outer one first."""
        self.parts = pair = (Axis(first), Axis(rest))
        return pair

    def leaves(self) -> Iterator[Axis]:
        """Yield the parts that are not split further, except those of extent 1."""
        if self.parts:
            for part in self.parts:
                yield from part.leaves()
        elif self.size != ONE:
            yield self


Grouping = list[list[Axis]]
"""The axes that each dim consists of."""


def leaves(groups: Iterable[Iterable[Axis]]) -> list[Axis]:
    """Return the finest parts, in order."""
    return [leaf for group in groups for axis in group for leaf in axis.leaves()]


def regroup(groups: Grouping, wanted: Sequence[Extent]) -> Grouping | None:
    """Apply a Reshape: group the parts, in order, into other dims; return None if they do not fit."""
    queue = deque(leaves(groups))
    result: Grouping = []
    for missing in wanted:
        group: list[Axis] = []
        while missing != ONE:
            if not queue:
                return None
            axis = queue.popleft()
            left = missing.over(axis.size)
            if left is None:
                rest = axis.size.over(missing)
                if rest is None:
                    return None
                axis, other = axis.split(missing, rest)
                queue.appendleft(other)
                left = ONE
            group.append(axis)
            missing = left
        result.append(group)
    return None if queue else result


def runs(source: Sequence[Axis], final: Sequence[Axis]) -> list[list[Axis]]:
    """Cut the final order into the longest pieces that are contiguous in the source, too."""
    place = {axis: position for position, axis in enumerate(source)}
    found: list[list[Axis]] = []
    for axis in final:
        if found and place[found[-1][-1]] + 1 == place[axis]:
            found[-1].append(axis)
        else:
            found.append([axis])
    return found


def size_of(axes: Iterable[Axis]) -> Extent:
    """Return the product of the extents of axes."""
    sizes = [axis.size for axis in axes]
    return Extent(prod(size.number for size in sizes), tuple(sorted(s for size in sizes for s in size.symbols)))
