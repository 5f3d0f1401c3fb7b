"""Regions of values that carry a factor, from the place where it is applied up to the constants that absorb it."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any

from surgery import Node, Value

from ._shared import SMALL

FIRST = {
    *("AveragePool", "DepthToSpace", "Expand", "Flatten", "Gather", "GlobalAveragePool", "Identity", "Neg"),
    *("ReduceMean", "ReduceSum", "Reshape", "RotaryEmbedding", "Slice", "SpaceToDepth", "Split", "Squeeze"),
    *("Tile", "Transpose", "Unsqueeze"),
}
"""Operators that are linear in their first input."""

ALL = {"Add", "Concat", "Sub", "Sum"}
"""Operators that carry a factor if all their inputs do."""

EITHER = {"MatMul", "Mul"}
"""Operators that carry a factor if one of their two inputs does."""

PARAMETERS = {"Conv", "ConvTranspose", "Gemm", "InstanceNormalization", "LayerNormalization", "RMSNormalization"}
"""Operators that carry a factor if their weight and their bias do."""

HANDING_ON = {*FIRST, *ALL, *EITHER, "Div"}
"""Operators that can carry a factor from their data."""

LARGEST = 64
"""Maximum number of values in a region."""
STEPS = 200
"""Maximum number of steps of a search."""


@dataclass(frozen=True)
class Span:
    """A range of elements along the last axis of a value."""

    start: int
    stop: int
    size: int


@dataclass(frozen=True)
class Taken:
    """A constant operand of a node that absorbs the factor, as a whole or in part."""

    reader: Node
    position: int
    value: Value
    part: Any = ...


@dataclass(frozen=True)
class Region:
    """The values that carry the factor, the nodes that compute them, and the constants that absorb it."""

    values: dict[Value, Span | None] = field(default_factory=dict)
    nodes: dict[Node, None] = field(default_factory=dict)
    constants: tuple[Taken, ...] = ()

    def is_closed(self, end: Node) -> bool:
        """Return whether no node outside the region except `end` reads its values, and each node in it carries once."""
        if not all(map(self._carries_once, self.nodes)):
            return False
        for node in self.nodes:
            is_part = node.op == "Split" and self.values.get(node.required_input(0)) is not None
            if not is_part and any(value.is_used and value not in self.values for value in node.outputs):
                return False
        inside = {*self.nodes, end}
        return all(set(value.consumers) <= inside for value in self.values)

    def _carries_once(self, node: Node) -> bool:
        """Return whether a node gets the factor by the inputs through which it carries it, and by no other one too."""
        held = {place for place, value in enumerate(node.inputs) if value is not None and value in self.values}
        held |= {taken.position for taken in self.constants if taken.reader == node}
        if node.op in EITHER:
            return len(held) == 1
        return node.op in ALL or (0 not in held if node.op in PARAMETERS else held == {0})


@dataclass(frozen=True)
class _Wanted:
    """An input that must carry the factor."""

    reader: Node
    position: int
    span: Span | None

    @property
    def value(self) -> Value:
        return self.reader.required_input(self.position)


class Regions:
    """Searches for the regions of a graph, which may change only where a region was found.

    Inputs without a region are remembered, so that searches from further downstream stop there.
    """

    def __init__(self) -> None:
        self._hopeless: set[_Wanted] = set()

    def find(self, value: Value, end: Node) -> Region | None:
        """Return the nearest region through which `value`, read by the node `end`, can carry a factor; else None."""
        position = next(place for place, operand in enumerate(end.inputs) if operand == value)
        wanted = _Wanted(end, position, None)
        is_hopeless = True
        for region in _search((wanted,), Region(), [STEPS], self._hopeless):
            is_hopeless = False
            if region.is_closed(end):
                self._hopeless.clear()
                return region
        if is_hopeless:
            self._hopeless.add(wanted)
        return None


def _search(
    wanted: tuple[_Wanted, ...], region: Region, steps: list[int], hopeless: Container[_Wanted]
) -> Iterator[Region]:
    """Yield the regions in which all wanted inputs carry a factor, the nearest first."""
    steps[0] -= 1
    if not wanted:
        yield region
        return
    if wanted[0] in hopeless or steps[0] < 0 or len(region.values) > LARGEST:
        return
    first, rest = wanted[0], wanted[1:]
    value, span = first.value, first.span
    if value.is_constant:
        taken = _taken(first)
        if taken is not None:
            yield from _search(rest, Region(region.values, region.nodes, (*region.constants, taken)), steps, hopeless)
        return
    if value in region.values:
        if region.values[value] == span:
            yield from _search(rest, region, steps, hopeless)
        return
    producer = value.producer
    if producer is None or not _may_carry(value, producer, first.reader):
        return
    grown = {**region.values, value: span}
    for inputs in _ways(producer, value, span):
        if producer in region.nodes:
            # Another output has already requested the same.
            yield from _search(rest, Region(grown, region.nodes, region.constants), steps, hopeless)
            return
        yield from _search(
            (*inputs, *rest), Region(grown, {**region.nodes, producer: None}, region.constants), steps, hopeless
        )


def _may_carry(value: Value, producer: Node, reader: Node) -> bool:
    """Return whether a value may carry the factor, judged without a look further upstream."""
    if producer.op not in HANDING_ON | PARAMETERS or producer.scope is not reader.scope or value.is_output:
        return False
    return all(other == reader or other.op in HANDING_ON for other in value.consumers)


def _ways(node: Node, value: Value, span: Span | None) -> Iterator[tuple[_Wanted, ...]]:
    """Yield the alternative sets of inputs that make a result carry the factor; constants first."""
    if span is None:
        yield from _whole(node)
        if node.op == "Split" and (part := _part(node, value)) is not None:
            yield (_Wanted(node, 0, part),)
        return
    places = _places(node)
    if node.op in ALL - {"Concat"} and all(_last(node.required_input(place)) == span.size for place in places):
        yield tuple(_Wanted(node, place, span) for place in places)
    elif node.op in ("Gemm", "LayerNormalization", "RMSNormalization"):
        yield tuple(_Wanted(node, place, span) for place in places if place > 0)
    elif node.op == "MatMul":
        yield (_Wanted(node, 1, span),)
    elif node.op == "Reshape" and _last(node.required_input(0)) == _last(value) == span.size:
        yield (_Wanted(node, 0, span),)


def _whole(node: Node) -> Iterator[tuple[_Wanted, ...]]:
    places = _places(node)
    if node.op in FIRST or node.op == "Div":
        yield (_Wanted(node, 0, None),)
    elif node.op in ALL:
        yield tuple(_Wanted(node, place, None) for place in places)
    elif node.op in EITHER:
        for place in sorted(places, key=lambda place: not node.required_input(place).is_constant):
            yield (_Wanted(node, place, None),)
    else:
        yield tuple(_Wanted(node, place, None) for place in places if place > 0)


def _places(node: Node) -> list[int]:
    return [place for place, value in enumerate(node.inputs) if value is not None]


def _part(split: Node, value: Value) -> Span | None:
    """Return the range along the last axis of its input that a Split puts into one output; None if unknown."""
    rank = value.rank
    widths = [_last(output) for output in split.outputs]
    if rank is None or split.attr("axis", 0) % rank != rank - 1 or None in widths:
        return None
    sizes = [width for width in widths if width is not None]
    start = sum(sizes[: value.output_index or 0])
    return Span(start, start + sizes[value.output_index or 0], sum(sizes))


def _last(value: Value) -> int | None:
    shape = value.shape
    return shape[-1] if shape and isinstance(shape[-1], int) else None


def _taken(wanted: _Wanted) -> Taken | None:
    """Return how a constant absorbs the factor; None if it cannot, such as if another node needs it unchanged."""
    value, node, span = wanted.value, wanted.reader, wanted.span
    tensor = value.tensor
    if tensor is None or tensor.dtype.name not in ("BFLOAT16", "DOUBLE", "FLOAT", "FLOAT16"):
        return None
    if tensor.nbytes > SMALL and (value.reads > 1 or value.is_output):
        return None
    # Runtimes recognize an activation by its scalars.
    if tensor.size == 1 and node.op in ("Div", "Mul"):
        return None
    if span is None:
        return Taken(node, wanted.position, value)
    axis = 0 if node.op == "Gemm" and wanted.position == 1 and node.attr("transB") else -1
    shape = value.static_shape
    if not shape or shape[axis] != span.size:
        return None
    part = slice(span.start, span.stop)
    return Taken(node, wanted.position, value, part if axis == 0 else (..., part))
