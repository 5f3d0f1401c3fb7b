"""The cost of one run of a model: multiply-accumulates and floating-point operations in all scopes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from surgery.base.operators.operations import MACS, UnknownDim, terms
from surgery.features.inspection.amounts import Amount
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Node, Refusal, Value
from surgery.model.shapes.facts import Dim
from surgery.model.storage.ir_scopes import subgraphs


@dataclass
class Work:
    """The multiply-accumulates and the other operations of a node."""

    macs: Amount = field(default_factory=Amount)
    others: Amount = field(default_factory=Amount)


@dataclass
class Costs:
    """Multiply-accumulates (MACs) and operations of one run; a MAC counts as two operations.

    `macs_by_op` has the MACs by operator. `uncounted` has the number of nodes whose cost is unknown, by operator:
    operators of another domain, or dims that depend on data. `turns` are the nodes, such as Loops, whose bodies run an
    unknown number of times and are counted once.
    """

    macs: Amount = field(default_factory=Amount)
    flops: Amount = field(default_factory=Amount)
    macs_by_op: dict[str, Amount] = field(default_factory=dict)
    uncounted: Counter[str] = field(default_factory=Counter)
    turns: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; an amount is a number, or an expression in the names of dims."""
        return {
            "macs": self.macs.to_json(),
            "flops": self.flops.to_json(),
            "macs_by_op": {op: amount.to_json() for op, amount in self.by_size()},
            "uncounted": dict(self.uncounted),
            "counted_once": self.turns,
        }

    def by_size(self) -> list[tuple[str, Amount]]:
        """List the operators with their MACs, most expensive first."""
        return sorted(self.macs_by_op.items(), key=lambda item: -item[1].rough)

    def include(self, node: Node, done: Work) -> None:
        """Add the cost of one node."""
        self.macs += done.macs
        self.flops += done.macs.times(2)
        self.flops += done.others
        if done.macs.rough:
            self.macs_by_op.setdefault(node.op, Amount()).__iadd__(done.macs)

    def add(self, other: Costs, times: Dim = 1) -> None:
        """Add the cost of a subgraph that runs `times` times."""
        self.macs += other.macs.times(times)
        self.flops += other.flops.times(times)
        for op, amount in other.macs_by_op.items():
            self.macs_by_op.setdefault(op, Amount()).__iadd__(amount.times(times))
        self.uncounted.update(other.uncounted)
        self.turns += other.turns


def costs(graph: Graph) -> Costs:
    """Count the cost of one run of a model with inlined functions; for an If, the more expensive branch counts."""
    return _of_scope(graph, graph.ir.graph)


def _of_scope(graph: Graph, scope: ir.Graph) -> Costs:
    total = Costs()
    for inner in scope:
        node = Node(graph, inner)
        if bodies := subgraphs(inner):
            found = [_of_scope(graph, body) for body in bodies]
            total.add(max(found, key=lambda one: one.flops.rough), _turns(node, total))
            continue
        done = work(node)
        if done is None:
            total.uncounted[node.op] += 1
        else:
            total.include(node, done)
    return total


def macs(node: Node) -> Amount | None:
    """Return the multiply-accumulates of a node, without those of its subgraphs; None if they are unknown."""
    found = work(node)
    return found.macs if found is not None else None


def work(node: Node) -> Work | None:
    """Return the cost of a node; None if the operator or its dims are unknown."""
    result = Work()
    try:
        found = terms(node)
        for kind, factors in found or ():
            (result.macs if kind == MACS else result.others).add(*factors)
    except (Refusal, UnknownDim):
        return None
    return None if found is None else result


def _turns(node: Node, total: Costs) -> Dim:
    """Return how often the body of a node runs; 1 if that is unknown, which is recorded in `total`."""
    if node.op == "If":
        return 1
    times: Dim = None
    if node.op == "Loop":
        times = _trip_count(node)
    elif node.op == "Scan" and node.inputs and node.inputs[-1] is not None:
        axes = node.attr("scan_input_axes") or [0]
        shape = node.inputs[-1].shape
        times = shape[axes[-1]] if shape else None
    if times is None:
        total.turns.append(node.label)
        return 1
    return times


def _trip_count(node: Node) -> Dim:
    """Return the trip count of a Loop; None if a condition may end it early or the count depends on data."""
    count, condition = node.input(0), node.input(1)
    body = subgraphs(node.ir)[0]
    goes_on = Value(node.graph, body.outputs[0])
    passed_on = body.outputs[0] is body.inputs[1] or _copies(goes_on, body.inputs[1])
    runs = (condition is None or condition.scalar is True) and (passed_on or goes_on.scalar is True)
    if count is None or not runs:
        return None
    return count.elements[0] if count.elements and len(count.elements) == 1 else None


def _copies(value: Value, source: ir.Value) -> bool:
    producer = value.ir.producer()
    return producer is not None and producer.op_type == "Identity" and producer.inputs[0] is source
