"""Regions of a graph that have fewer nodes if their values are matrices.

A node inside a region reads and computes matrices; a node outside is unchanged. A value with its producer on one side
and a reader on the other needs a Reshape, unless the producer or the reader only changes the shape (Reshape, Flatten,
...) and can do its work. A region saves the Add of each MatMul + Add, which becomes one Gemm, and each Reshape inside
that only arranges the rows along other axes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from surgery import RESHAPES, Graph, Node, Value

from ._rows import RowWise, row_wise


@dataclass(eq=False)
class Unit:
    """Nodes that are inside or outside a region together: a MatMul with its Add, or a single node."""

    nodes: list[Node]
    inside: bool = True

    @property
    def won(self) -> int:
        """The number of nodes removed if the unit is inside."""
        return int(len(self.nodes) > 1 or self.nodes[0].op in RESHAPES)


@dataclass(eq=False)
class Stack:
    """A value of rank 3 or more that holds rows, with its producer and readers."""

    value: Value
    maker: Unit | None = None
    units: list[Unit] = field(default_factory=list)
    readers_inside: int = 0
    others: int = 0
    """The readers outside that need the value unchanged: nodes that do more than change the shape, and the caller."""

    @property
    def is_made_inside(self) -> bool:
        """Whether the value is computed as a matrix."""
        return self.maker is not None and self.maker.inside

    @property
    def is_kept(self) -> bool:
        """Whether the value is needed unchanged in addition to the matrix."""
        return self.others > 0

    @property
    def is_made_by_reshape(self) -> bool:
        """Whether the value comes from a node outside that could output a matrix as well."""
        producer = self.value.producer
        return producer is not None and producer.op in RESHAPES and not self.is_made_inside

    @property
    def state(self) -> tuple[bool, int, int]:
        """The state on which the cost depends, capped so that it shows the effect of a single unit."""
        return self.is_made_inside, min(self.readers_inside, 2), min(self.others, 2)

    @property
    def cost(self) -> int:
        """The number of Reshapes that the value needs."""
        if self.is_made_inside:
            return int(self.is_kept)
        return int(self.readers_inside > 0 and (self.is_kept or not self.is_made_by_reshape))


class Regions:
    """The nodes of a graph that work row by row, in regions that save nodes."""

    def __init__(self, graph: Graph) -> None:
        self.rules: dict[Node, RowWise] = {}
        for node in graph.nodes():
            rule = row_wise(node)
            if rule is not None:
                self.rules[node] = rule
        self.factor_of = self._pairs(graph)
        self.products = set(self.factor_of.values())
        self.units = self._units()
        self.stacks: dict[Value, Stack] = {}
        for node, unit in self.units.items():
            self._enter(node, unit)
        for stack in self.stacks.values():
            self._count(stack)
        self._shrink()

    def __iter__(self) -> Iterator[list[Node]]:
        """Yield the nodes of each region, in the order of the graph."""
        seen: set[Unit] = set()
        order = {node: number for number, node in enumerate(self.units)}
        for unit in self.units.values():
            if unit.inside and unit not in seen:
                found = self._connected(unit, seen)
                yield sorted((node for member in found for node in member.nodes), key=order.__getitem__)

    def stacked(self, node: Node) -> list[Value]:
        """Return the values whose rows a node reads."""
        return [node.required_input(position) for position in self.rules[node].stacked]

    def follows(self, node: Node, value: Value) -> bool:
        """Return whether a node outside all regions can read the matrix of a value instead."""
        if node in self.units and self.units[node].inside:
            return False
        return node.op == "Reshape" and node.input(0) == value and node.scope is value.scope

    def gain(self, nodes: Iterable[Node]) -> int:
        """Return the number of nodes saved if a region uses matrices, not counting nodes that compute shapes."""
        units = dict.fromkeys(self.units[node] for node in nodes)
        stacks = dict.fromkeys(stack for unit in units for stack in self._around(unit))
        return sum(unit.won for unit in units) - sum(stack.cost for stack in stacks)

    def _pairs(self, graph: Graph) -> dict[Node, Node]:
        """Find, for each Add that may become part of a Gemm, the MatMul of which it is the only reader."""
        found: dict[Node, Node] = {}
        for matmul in graph.nodes("MatMul"):
            product = matmul.outputs[0]
            readers = product.consumers if matmul in self.rules and not product.is_output else []
            if len(readers) == 1 and self._makes_gemm(product, readers[0]):
                found.setdefault(readers[0], matmul)
        return found

    def _makes_gemm(self, product: Value, add: Node) -> bool:
        if add.op != "Add" or add not in self.rules or not _has_gemm(product):
            return False
        # Gemm broadcasts only its third operand.
        return add.inputs.count(product) == 1 and add.outputs[0].shape == product.shape

    def _units(self) -> dict[Node, Unit]:
        units = {node: Unit([node]) for node in self.rules}
        for add, matmul in self.factor_of.items():
            units[add].nodes.insert(0, matmul)
            units[matmul] = units[add]
        return units

    def _enter(self, node: Node, unit: Unit) -> None:
        for value in dict.fromkeys(self.stacked(node)):
            stack = self._stack(value)
            if stack is not None:
                stack.readers_inside += 1
                stack.units.append(unit)
        for value in node.outputs:
            stack = self._stack(value) if value.is_used else None
            if stack is not None:
                stack.maker = unit
                stack.units.append(unit)

    def _stack(self, value: Value) -> Stack | None:
        """Return the record of a value; None for a matrix, which needs none."""
        return None if value.rank == 2 else self.stacks.setdefault(value, Stack(value))

    def _count(self, stack: Stack) -> None:
        value = stack.value
        stack.others = int(value.is_output)
        for node in value.consumers:
            is_row_wise = node in self.rules and value in self.stacked(node)
            stack.others += not is_row_wise and not self.follows(node, value)

    def _around(self, unit: Unit) -> list[Stack]:
        values = [value for node in unit.nodes for value in (*self.stacked(node), *node.outputs)]
        return [self.stacks[value] for value in dict.fromkeys(values) if value in self.stacks]

    def _shrink(self) -> None:
        """Remove units at the border of regions as long as that costs no node."""
        pending = deque(dict.fromkeys(self.units.values()))
        while pending:
            unit = pending.popleft()
            if not unit.inside:
                continue
            before = {stack: stack.state for stack in self._around(unit)}
            spent = sum(stack.cost for stack in before)
            self._move(unit, 1)
            if unit.won + sum(stack.cost for stack in before) > spent:
                self._move(unit, -1)
                continue
            changed = [stack for stack, state in before.items() if stack.state != state]
            pending.extend(dict.fromkeys(other for stack in changed for other in stack.units if other.inside))

    def _move(self, unit: Unit, out: int) -> None:
        """Move a unit out of its region, or back in when `out` is -1."""
        unit.inside = out < 0
        for node in unit.nodes:
            for value in dict.fromkeys(self.stacked(node)):
                if value in self.stacks:
                    self.stacks[value].readers_inside -= out
                    self.stacks[value].others += out * (node.op != "Reshape")

    def _connected(self, start: Unit, seen: set[Unit]) -> list[Unit]:
        found, pending = [], [start]
        stacks: set[Stack] = set()
        seen.add(start)
        while pending:
            unit = pending.pop()
            found.append(unit)
            for stack in self._around(unit):
                fresh = [] if stack in stacks else [other for other in stack.units if other.inside]
                stacks.add(stack)
                pending.extend(other for other in dict.fromkeys(fresh) if other not in seen)
                seen.update(fresh)
        return found


def _has_gemm(product: Value) -> bool:
    """Return whether the target computes Gemm in the type of a product."""
    return product.dtype is not None and product.graph.target.has("Gemm", product.dtype)
