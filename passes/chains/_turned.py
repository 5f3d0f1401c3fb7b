"""Regions of operators that need fewer Transposes around them if their values are transposed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from surgery import Builder, Graph, Node, Value

from ._shared import has_parameters
from ._turning import Turned, data_of, is_plain, turned

LARGEST = 256
SMALL = 1 << 12
"""Maximum number of elements of a constant that is transposed directly."""


def stays(value: Value, rank: int) -> bool:
    """Return whether an operand is a single number, which has no axes to transpose."""
    return value.rank == 0 or (value.tensor is not None and value.tensor.size == 1 and (value.rank or 0) <= rank)


@dataclass
class Region:
    """Connected nodes, and the permutation that is removed from them.

    `nodes` says how each node computes the same on transposed values. With `convolve`, products may become Convs; with
    `plain`, only operators count that have no numbers for each axis, as a smaller region may save more.
    """

    perm: list[int]
    convolve: bool = False
    plain: bool = False
    nodes: dict[Node, Turned] = field(default_factory=dict)
    made: dict[Value, Value] = field(default_factory=dict)

    def grow(self, first: Node) -> bool:
        """Add all nodes connected to a node; return whether all of them can be transposed."""
        pending = [first]
        while pending:
            node = pending.pop()
            if node in self.nodes:
                continue
            how = self.turned(node)
            if how is None or len(self.nodes) >= LARGEST:
                return False
            self.nodes[node] = how
            near = [value.producer for value in data_of(node, how) if not stays(value, len(self.perm))]
            near += [reader for value in self._values(node) for reader in value.consumers]
            pending += [n for n in near if n is not None and n.scope is first.scope and self.turned(n) is not None]
        return True

    def turned(self, node: Node) -> Turned | None:
        """Return how a node computes the same on transposed values; None if it does not, or has another rank."""
        known = self.nodes.get(node)
        if known is not None:
            return known
        how = None if self.plain and not is_plain(node) else turned(node, self.perm, convolve=self.convolve)
        first = None if how is None else next(iter(data_of(node, how)), None)
        if how is None or first is None:
            return None
        rank = node.outputs[0].rank if how.data is None else first.rank
        known_after = all(value.rank == len(how.perm) for value in node.outputs if value.name)
        fits = rank == len(self.perm) and known_after and all(self._fits(value) for value in data_of(node, how))
        return how if fits else None

    def _values(self, node: Node) -> Iterator[Value]:
        """Yield the outputs of a node of the region that are transposed as the region is."""
        if self.nodes[node].perm == self.perm:
            yield from (value for value in node.outputs if value.name)

    def _fits(self, value: Value) -> bool:
        return value.rank == len(self.perm) or stays(value, len(self.perm)) or self._is_small(value)

    def _is_small(self, value: Value) -> bool:
        tensor = value.tensor
        return tensor is not None and tensor.size <= SMALL and len(tensor.shape) <= len(self.perm)

    def _is_inside(self, value: Value) -> bool:
        """Return whether a value is computed in the region and transposed as it is."""
        return value.producer in self.nodes and value in self._values(value.producer)

    def _inputs(self) -> Iterator[Value]:
        """Yield the values from outside, each once."""
        values = dict.fromkeys(value for node, how in self.nodes.items() for value in data_of(node, how))
        yield from (v for v in values if not stays(v, len(self.perm)) and not self._is_inside(v))

    def _reads_turned(self, node: Node, value: Value) -> bool:
        """Return whether a node reads a value as transposed data, and not in another way."""
        how = self.nodes.get(node)
        return how is not None and data_of(node, how).count(value) == list(node.inputs).count(value)

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
        outside = [node for node in value.consumers if not self._reads_turned(node, value)]
        return value.is_output or any(node.op != "Transpose" or has_parameters(node) for node in outside)

    def _cancels(self, node: Node) -> bool:
        return [self.perm[axis] for axis in self._perm(node)] == list(range(len(self.perm)))

    def saved(self) -> int:
        """Return the number of nodes saved by transposing the region."""
        total = 0
        for value in self._inputs():
            if self._comes_turned(value):
                total += not value.is_output and all(self._reads_turned(node, value) for node in value.consumers)
            else:
                total -= not self._is_small(value)
        for node, how in self.nodes.items():
            if how.perm != self.perm:
                total -= sum(value.is_used for value in node.outputs if value.name and how.perm != sorted(how.perm))
                continue
            for value in self._values(node):
                total -= self._leaves(value)
                total += sum(self._cancels(reader) for reader in self._transposes(value))
        return total

    def _transposes(self, value: Value) -> list[Node]:
        """List the Transposes outside of the region that read a value of it."""
        return [
            reader
            for reader in value.consumers
            if reader not in self.nodes and reader.op == "Transpose" and not has_parameters(reader)
        ]

    def turn(self, new: Builder) -> None:
        """Rebuild all nodes, with Transposes around them where needed."""
        results = {node: self._make(node, new) for node in self.nodes}
        for node, how in self.nodes.items():
            if how.perm != self.perm:
                for old, value in zip(node.outputs, results[node]):
                    if old.name:
                        back = how.perm == sorted(how.perm)
                        new.replace(old, value if back else new.at(node).node("Transpose", value, perm=how.perm))
                continue
            for old in self._values(node):
                self._leave(node, old, new)

    def _leave(self, node: Node, old: Value, new: Builder) -> None:
        """Let the readers outside of the region read a value that is transposed back."""
        value = self.made[old]
        for reader in self._transposes(old):
            perm = [self.perm[axis] for axis in self._perm(reader)]
            cancels = perm == sorted(perm)
            new.replace(reader.outputs[0], value if cancels else new.at(reader).node("Transpose", value, perm=perm))
        if self._leaves(old):
            new.replace(old, new.at(node).node("Transpose", value, perm=self.perm))

    def _make(self, node: Node, new: Builder) -> tuple[Value, ...]:
        """Rebuild a node once, after the nodes of the region that it reads."""
        values = list(self._values(node))
        if values and values[0] in self.made:
            return ()
        how, at = self.nodes[node], new.at(node)
        data = set(range(len(node.inputs))) if how.data is None else set(how.data)
        inputs: list[Value | None] = []
        for position in range(max(len(node.inputs), *(place + 1 for place in how.constants), 0)):
            value = node.input(position)
            if position in how.constants:
                inputs.append(at.constant(how.constants[position], "axes" if value is None else value.name))
            else:
                inputs.append(self._turned(value, node, new) if value is not None and position in data else value)
        attributes = {} if how.op else dict(node.attributes)
        omitted = [place for place, value in enumerate(node.outputs) if not value.name]
        made = at.nodes(
            how.op or node.op,
            *inputs,
            outputs=len(node.outputs),
            omitted=omitted,
            attributes={**attributes, **how.attributes},
        )
        if how.perm == self.perm:
            self.made.update((old, value) for old, value in zip(node.outputs, made) if old.name)
        return made

    def _turned(self, value: Value, reader: Node, new: Builder) -> Value:
        """Return the value that replaces an operand."""
        maker, rank = value.producer, len(self.perm)
        if stays(value, rank):
            return value
        if value not in self.made and maker is not None and self._is_inside(value):
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


def push(graph: Graph, transpose: Node, settled: set[Node], *, convolve: bool = False) -> None:
    """Transpose the region after a Transpose if that leaves fewer nodes; ignore nodes that are `settled`."""
    if has_parameters(transpose):
        return
    rank = transpose.outputs[0].rank
    perm = transpose.attr("perm") or list(range(rank or 0))[::-1]
    if rank != len(perm):
        return
    for reader in transpose.outputs[0].consumers:
        if reader in settled or reader.scope is not transpose.scope:
            continue
        for plain in (False, True):
            region = Region(perm, convolve, plain)
            how = region.turned(reader)
            if how is None or transpose.outputs[0] not in data_of(reader, how):
                continue
            if turn(graph, region, reader):
                settled.update(region.nodes)
                return
            settled.update(region.nodes if plain else ())


def turn(graph: Graph, region: Region, first: Node) -> bool:
    """Transpose all nodes connected to a node if that leaves fewer nodes; return whether it was tried."""
    if not region.grow(first) or region.saved() <= 0:
        return False
    with graph.site(first) as new:
        region.turn(new)
    return True
