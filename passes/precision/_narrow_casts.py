"""Casts between float32 and a narrower type: one for each value and direction, and none that another undoes."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Literal

from surgery import Builder, Graph, Node, Value, data_type, narrowing

from ._narrow_format import Format, Loss
from ._narrow_nodes import EXTENTS, INDIFFERENT, is_default, is_float, is_moving, is_widening

_FLOAT = data_type("float")
_UNKNOWN_DIM = 64
"""What a dim that is not known counts, where sizes are compared."""

_SMALL = 4096
"""Elements up to which a constant is read to see whether the narrower type holds it."""


class Casts:
    """Makes values of a graph known in the narrower type, and finds those that are."""

    def __init__(self, graph: Graph, format: Format, runtime: Literal["cpu", "any"]) -> None:  # noqa: A002
        self.graph = graph
        self.format = format
        self.runtime = runtime
        self._made: dict[Value, Value] = {}
        self._holders = graph.holders()

    def loss(self, value: Value, tensor: Any) -> Loss:
        """Return what a constant loses; remembered."""
        return self.graph.remember(("loss", value.name), lambda: self.format.loss(tensor.numpy()))

    def rebuild(self, new: Builder, node: Node, inputs: frozenset[int], outputs: frozenset[int]) -> None:
        """Make a node anew that reads these inputs and computes these outputs in the narrower type."""
        read: dict[Value, Value] = {}
        operands = node.inputs
        for place in sorted(inputs):
            value = node.required_input(place)
            if value not in read:
                read[value] = self.narrow(new, value, node)
            operands[place] = read[value]
        made = new.nodes(
            node.op, *operands, outputs=len(node.outputs), name=node.name or None, attributes=node.attributes
        )
        for place, (old, result) in enumerate(zip(node.outputs, made)):
            if old.is_used:
                new.replace(old, new.node("Cast", result, to=_FLOAT) if place in outputs else result)

    def source(self, value: Value) -> Value | None:
        """Return what a value was cast from, where that is of the narrower type."""
        while (maker := value.producer) is not None and is_widening(maker):
            value = maker.required_input(0)
            if value.dtype != _FLOAT:
                return value if value.dtype == self.format.dtype else None
        return None

    def narrow(self, new: Builder, value: Value, reader: Node) -> Value:
        """Return a value in the narrower type."""
        source = self.source(value)
        if source is not None:
            return source
        known = self._made.get(value)
        if known is not None and _is_there(known):
            return known
        self._made[value] = made = self._narrowed(new.at(self.outer(value, reader)), value)
        return made

    def _narrowed(self, new: Builder, value: Value) -> Value:
        tensor = value.tensor
        if tensor is not None:
            held = self.graph.remember(
                ("narrowed", value.name), lambda: new.constant(self.format.narrowed(tensor.numpy())).held
            )
            assert held is not None
            return new.constant(held, f"{value.name}_{self.format.name}")
        # Of what is cast to float32 only to be cast on, the first type is as good.
        while (maker := value.producer) is not None and is_widening(maker):
            value = maker.required_input(0)
        return new.node("Cast", value, to=self.format.dtype)

    def outer(self, value: Value, reader: Node) -> Node:
        """Return the node of the value's own scope that reads it, itself or in a subgraph."""
        while reader.scope is not value.scope and reader.scope in self._holders:
            reader = self._holders[reader.scope]
        return reader

    # Casts left by the sites

    def settle(self) -> None:
        """Move Casts across operators that only move elements, to where there are fewer or smaller ones.

        Each edit keeps every bit, whatever sites were skipped: rounding commutes with such an operator.
        """
        moving = {node: found for node in self.graph.nodes() if (found := self._movable(node)) is not None}
        exact = self._exact(moving)
        chosen = self._choose(moving, exact)
        for node, (inputs, outputs) in moving.items():
            if node in chosen:
                with self.graph.follow_up(node) as new:
                    self.rebuild(new, node, inputs, outputs)
        self._bypass()

    def _movable(self, node: Node) -> tuple[frozenset[int], frozenset[int]] | None:
        if not is_moving(node) or not is_float(node.outputs[0]) or self.graph.in_function(node):
            return None
        found = narrowing(node, self.format.dtype, self.runtime)
        return None if isinstance(found, str) else (found.inputs, found.outputs)

    def _exact(self, moving: dict[Node, tuple[frozenset[int], frozenset[int]]]) -> set[Value]:
        """Find the float32 values that the narrower type holds: what is cast from it, and what moves such elements."""
        exact: set[Value] = set()
        for node, (inputs, outputs) in moving.items():
            read = [node.required_input(place) for place in sorted(inputs)]
            if all(value in exact or self.holds(value) for value in read) and not all(
                value.is_constant for value in read
            ):
                exact.update(node.outputs[place] for place in outputs)
        return exact

    def holds(self, value: Value) -> bool:
        """Return whether each element of a float32 value is surely a number of the narrower type."""
        if self.source(value) is not None:
            return True
        tensor, maker = value.tensor, value.producer
        if maker is not None and is_default(maker) and maker.op == "ConstantOfShape":
            filling = maker.attr("value")
            return filling is None or self.format.holds(filling.numpy())
        return tensor is not None and tensor.size <= _SMALL and self.format.holds(tensor.numpy())

    def _choose(self, moving: dict[Node, tuple[frozenset[int], frozenset[int]]], exact: set[Value]) -> set[Node]:
        """Choose the nodes that change to the narrower type, those downstream first."""
        chosen: set[Node] = set()
        for node, (inputs, outputs) in reversed(moving.items()):
            made = [node.outputs[place] for place in outputs if node.outputs[place].is_used]
            wide = {value for value in made if self.is_read_wide(value, value in exact, chosen)}
            narrow = {value for value in made if self.is_read_narrow(value, chosen)}
            read = {node.required_input(place) for place in inputs}
            new = [value for value in read if not self._is_known(value, exact, chosen)]
            if node.outputs[0] in exact:
                # Casts to float32 after it, in the place of those before it that nothing else needs.
                spared = sum(_size(value) for value in read if len(value.consumers) == 1 and not value.is_output)
                spared += sum(map(_size, narrow))
                better = sum(map(_size, wide)) <= spared
            else:
                better = not wide and bool(narrow) and sum(map(_size, new)) <= sum(map(_size, narrow))
            if better:
                chosen.add(node)
        return chosen

    def _is_known(self, value: Value, exact: set[Value], chosen: set[Node]) -> bool:
        """Return whether a value needs no new Cast to be had in the narrower type."""
        return (
            value.is_constant or value in exact or self.source(value) is not None or self.is_read_narrow(value, chosen)
        )

    def is_read_wide(self, value: Value, exact: bool = False, chosen: Container[Node] = ()) -> bool:
        """Return whether something needs a value in float32, which nodes that are chosen to change do not."""
        indifferent = INDIFFERENT if exact else EXTENTS
        return value.is_output or any(
            not (reader in chosen or self._is_narrowing(reader) or (is_default(reader) and reader.op in indifferent))
            for reader in value.consumers
        )

    def is_read_narrow(self, value: Value, chosen: Container[Node] = ()) -> bool:
        """Return whether something needs a value in the narrower type."""
        return any(reader in chosen or self._is_narrowing(reader) for reader in value.consumers)

    def _is_narrowing(self, node: Node) -> bool:
        return is_default(node) and node.op == "Cast" and node.outputs[0].dtype == self.format.dtype

    def _same(self, node: Node, value: Value) -> Value | None:
        """Return what an operator that is indifferent to the type can read instead, so that `value` may go.

        A weight of which a narrower copy was made is as good for its extents.
        """
        copy = self._made.get(value) if node.op in EXTENTS and value.is_constant else None
        return copy if copy is not None and _is_there(copy) else self.source(value)

    def _bypass(self) -> None:
        """Let what is indifferent to the type, and Casts back to the narrower one, read what is in it."""
        for node in self.graph.nodes(*sorted(INDIFFERENT)):
            value = node.input(0)
            source = None if value is None or is_widening(node) else self._same(node, value)
            if source is None:
                continue
            with self.graph.follow_up(node) as new:
                if self._is_narrowing(node):
                    new.replace(node.outputs[0], source)
                elif not isinstance(narrowing(node, self.format.dtype, self.runtime), str):
                    new.set_input(node, 0, source)


def _is_there(value: Value) -> bool:
    """Return whether a value that a site made is in the graph, for the site may have been skipped."""
    maker = value.producer
    return value.is_initializer if maker is None else not maker.is_removed


def _size(value: Value) -> int:
    """Return the number of elements, as far as it is known."""
    size = 1
    for dim in value.shape or ():
        size *= dim if isinstance(dim, int) else _UNKNOWN_DIM
    return size
