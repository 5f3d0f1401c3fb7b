"""Removal of channels from a layer and from all nodes that read them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from surgery import Builder, Node, Value

from ._integers import Array
from ._stored_weights import elements, is_own, put, stored

POOLS = frozenset({"AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool"})
_MOST_NODES = 64
"""Maximum number of nodes between a layer and the layers that read it, more than any activation has."""


@dataclass
class Removal:
    """What changes when channels are removed: constants along an axis, groups of Convs, and values with channels."""

    constants: list[tuple[Node, int, int]] = field(default_factory=list)
    groups: list[Node] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    def apply(self, kept: Array, new: Builder) -> None:
        """Remove all channels but `kept` from each constant."""
        for node, position, axis in self.constants:
            value = node.required_input(position)
            put(node, position, elements(value).take(kept, axis=axis), stored(value)[0].name, new)
        for node in self.groups:
            new.set_attribute(node, "group", len(kept))
        for value in self.values:
            new.outdates(value)
            new.changes(value)


@dataclass(frozen=True)
class Place:
    """The channel axis of a value, counted from the end, and the rank of the value if it is known."""

    axis: int
    rank: int | None

    @property
    def is_second(self) -> bool:
        """Whether the channels lie along axis 1, as those of images do."""
        return self.rank is not None and self.axis == 1 - self.rank


class Followed:
    """Follows the channels of one layer to the layers that read them."""

    def __init__(self, layer: Node, channels: int) -> None:
        self.layer = layer
        self.channels = channels
        self.removal = Removal()
        self._places: dict[Value, Place] = {}
        self._joined: list[Node] = []

    def removal_from(self, place: Place) -> Removal | None:
        """Return what changes when channels of the result are removed; None if they cannot be removed."""
        result = self.layer.outputs[0]
        pending, seen = [result], set[Node]()
        self._places[result] = place
        while pending:
            value = pending.pop()
            self.removal.values.append(value)
            readers = [reader for reader in value.consumers if reader not in seen]
            seen.update(readers)
            if value.is_output or len(seen) > _MOST_NODES:
                return None
            for reader in readers:
                if reader.scope is not self.layer.scope or not self._takes(reader, value):
                    return None
                if reader.outputs[0] in self._places:
                    pending.append(reader.outputs[0])
        return self.removal if all(map(self._loses_the_same, self._joined)) else None

    def _loses_the_same(self, node: Node) -> bool:
        """Return whether all computed values that a node combines have the channels at the same place."""
        axis = self._places[node.outputs[0]].axis
        computed = [operand for operand in node.inputs if operand is not None and not stored(operand)[0].is_constant]
        return all(operand in self._places and self._places[operand].axis == axis for operand in computed)

    def _takes(self, reader: Node, value: Value) -> bool:
        """Record what changes in a reader; return False if it does not work with fewer channels."""
        place, others = self._places[value], [output for output in reader.outputs[1:] if output.is_used]
        if reader.op in ("MatMul", "Gemm"):
            return self._matrix(reader, value, place)
        if reader.op == "Conv":
            return place.is_second and self._conv(reader, value, place)
        if reader.is_unary or (reader.op in POOLS and place.is_second and not others):
            return reader.input(0) == value and self._pass(reader, place)
        if reader.op == "BatchNormalization":
            self.removal.constants += [(reader, position, 0) for position in range(1, 5)]
            return (
                place.is_second and not others and all(map(self._own, reader.inputs[1:])) and self._pass(reader, place)
            )
        if reader.is_broadcasting or reader.op == "PRelu":
            return self._combine(reader, place)
        single = value.shape is not None and all(dim == 1 for dim in value.shape[2:])
        flat = reader.op == "Flatten" and reader.attr("axis", 1) == 1 and place.is_second and single
        return flat and self._pass(reader, Place(-1, 2))

    def _pass(self, reader: Node, place: Place) -> bool:
        self._places[reader.outputs[0]] = place
        return True

    def _own(self, value: Value | None) -> bool:
        """Return whether a value is a constant with one reader, so that it can be made smaller."""
        return value is not None and is_own(value)

    def _combine(self, reader: Node, place: Place) -> bool:
        """Record the constants that have a number for each channel; return False if one is also read elsewhere."""
        rank = place.rank
        self._joined.append(reader)
        for position, value in enumerate(reader.inputs):
            if value is None or not stored(value)[0].is_constant:
                continue
            shape = value.static_shape or ()
            rank = None if rank is None else max(rank, len(shape))
            if len(shape) < -place.axis or shape[place.axis] == 1:
                continue
            if shape[place.axis] != self.channels or not self._own(value):
                return False
            self.removal.constants.append((reader, position, len(shape) + place.axis))
        return self._pass(reader, Place(place.axis, rank))

    def _conv(self, reader: Node, value: Value, place: Place) -> bool:
        """Record that a Conv reads fewer channels; a depthwise Conv also outputs fewer."""
        weight, bias, group = reader.input(1), reader.input(2), reader.attr("group", 1)
        if reader.input(0) != value or weight is None or not self._own(weight):
            return False
        if group == 1:
            self.removal.constants.append((reader, 1, 1))
            return True
        self.removal.constants += [(reader, position, 0) for position in ((1, 2) if bias is not None else (1,))]
        self.removal.groups.append(reader)
        depthwise = group == self.channels == (weight.static_shape or (0,))[0]
        return depthwise and (bias is None or self._own(bias)) and self._pass(reader, place)

    def _matrix(self, reader: Node, value: Value, place: Place) -> bool:
        """Record that a product sums over fewer channels."""
        weight = reader.input(1)
        if reader.input(0) != value or weight is None or not self._own(weight):
            return False
        is_gemm = reader.op == "Gemm"
        self.removal.constants.append((reader, 1, int(is_gemm and bool(reader.attr("transB", 0)))))
        return place.axis == -1 and weight.rank == 2 and not (is_gemm and reader.attr("transA", 0))


def zeroed(array: Array, gone: Array, axis: int) -> Array:
    """Return a copy of an array in which the channels `gone` are zero."""
    made = array.copy()
    np.moveaxis(made, axis, 0)[gone] = 0
    return made
