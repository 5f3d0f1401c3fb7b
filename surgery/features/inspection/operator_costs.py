"""The cost of each operator in one run of a model: operations, and bytes that its nodes read and write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from surgery.base.json_record import Record
from surgery.base.operators.moving import RESHAPING
from surgery.features.inspection.activations import nbytes
from surgery.features.inspection.amounts import Amount
from surgery.features.inspection.bound_dims import bind, dynamic_dims, inlined
from surgery.features.inspection.costs import work
from surgery.model import storage
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Node, Value
from surgery.model.storage.ir_scopes import subgraphs

if TYPE_CHECKING:
    from surgery.model.storage import StoredModel


@dataclass
class OperatorCost(Record):
    """All nodes of one operator: their number, multiply-accumulates, operations, and bytes of operands and results.

    Operators that only reinterpret the shape of a tensor move no bytes.
    """

    op: str
    nodes: int = 0
    macs: Amount = field(default_factory=Amount)
    flops: Amount = field(default_factory=Amount)
    bytes: Amount = field(default_factory=Amount)


def operator_costs(stored: StoredModel, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return the costs of a model by operator as plain values, most operations first.

    `sizes` are the sizes of dynamic dims; names that the model does not have are ignored. Bodies of loops count once.
    Nodes whose operator or dims are unknown are `uncounted`.
    """
    known = dynamic_dims(stored.proto)
    bound = {name: size for name, size in (sizes or {}).items() if name in known}
    proto = inlined(bind(stored.proto, bound) if bound else stored.proto)
    graph = Graph(storage.ir_from_proto(proto, stored.weights), weights=stored.weights)
    found: dict[str, OperatorCost] = {}
    uncounted: Counter[str] = Counter()
    for node in nodes_within(graph, graph.ir.graph):
        one = found.setdefault(node.op, OperatorCost(node.op))
        one.nodes += 1
        done = work(node)
        if done is None:
            uncounted[node.op] += 1
        else:
            one.macs += done.macs
            one.flops += done.macs.times(2)
            one.flops += done.others
        if node.op not in RESHAPING:
            one.bytes += moved(node)
    rows = sorted(found.values(), key=lambda one: (-one.flops.rough, -one.bytes.rough, one.op))
    totals = {name: _sum(getattr(one, name) for one in rows) for name in ("macs", "flops", "bytes")}
    return {**totals, "by_op": [one.to_json() for one in rows], "uncounted": dict(uncounted)}


def nodes_within(graph: Graph, scope: ir.Graph) -> Iterator[Node]:
    """Yield the nodes of a scope and of the bodies in it, without constants."""
    for inner in scope:
        if inner.op_type != "Constant":
            yield Node(graph, inner)
        for body in subgraphs(inner):
            yield from nodes_within(graph, body)


def moved(node: Node) -> Amount:
    """Return the bytes of the operands and results of a node, without those of unknown size."""
    total = Amount()
    values = [*node.ir.inputs, *node.ir.outputs]
    for value in dict.fromkeys(one for one in values if one is not None and one.name):
        size = nbytes(Value(node.graph, value))
        if size is not None:
            total += size
    return total


def _sum(amounts: Iterator[Amount]) -> int | str:
    total = Amount()
    for one in amounts:
        total += one
    return total.to_json()
