"""The cost of each node of the main graph in one run, at the size 1 of dynamic dims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from surgery.base.operators.moving import RESHAPING
from surgery.features.inspection.bound_dims import bind, dynamic_dims
from surgery.features.inspection.costs import work
from surgery.features.inspection.operator_costs import moved, nodes_within
from surgery.model import storage
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Node
from surgery.model.storage.ir_scopes import subgraphs

if TYPE_CHECKING:
    from surgery.model.storage import StoredModel


@dataclass(frozen=True)
class NodeCost:
    """The floating-point operations and the bytes of operands and results of a node; a body of a loop counts once.

    `flops` is None if the operator or a dim is unknown.
    """

    flops: float | None
    bytes: float


def node_costs(stored: StoredModel) -> dict[str, NodeCost]:
    """Return the costs of the nodes of the main graph, by name or by first output."""
    sizes = dict.fromkeys(dynamic_dims(stored.proto), 1)
    proto = bind(stored.proto, sizes) if sizes else stored.proto
    graph = Graph(storage.ir_from_proto(proto, stored.weights), weights=stored.weights)
    return {Node(graph, node).label: _cost(graph, Node(graph, node)) for node in graph.ir.graph}


def _cost(graph: Graph, node: Node) -> NodeCost:
    inner = [one for body in subgraphs(node.ir) for one in nodes_within(graph, body)]
    known = [done for one in inner or [node] if (done := work(one)) is not None]
    flops = sum(2.0 * one.macs.rough + one.others.rough for one in known) if known else None
    return NodeCost(flops, 0.0 if node.op in RESHAPING else float(moved(node).rough))
