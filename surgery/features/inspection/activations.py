"""Peak and total memory of activations."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from surgery.base.json_record import Record
from surgery.base.operators.moving import RESHAPING
from surgery.base.operators.operations import UnknownDim
from surgery.features.inspection.amounts import Amount
from surgery.model.graph.graph import Graph
from surgery.model.graph.traversal import reads
from surgery.model.graph.values import Node, Value
from surgery.model.storage.ir_scopes import subgraphs


@dataclass(frozen=True)
class Activations(Record):
    """Bytes of inputs, outputs and intermediate values, without weights; the nodes run in the order of the file.

    Each value is kept from its producer to its last reader, an output until the end. `peak` is the maximum kept at one
    time, reached while the node `at` runs; `total` is the sum over all values. `unknown` counts the values that are
    left out: sequences, strings, and values whose dims depend on data.
    """

    peak: Amount
    at: str
    total: Amount
    unknown: int


class _ScopeWalk:
    """A walk over the nodes of one scope."""

    def __init__(self, graph: Graph, scope: ir.Graph) -> None:
        self.graph = graph
        self.scope = scope
        self.nodes = list(scope)
        self.roots: dict[ir.Value, ir.Value] = {}
        self.unknown = 0
        self.total, self.now, self.peak = Amount(), Amount(), Amount()
        self.at = ""

    def run(self) -> Activations:
        ends = self._ends()
        kept: dict[ir.Value, Amount] = {}
        for value in self.scope.inputs:
            self._keep(value, kept)
        self._note("the inputs", Amount())
        for number, node in enumerate(self.nodes):
            inner = self._inside(node)
            if node.op_type != "Constant":
                for value in node.outputs:
                    if self.roots.get(value, value) is value:
                        self._keep(value, kept)
            self._note(Node(self.graph, node).label, inner)
            for value in ends.get(number, ()):
                if value in kept:
                    self.now -= kept.pop(value)
        return Activations(self.peak, self.at, self.total, self.unknown)

    def _ends(self) -> dict[int, list[ir.Value]]:
        """Return the values that are no longer needed after a node, by the index of that node."""
        last: dict[ir.Value, int] = {}
        for number, node in enumerate(self.nodes):
            if node.op_type in RESHAPING and node.domain == "" and node.inputs and node.inputs[0] is not None:
                source = node.inputs[0]
                if node.outputs and not source.is_initializer():
                    self.roots[node.outputs[0]] = self.roots.get(source, source)
            for value in (*node.outputs, *reads(node)):
                last[self.roots.get(value, value)] = number
        for value in self.scope.outputs:
            last.pop(self.roots.get(value, value), None)
        ends: dict[int, list[ir.Value]] = {}
        for value, number in last.items():
            ends.setdefault(number, []).append(value)
        return ends

    def _inside(self, node: ir.Node) -> Amount:
        """Return the peak of the subgraph of a node that needs the most."""
        found = [_ScopeWalk(self.graph, body).run() for body in subgraphs(node)]
        self.unknown += sum(one.unknown for one in found)
        return max((one.peak for one in found), key=lambda amount: amount.rough, default=Amount())

    def _keep(self, value: ir.Value, kept: dict[ir.Value, Amount]) -> None:
        if not value.name or value.is_initializer():
            return
        size = nbytes(Value(self.graph, value))
        if size is None:
            self.unknown += 1
            return
        kept[value] = size
        self.now += size
        self.total += size

    def _note(self, where: str, inner: Amount) -> None:
        here = self.now.times(1)
        here += inner
        if here.rough > self.peak.rough:
            self.peak, self.at = here, where


def nbytes(value: Value) -> Amount | None:
    """Return the size of a tensor in bytes, or None if it is unknown."""
    dtype, shape = value.dtype, value.shape
    if dtype is None or shape is None or dtype in (ir.DataType.STRING, ir.DataType.UNDEFINED):
        return None
    try:
        elements = Amount.of(*shape)
    except UnknownDim:
        return None
    if dtype.bitwidth >= 8:
        return elements.times(dtype.bitwidth // 8)
    # Elements smaller than a byte are packed.
    count = elements.to_json()
    return Amount.of(-(-count * dtype.bitwidth // 8)) if isinstance(count, int) else None


def activations(graph: Graph) -> Activations:
    """Measure the activations of a model with inlined functions, with the nodes run in file order."""
    return _ScopeWalk(graph, graph.ir.graph).run()
