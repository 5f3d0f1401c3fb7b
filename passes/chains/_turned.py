"""Regions of elementwise operators that need fewer Transposes around them if their values are transposed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from surgery import Builder, Graph, Node, Value

from ._shared import has_parameters

ALONG_AN_AXIS = frozenset({"Concat", "LogSoftmax", "Softmax"})
"""Operators that work along the axis given by an attribute."""

LARGEST = 256
SMALL = 1 << 12
"""Maximum number of elements of a constant that is transposed directly."""


def turns(node: Node) -> bool:
    """Return whether a node computes the same with its axes in another order."""
    if has_parameters(node) or node.opset < (13 if node.op in ALONG_AN_AXIS else 7):
        return False
    return node.is_unary or node.is_broadcasting or node.op in ALONG_AN_AXIS


def operands(node: Node) -> list[Value]:
    """Return the inputs that are transposed with the node."""
    found = [value for value in node.inputs if value is not None]
    return found if node.is_broadcasting or node.op == "Concat" else found[:1]


def stays(value: Value, rank: int) -> bool:
    """Return whether an operand is a single number, which has no axes to transpose."""
    return value.rank == 0 or (value.tensor is not None and value.tensor.size == 1 and (value.rank or 0) <= rank)


@dataclass
class Region:
    """Connected nodes, and the permutation that is removed from them."""

    perm: list[int]
    nodes: dict[Node, None] = field(default_factory=dict)
    made: dict[Value, Value] = field(default_factory=dict)

    def grow(self, first: Node) -> bool:
        """Add all nodes connected to a node; return whether all of them can be transposed."""
        pending = [first]
        while pending:
            node = pending.pop()
            if node in self.nodes:
                continue
            self.nodes[node] = None
            if len(self.nodes) > LARGEST or not all(self._fits(value) for value in operands(node)):
                return False
            near = [value.producer for value in operands(node) if not stays(value, len(self.perm))]
            near += node.outputs[0].consumers
            pending += [n for n in near if n is not None and n.scope is first.scope and self._joins(n)]
        return True

    def _joins(self, node: Node) -> bool:
        return turns(node) and node.outputs[0].rank == len(self.perm)

    def _fits(self, value: Value) -> bool:
        return value.rank == len(self.perm) or stays(value, len(self.perm)) or self._is_small(value)

    def _is_small(self, value: Value) -> bool:
        tensor = value.tensor
        return tensor is not None and tensor.size <= SMALL and len(tensor.shape) <= len(self.perm)

    def _inputs(self) -> Iterator[Value]:
        """Yield the values from outside, each once."""
        values = dict.fromkeys(value for node in self.nodes for value in operands(node))
        yield from (v for v in values if not stays(v, len(self.perm)) and v.producer not in self.nodes)

    def _comes_turned(self, value: Value) -> bool:
        maker = value.producer
        return (
            maker is not None
            and maker.op == "Transpose"
            and not has_parameters(maker)
            and self._perm(maker) == self.perm
        )

    def _perm(self, node: Node) -> list[int]:
        return node.attr("perm") or list(range(len(self.perm)))[::-1]

    def _leaves(self, value: Value) -> bool:
        """Return whether a value of the region is an output, or is read outside by nodes other than Transposes."""
        outside = [node for node in value.consumers if node not in self.nodes]
        return value.is_output or any(node.op != "Transpose" or has_parameters(node) for node in outside)

    def _cancels(self, node: Node) -> bool:
        return [self.perm[axis] for axis in self._perm(node)] == list(range(len(self.perm)))

    def saved(self) -> int:
        """Return the number of nodes saved by transposing the region."""
        total = 0
        for value in self._inputs():
            if self._comes_turned(value):
                total += not value.is_output and all(node in self.nodes for node in value.consumers)
            else:
                total -= not self._is_small(value)
        for node in self.nodes:
            value = node.outputs[0]
            total -= self._leaves(value)
            outside = [reader for reader in value.consumers if reader not in self.nodes and reader.op == "Transpose"]
            total += sum(self._cancels(reader) for reader in outside if not has_parameters(reader))
        return total

    def turn(self, new: Builder) -> None:
        """Rebuild all nodes, with Transposes around them where needed."""
        for node in self.nodes:
            self._make(node, new)
        for node in self.nodes:
            old, value = node.outputs[0], self.made[node.outputs[0]]
            for reader in old.consumers:
                if reader in self.nodes or reader.op != "Transpose" or has_parameters(reader):
                    continue
                perm = [self.perm[axis] for axis in self._perm(reader)]
                cancels = perm == sorted(perm)
                new.replace(reader.outputs[0], value if cancels else new.at(reader).node("Transpose", value, perm=perm))
            if self._leaves(old):
                new.replace(old, new.at(node).node("Transpose", value, perm=self.perm))

    def _make(self, node: Node, new: Builder) -> None:
        if node.outputs[0] in self.made:
            return
        turned = {value: self._turned(value, node, new) for value in operands(node)}
        attributes = dict(node.attributes)
        if node.op in ALONG_AN_AXIS:
            attributes["axis"] = self.perm[node.attr("axis")]
        inputs = [turned.get(value, value) if value is not None else None for value in node.inputs]
        self.made[node.outputs[0]] = new.at(node).node(node.op, *inputs, attributes=attributes)

    def _turned(self, value: Value, reader: Node, new: Builder) -> Value:
        """Return the value that replaces an operand."""
        maker, rank = value.producer, len(self.perm)
        if stays(value, rank):
            return value
        if value not in self.made and maker is not None and maker in self.nodes:
            self._make(maker, new)
        if value not in self.made and maker is not None and self._comes_turned(value):
            self.made[value] = maker.required_input(0)
        if value not in self.made:
            back = [self.perm.index(axis) for axis in range(rank)]
            array = value.constant if self._is_small(value) else None
            if array is None:
                self.made[value] = new.at(reader).node("Transpose", value, perm=back)
            else:
                full = array.reshape((1,) * (rank - array.ndim) + array.shape)
                self.made[value] = new.at(reader).constant(np.ascontiguousarray(full.transpose(back)), value.name)
        return self.made[value]


def push(graph: Graph, transpose: Node, settled: set[Node]) -> None:
    """Transpose the region after a Transpose if that leaves fewer nodes; ignore nodes that are `settled`."""
    if has_parameters(transpose):
        return
    rank = transpose.outputs[0].rank
    perm = transpose.attr("perm") or list(range(rank or 0))[::-1]
    for reader in transpose.outputs[0].consumers:
        if reader in settled or reader.scope is not transpose.scope or not turns(reader):
            continue
        if rank != len(perm) or transpose.outputs[0] not in operands(reader) or reader.outputs[0].rank != rank:
            continue
        if turn(graph, Region(perm), reader, settled):
            return


def turn(graph: Graph, region: Region, first: Node, settled: set[Node]) -> bool:
    """Transpose all nodes connected to a node if that leaves fewer nodes; return whether it was tried."""
    fits = region.grow(first)
    settled.update(region.nodes)
    if not fits or region.saved() <= 0:
        return False
    with graph.site(first) as new:
        region.turn(new)
    return True
