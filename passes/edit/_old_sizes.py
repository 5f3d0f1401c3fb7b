"""The old sizes of freed dims, and what operands have to follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from surgery import Builder, Refusal, Value

Dims = Sequence[int | str | None]


class Meets(Exception):  # noqa: N818 - what the pass has to follow, or an error
    """An operand of a node has the old size, or differs along it, where the node needs the freed dim."""

    def __init__(self, index: int, axis: int, dim: str) -> None:
        super().__init__(index, axis, dim)
        self.index = index
        self.axis = axis
        self.dim = dim


@dataclass(frozen=True)
class Sizes:
    """The old sizes of the freed dims by name, and the old shapes of values."""

    sizes: Mapping[str, int]
    shapes: Mapping[Value, Dims | None]

    @property
    def listed(self) -> str:
        """The old sizes, for a message."""
        return " or ".join(str(size) for size in dict.fromkeys(self.sizes.values()))

    def axes(self, value: Value) -> list[int]:
        """List the axes of a value that depend on a freed dim."""
        return [axis for axis, dim in enumerate(value.shape or ()) if isinstance(dim, str) and self.names(dim)]

    def is_alone(self, value: Value, axis: int, old: int | str | None) -> bool:
        """Whether an axis of a value is a freed dim, and of this old size."""
        return self.sizes.get(str((value.shape or ())[axis])) == old

    def missing(self, value: Value, target: Sequence[int | str]) -> list[int]:
        """List the axes that depend on a freed dim which a target, of numbers and names, does not follow."""
        followed = {name for item in target if isinstance(item, str) for name in self.names(item)}
        return [axis for axis in self.axes(value) if not self.names(str((value.shape or ())[axis])) <= followed]

    def names(self, dim: str) -> set[str]:
        """Return the freed dims that a dim depends on."""
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
        inner, whole = product(old[axis + 1 :], value), old[axis]
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


def product(dims: Dims, value: Value) -> int:
    """Return the number of elements of dims; refuse if one is open."""
    numbers = [dim for dim in dims if isinstance(dim, int)]
    if len(numbers) < len(dims):
        raise Refusal(f"{value.name} has other free dims")
    return prod(numbers)


def extent(value: Value, axis: int, new: Builder) -> Value:
    """Return the extent of one axis as a vector of one element."""
    return element(new.node("Shape", value), axis, new, "axis")


def element(vector: Value, place: int, new: Builder, name: str = "place") -> Value:
    """Return one element of a vector as a vector."""
    return new.node("Gather", vector, new.constant(np.array([place], np.int64), name), axis=0)


def dim_of(value: Value, axis: int) -> str:
    """Return a dim as text."""
    return str((value.shape or ())[axis])
