"""The nodes of a region, rebuilt to compute on matrices."""

from __future__ import annotations

from collections.abc import Sequence

from surgery import Builder, Graph, Node, Value

from ._regions import Regions
from ._rows import dims_of
from ._targets import Targets, is_explicit


class Matrices:
    """Rebuilds the nodes of one region, in the order of the graph, and connects them to the rest of the graph."""

    def __init__(self, graph: Graph, regions: Regions, nodes: Sequence[Node], new: Builder) -> None:
        self.regions = regions
        self.nodes = nodes
        self.new = new
        self.matrices: dict[Value, Value] = {}
        self.vectors: dict[Value, Value] = {}
        self.targets = Targets(graph, nodes[0], regions.stacked(nodes[0])[0], new)

    def build(self) -> int:
        """Add the edits of the region to the builder; return the number of nodes that compute shapes."""
        for node in self.nodes:
            self._make(node)
        for value, matrix in self.matrices.items():
            self._connect(value, matrix)
        return self.targets.made

    def _make(self, node: Node) -> None:
        if node in self.regions.products:
            return
        if node in self.regions.factor_of:
            self._make_gemm(self.regions.factor_of[node], node)
            return
        rule, place = self.regions.rules[node], self.new.at(node)
        if rule.moves:
            self.matrices[node.outputs[0]] = self._matrix(node.required_input(0), node)
            return
        inputs = [self._operand(node, position) for position in range(len(node.inputs))]
        attributes = {**node.attributes, **rule.attributes}
        made = place.nodes(node.op, *inputs, outputs=len(node.outputs), name=node.name, attributes=attributes)
        self.matrices.update((value, matrix) for value, matrix in zip(node.outputs, made) if value.is_used)

    def _make_gemm(self, matmul: Node, add: Node) -> None:
        addend = int(add.input(0) == matmul.outputs[0])
        factors = self._operand(matmul, 0), self._operand(matmul, 1)
        self.matrices[add.outputs[0]] = self.new.at(add).node("Gemm", *factors, self._operand(add, addend))

    def _operand(self, node: Node, position: int) -> Value | None:
        """Return the operand that the rebuilt node reads at a position."""
        rule, value = self.regions.rules[node], node.input(position)
        if value is None:
            return None
        if position in rule.stacked:
            return self._matrix(value, node)
        if position in rule.vectors:
            return self._vector(value)
        if position == rule.axes and value.dtype is not None:
            return self.targets.constant((1,), value.dtype.numpy(), "axes")
        return value

    def _vector(self, constant: Value) -> Value:
        """Return a constant without its leading dims, which are all 1."""
        array = constant.constant
        if constant not in self.vectors and array is not None:
            self.vectors[constant] = self.new.constant(array.reshape(-1), constant.name)
        return self.vectors[constant]

    def _matrix(self, value: Value, reader: Node) -> Value:
        """Return the matrix of a value, from a Reshape if the region does not compute it."""
        if value in self.matrices or value.rank == 2:
            return self.matrices.get(value, value)
        stack, producer = self.regions.stacks[value], value.producer
        source, place = value, self.new.at(reader)
        if producer is not None and stack.is_made_by_reshape and not stack.is_kept:
            source, place = producer.required_input(0), self.new.at(producer)
        row = (dims_of(value) or ())[-1:]
        self.matrices[value] = place.node("Reshape", source, self.targets.constant((-1, *row)))
        return self.matrices[value]

    def _connect(self, value: Value, matrix: Value) -> None:
        """Connect the readers outside the region to the values that they read before."""
        stack, producer = self.regions.stacks.get(value), value.producer
        if stack is None:
            self.new.at(producer or self.nodes[0]).replace(value, matrix)
            return
        if not stack.is_made_inside and (stack.is_kept or not stack.is_made_by_reshape):
            return
        for reader in value.consumers:
            if self.regions.follows(reader, value):
                self._follow(reader, matrix)
        if stack.is_kept and producer is not None:
            place = self.new.at(producer)
            shape, allowzero = self.targets.of(value)
            place.replace(value, place.node("Reshape", matrix, shape, allowzero=allowzero))

    def _follow(self, reshape: Node, matrix: Value) -> None:
        """Make a Reshape outside the region read the matrix."""
        if not is_explicit(reshape):
            shape, allowzero = self.targets.of(reshape.outputs[0])
            self.new.set_input(reshape, 1, shape)
            self.new.set_attribute(reshape, "allowzero", allowzero)
        self.new.set_input(reshape, 0, matrix)
