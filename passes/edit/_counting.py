"""Constants that show how they go on: positions, angles, causal masks, and one slice that is repeated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Value

Array = np.ndarray[Any, Any]
Make = Callable[[Builder], Value]
_ENOUGH = 3
"""Two positions fit any line, and 2 x 2 elements too many masks."""
_ROUNDED = 1e-6
"""How far a sine or cosine may be from the one of a rounded product, for each position."""


@dataclass
class Counter:
    """Computes extents of freed dims, and constants that are counted up to them."""

    FIRST_OPSET = 11  # Range

    graph: Graph
    ports: Mapping[str, tuple[Value, int]]
    masks: list[Value] = field(default_factory=list)
    extended: dict[str, str] = field(default_factory=dict)
    _extents: dict[str, Value] = field(default_factory=dict)
    _ranges: dict[str, Value] = field(default_factory=dict)
    _made: dict[tuple[Value, int, str, bool], Value] = field(default_factory=dict)
    _waves: dict[tuple[Value, int], tuple[str, Array]] = field(default_factory=dict)
    _first: Node | None = None

    def target(self, dims: Sequence[int | str], new: Builder) -> Value:
        """Return a vector of numbers and extents of freed dims."""
        parts = [self.extent(dim, new) if isinstance(dim, str) else _vector(dim, new) for dim in dims]
        return parts[0] if len(parts) == 1 else new.node("Concat", *parts, axis=0)

    def extent(self, dim: str, new: Builder) -> Value:
        """Return the extent of a freed dim as a vector of one element, computed at the beginning of the model."""
        if dim not in self._extents:
            port, axis = self.ports[dim]
            front = self._front(new)
            index = front.constant(np.array([axis], np.int64), "axis")
            self._extents[dim] = front.node("Gather", front.node("Shape", port), index, axis=0)
        return self._extents[dim]

    def counted(self, value: Value, array: Array, axis: int, dim: str, *, is_angle: bool) -> Make | None:
        """Return what makes a constant of any extent along an axis; None if its elements do not show how it goes on."""
        key = (value, axis, dim, is_angle)
        found = self._made.get(key)
        if found is not None and found.is_used:
            return lambda new: found
        make = self._shown(value, array, axis, dim, is_angle=is_angle)
        return None if make is None else lambda new: self._made.setdefault(key, make(self._front(new)))

    def _shown(self, value: Value, array: Array, axis: int, dim: str, *, is_angle: bool) -> Make | None:
        size = array.shape[axis]
        first = array.take([0], axis)
        if np.array_equal(np.broadcast_to(first, array.shape), array, equal_nan=array.dtype.kind == "f"):
            dims = [dim if at == axis else extent for at, extent in enumerate(array.shape)]
            return lambda new: new.node("Expand", new.constant(first, value.name), self.target(dims, new))
        if size < _ENOUGH:
            return None
        if array.dtype.kind in "iu":
            return self._line(value, array, axis, dim)
        if array.dtype.kind == "f" and is_angle:
            return self._angles(value, array, axis, dim)
        return self._mask(value, array, axis, dim) or self._wave(value, array, axis, dim)

    def _line(self, value: Value, array: Array, axis: int, dim: str) -> Make | None:
        """Count from the first slice on in steps of 0 and 1."""
        first, step = array.take([0], axis), array.take([1], axis) - array.take([0], axis)
        line = first + _along(np.arange(array.shape[axis], dtype=array.dtype), array.ndim, axis) * step
        if not np.array_equal(line, array) or not np.isin(step, (0, 1)).all():
            return None
        self.extended[value.name] = "positions"

        def make(new: Builder) -> Value:
            counted = self._range(array, axis, dim, new)
            if not step.all() or step.size > 1:
                counted = new.node("Mul", counted, new.constant(step, "step"))
            return new.node("Add", counted, new.constant(first, "first")) if first.any() else counted

        return make

    def _angles(self, value: Value, array: Array, axis: int, dim: str) -> Make | None:
        """Multiply positions by the row of position 1, of which all rows are exact products."""
        row = array.take([1], axis)
        line = _along(np.arange(array.shape[axis]).astype(array.dtype), array.ndim, axis) * row
        if not np.array_equal(line, array):
            return None
        self.extended[value.name] = "angles"
        return lambda new: new.node("Mul", self._range(array, axis, dim, new), new.constant(row, "angles"))

    def _wave(self, value: Value, array: Array, axis: int, dim: str) -> Make | None:
        """Compute cosines or sines of positions times a row of angles, which both of them together show."""
        if array.dtype not in (np.float32, np.float64):
            return None
        if (value, axis) in self._waves:
            return self._wave_of(*self._waves[value, axis], axis, dim)
        first = array.take([0], axis)
        is_cosine = bool(np.all(first == 1))
        if not is_cosine and np.any(first != 0):
            return None
        numbers = _along(np.arange(array.shape[axis], dtype=np.float64), array.ndim, axis)
        for other in self.graph.constants():
            if other.dtype != value.dtype or other.shape != array.shape or (pair := other.constant) is None:
                continue
            sine, cosine = (pair, array) if is_cosine else (array, pair)
            row = _row(np.arctan2(sine.astype(np.float64), cosine.astype(np.float64)), axis)
            off = np.maximum(abs(np.sin(numbers * row) - sine), abs(np.cos(numbers * row) - cosine))
            if np.all(off < _ROUNDED * (1 + numbers)):
                kept = row.astype(array.dtype)
                self._waves[value, axis] = "Cos" if is_cosine else "Sin", kept
                self._waves[other, axis] = "Sin" if is_cosine else "Cos", kept
                self.extended |= {value.name: "angles", other.name: "angles"}
                return self._wave_of(*self._waves[value, axis], axis, dim)
        return None

    def _wave_of(self, op: str, row: Array, axis: int, dim: str) -> Make:
        return lambda new: new.node(op, new.node("Mul", self._range(row, axis, dim, new), new.constant(row, "angles")))

    def _mask(self, value: Value, array: Array, axis: int, dim: str) -> Make | None:
        """Compare positions along two axes, of which each element depends by the sign of their difference."""
        size = array.shape[axis]
        numbers = np.arange(size)
        for other in (at for at in range(array.ndim) if at != axis and array.shape[at] == size):
            gap = _along(numbers, array.ndim, axis) - _along(numbers, array.ndim, other)
            for least in (0, 1):
                found = _two(array, np.broadcast_to(gap >= least, array.shape))
                if found is not None:
                    self.extended[value.name] = "a triangular mask"
                    return lambda new, other=other, least=least, found=found: self._compare(  # type: ignore[misc]
                        array, (axis, other), dim, least, found, new
                    )
        return None

    def _compare(
        self, array: Array, axes: tuple[int, int], dim: str, least: int, found: tuple[Any, Any], new: Builder
    ) -> Value:
        axis, other = axes
        numbers = _along(np.arange(array.shape[other]), array.ndim, other)
        positions = new.constant(numbers, "positions")
        here = self._range(numbers, axis, dim, new)
        mask = new.node("Greater" if least else "Less", here, positions)
        self.masks.append(mask)
        true, false = found if least else found[::-1]
        if array.dtype == np.bool_:
            return mask if true else new.node("Not", mask)
        kinds = [new.constant(np.asarray(one, array.dtype), "masked") for one in (true, false)]
        return new.node("Where", mask, *kinds)

    def _range(self, like: Array, axis: int, dim: str, new: Builder) -> Value:
        """Return 0, 1, 2 up to a freed dim along one axis of a rank, in an element type."""
        front = self._front(new)
        if dim not in self._ranges:
            zero, one = (front.constant(np.array(number, np.int64), "count") for number in (0, 1))
            scalar = front.constant(np.array([], np.int64), "scalar")
            self._ranges[dim] = front.node("Range", zero, front.node("Reshape", self.extent(dim, new), scalar), one)
        form = [-1 if at == axis else 1 for at in range(like.ndim)]
        found = self._ranges[dim]
        if len(form) > 1:
            found = new.node("Reshape", found, new.constant(np.array(form, np.int64), "form"))
        number = _CODES[like.dtype.name]
        return found if number == _CODES["int64"] else new.node("Cast", found, to=number)

    def _front(self, new: Builder) -> Builder:
        if self._first is None or self._first.is_removed:
            self._first = self.graph.main_nodes()[0]
        return new.at(self._first)


_CODES = {"float16": 10, "float32": 1, "float64": 11, "int32": 6, "int64": 7}


def _row(phases: Array, axis: int) -> Array:
    """Return the angle per position, from the phases of all of them: those of later ones are rounded less."""
    row = phases.take([1], axis)
    whole, weight = np.zeros_like(row), 0
    for position in range(1, phases.shape[axis]):
        phase = phases.take([position], axis)
        turns = np.round((position * row - phase) / (2 * np.pi))
        whole, weight = whole + phase + 2 * np.pi * turns, weight + position
        row = np.divide(whole, weight)
    return row


def _two(array: Array, where: Array) -> tuple[Any, Any] | None:
    """Return the element where a condition holds and the one elsewhere; None if these are not two elements."""
    true, false = np.unique(array[where]), np.unique(array[~where])
    return (true[0], false[0]) if true.size == 1 and false.size == 1 and true[0] != false[0] else None


def _along(numbers: Array, rank: int, axis: int) -> Array:
    return numbers.reshape([-1 if at == axis else 1 for at in range(rank)])


def _vector(number: int, new: Builder) -> Value:
    return new.constant(np.array([number], np.int64), "extent")
