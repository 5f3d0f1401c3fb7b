"""Casts between float32 and a narrower type: one for each value and direction, and none that another undoes."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Literal

import numpy as np

from surgery import Builder, Graph, Node, Value, data_type, narrowing

from ._narrow_format import Format, Loss
from ._narrow_masks import lowest
from ._narrow_nodes import COMPARISONS, EXTENTS, INDIFFERENT, floats, is_default, is_float, is_moving, is_widening

_FLOAT = data_type("float")
_UNKNOWN_DIM = 64
"""The size assumed for an unknown dim when sizes are compared."""

_SMALL = 4096
"""Maximum number of elements of a constant that is read to check whether the narrower type represents it exactly."""


class Casts:
    """Creates values of a graph in the narrower type, and finds those that already exist."""

    def __init__(self, graph: Graph, format: Format, runtime: Literal["cpu", "any"]) -> None:  # noqa: A002
        self.graph = graph
        self.format = format
        self.runtime = runtime
        self.masks: frozenset[Value] = frozenset()
        """Values whose elements are raised to the lowest number for masks before they are rounded."""
        self.fitting: frozenset[str] = frozenset()
        """The names of the values that are known not to overflow."""
        self._bounds: set[Value] = set()
        self._made: dict[Value, Value] = {}
        self._holders = graph.holders()

    def loss(self, value: Value, tensor: Any) -> Loss:
        """Return the loss of a constant in the narrower type; the result is remembered."""
        return self.graph.remember(("loss", value.name), lambda: self.format.loss(tensor.numpy()))

    def rebuild(
        self,
        new: Builder,
        node: Node,
        inputs: frozenset[int],
        outputs: frozenset[int],
        given: Mapping[int, Value] | None = None,
    ) -> None:
        """Rebuild a node so that it reads these inputs and computes these outputs in the narrower type.

        `given` holds inputs that are in the narrower type already, by position.
        """
        read: dict[Value, Value] = {}
        operands = node.inputs
        for place, value in (given or {}).items():
            operands[place] = value
        for place in sorted(inputs - (given or {}).keys()):
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
        """Return the source of the Casts to float32 that produce a value if it has the narrower type; else None."""
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
        if known is not None and is_there(known):
            return known
        self._made[value] = made = self._narrowed(new.at(self.outer(value, reader)), value, reader)
        return made

    def _narrowed(self, new: Builder, value: Value, reader: Node) -> Value:
        tensor = value.tensor
        if tensor is not None:
            least = lowest(self.format) if value in self.masks else -np.inf
            held = self.graph.remember(
                ("narrowed", value.name, least),
                lambda: new.converted(tensor.numpy(), lambda part: self.format.narrowed(_at_least(part, least))).held,
            )
            assert held is not None
            return new.constant(held, f"{value.name}_{self.format.name}")
        if value in self.masks:
            return self._raised(new, value, reader)
        # A value that was itself cast to float32 is cast from its original type.
        while (maker := value.producer) is not None and is_widening(maker):
            value = maker.required_input(0)
        return new.node("Cast", value, to=self.format.dtype)

    def _raised(self, new: Builder, value: Value, reader: Node) -> Value:
        """Return a mask in the narrower type: what moves elements of masks moves those of narrower ones."""
        maker = value.producer
        found = None if maker is None or len(maker.outputs) > 1 else self._movable(maker)
        places = sorted(found[0]) if found is not None else []
        if maker is None or not places or not all(self._is_safe(maker.required_input(place)) for place in places):
            least = new.constant(np.array(lowest(self.format), np.float32), "lowest")
            bound = new.node("Max", value, least)
            self._bounds.add(bound)
            return new.node("Cast", bound, to=self.format.dtype)
        operands = maker.inputs
        for place in places:
            operands[place] = self.narrow(new, maker.required_input(place), reader)
        return new.node(maker.op, *operands, attributes=maker.attributes)

    def _is_safe(self, value: Value) -> bool:
        """Return whether no element of a value becomes infinite in the narrower type."""
        if value in self.masks or value.name in self.fitting or self.source(value) is not None:
            return True
        return value.tensor is not None and not self.loss(value, value.tensor).overflow

    def outer(self, value: Value, reader: Node) -> Node:
        """Return the node in the value's own scope that reads it, directly or in a subgraph."""
        while reader.scope is not value.scope and reader.scope in self._holders:
            reader = self._holders[reader.scope]
        return reader

    # Casts left by the sites

    def settle(self) -> None:
        """Move Casts across operators that only move elements, so that they become fewer or smaller.

        Each edit is bit-exact, whichever sites were skipped: rounding commutes with such operators.
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
        if (
            node.outputs[0] in self._bounds
            or not is_moving(node)
            or not is_float(node.outputs[0])
            or self.graph.in_function(node)
        ):
            return None
        found = self._narrowing(node)
        return None if isinstance(found, str) else (found.inputs, found.outputs)

    def _narrowing(self, node: Node) -> Any:
        return narrowing(node, self.format.dtype, self.runtime)

    def _exact(self, moving: dict[Node, tuple[frozenset[int], frozenset[int]]]) -> set[Value]:
        """Find the results of operators that only move elements that are exact in the narrower type."""
        exact: set[Value] = set()
        for node, (inputs, outputs) in moving.items():
            read = [node.required_input(place) for place in sorted(inputs)]
            varies = any(value is not None and not value.is_constant for value in node.inputs)
            if varies and all(value in exact or self.holds(value) for value in read):
                exact.update(node.outputs[place] for place in outputs)
        return exact

    def holds(self, value: Value) -> bool:
        """Return whether each element of a float32 value is known to be exact in the narrower type."""
        if self.source(value) is not None:
            return True
        tensor, maker = value.tensor, value.producer
        if maker is not None and is_default(maker) and maker.op == "ConstantOfShape":
            filling = maker.attr("value")
            return filling is None or self.format.holds(filling.numpy())
        return tensor is not None and tensor.size <= _SMALL and self.format.holds(tensor.numpy())

    def _choose(self, moving: dict[Node, tuple[frozenset[int], frozenset[int]]], exact: set[Value]) -> set[Node]:
        """Choose the nodes that change to the narrower type, starting downstream."""
        chosen: set[Node] = set()
        for node, (inputs, outputs) in reversed(moving.items()):
            made = [node.outputs[place] for place in outputs if node.outputs[place].is_used]
            wide = {value for value in made if self.is_read_wide(value, value in exact, chosen)}
            narrow = {value for value in made if self.is_read_narrow(value, chosen)}
            read = {node.required_input(place) for place in inputs}
            new = [value for value in read if not self._is_known(value, exact, chosen)]
            if node.outputs[0] in exact:
                # Casts to float32 after the node replace those before it that nothing else needs.
                spared = sum(_size(value) for value in read if len(value.consumers) == 1 and not value.is_output)
                spared += sum(map(_size, narrow))
                better = sum(map(_size, wide)) <= spared
            else:
                better = not wide and bool(narrow) and sum(map(_size, new)) <= sum(map(_size, narrow))
            if better:
                chosen.add(node)
        return chosen

    def _is_known(self, value: Value, exact: set[Value], chosen: set[Node]) -> bool:
        """Return whether a value is available in the narrower type without a new Cast."""
        return (
            value.is_constant or value in exact or self.source(value) is not None or self.is_read_narrow(value, chosen)
        )

    def is_read_wide(self, value: Value, exact: bool = False, chosen: Container[Node] = ()) -> bool:
        """Return whether any reader needs a value in float32; nodes that are chosen to change do not."""
        indifferent = INDIFFERENT if exact else EXTENTS
        return value.is_output or any(
            not (reader in chosen or self._is_narrowing(reader) or (is_default(reader) and reader.op in indifferent))
            and not (exact and self._compares(reader, value))
            for reader in value.consumers
        )

    def _compares(self, node: Node, exact: Value) -> bool:
        """Return whether a node compares an exact value with constants that are exact too: it may read either type."""
        if not is_default(node) or node.op not in COMPARISONS or isinstance(self._narrowing(node), str):
            return False
        return all(value == exact or (value.is_constant and self.holds(value)) for value in floats(node))

    def is_read_narrow(self, value: Value, chosen: Container[Node] = ()) -> bool:
        """Return whether any reader needs a value in the narrower type."""
        return any(reader in chosen or self._is_narrowing(reader) for reader in value.consumers)

    def _is_narrowing(self, node: Node) -> bool:
        return is_default(node) and node.op == "Cast" and node.outputs[0].dtype == self.format.dtype

    def _same(self, node: Node, value: Value) -> Value | None:
        """Return the value that a type-independent operator can read instead, so that `value` may be removed.

        For the extents of a weight, its narrower copy serves as well. Return None if there is no such value.
        """
        copy = self._made.get(value) if node.op in EXTENTS and value.is_constant else None
        return copy if copy is not None and is_there(copy) else self.source(value)

    def _bypass(self) -> None:
        """Make type-independent operators, and Casts back to the narrower type, read the narrower value directly."""
        for node in self.graph.nodes(*sorted(INDIFFERENT)):
            value = node.input(0)
            source = None if value is None or is_widening(node) else self._same(node, value)
            if source is None:
                continue
            with self.graph.follow_up(node) as new:
                if self._is_narrowing(node):
                    new.replace(node.outputs[0], source)
                elif not isinstance(self._narrowing(node), str):
                    new.set_input(node, 0, source)
        for node in self.graph.nodes(*sorted(COMPARISONS)):
            wide = [value for value in floats(node) if not value.is_constant]
            if wide and all(self.source(value) is not None and self._compares(node, value) for value in wide):
                with self.graph.follow_up(node) as new:
                    for place, value in enumerate(node.inputs):
                        if value is not None:
                            new.set_input(node, place, self.narrow(new, value, node))


def _at_least(array: np.ndarray[Any, Any], least: float) -> np.ndarray[Any, Any]:
    return array if least == -np.inf else np.asarray(np.maximum(array, np.float32(least)))


def is_there(value: Value) -> bool:
    """Return whether a value created by a site is in the graph; the site may have been skipped."""
    maker = value.producer
    return value.is_initializer if maker is None else not maker.is_removed


def _size(value: Value) -> int:
    """Return the number of elements, with an assumed size for each unknown dim."""
    size = 1
    for dim in value.shape or ():
        size *= dim if isinstance(dim, int) else _UNKNOWN_DIM
    return size
