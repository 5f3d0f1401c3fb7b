"""A state of a history as nodes and edges, and the same of a model, found by other means."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx

from surgery.engine.pipeline.records import StepRecord
from surgery.features.differences.compared_model import Side
from surgery.interface.drawing import History
from surgery.interface.drawing.node_data import NodeData
from surgery.interface.drawing.tracked_nodes import INPUT, TrackedNodes
from surgery.model import storage
from surgery.model.proto.lineage_entries import GRAPHS, LineageEntry

Replayed = tuple[Counter[Any], Counter[Any]]


class Tape(History):
    """A history that keeps the models as well, to compare with."""

    def __init__(self) -> None:
        super().__init__()
        self.models: list[onnx.ModelProto] = []

    def begin(self, stored: storage.StoredModel, proto: onnx.ModelProto) -> None:
        super().begin(stored, proto)
        self.models = [_copied(proto)]

    def commit(self, proto: onnx.ModelProto, record: StepRecord, number: int) -> None:
        super().commit(proto, record, number)
        self.models.append(_copied(proto))


def _copied(proto: onnx.ModelProto) -> onnx.ModelProto:
    copied = onnx.ModelProto()
    copied.CopyFrom(proto)
    return copied


def replayed(found: TrackedNodes, state: int) -> Replayed:
    """Return the nodes and the edges that a history has in a state."""
    nodes = Counter(
        (_scope(found, row.scope, state), *_plain(row.at(state)))
        for row in found.rows
        if row.alive(state) and not row.is_port
    )
    edges: Counter[Any] = Counter()
    for edge in found.edges:
        if edge.born <= state and (edge.died == -1 or state < edge.died):
            source, target = found.rows[edge.source], found.rows[edge.target]
            assert source.alive(state) and target.alive(state)
            edges[_end(found, edge.source, state), edge.number, _end(found, edge.target, state)] += 1
    return nodes, edges


def _plain(node: NodeData) -> tuple[Any, ...]:
    return f"{node.domain}::{node.op}" if node.domain else node.op, node.name, node.inputs, node.outputs


def _end(found: TrackedNodes, row: int, state: int) -> tuple[Any, ...]:
    one = found.rows[row]
    node, scope = one.at(state), _scope(found, one.scope, state)
    return (scope, node.op, node.name) if one.is_port else (scope, *_plain(node))


def _scope(found: TrackedNodes, number: int, state: int) -> str:
    scope = found.scopes[number]
    if scope.owner == -1:
        return scope.name
    around = _scope(found, scope.around, state)
    return f"{around}{'/' if around else ''}{found.rows[scope.owner].at(state).label}.{scope.name}"


def expected(model: onnx.ModelProto) -> Replayed:
    """Return the nodes and the edges of a model."""
    side = Side(storage.StoredModel(None, model, storage.Weights(), False))
    entries = [entry for entry in side.entries if entry.node is not None]
    nodes = Counter((entry.scope, *_entry(entry)) for entry in entries)
    edges: Counter[Any] = Counter()
    for entry in entries:
        for value in dict.fromkeys(side.reads[entry]):
            edges.update(_edge(side, value, (entry.scope, *_entry(entry))))
    for value, given in side.results.items():
        for scope, number in given:
            port = side.scopes[scope].output[number]
            edges.update(_edge(side, value, (scope, "Output", getattr(port, "name", port))))
    return nodes, edges


def _edge(side: Side, value: Any, target: tuple[Any, ...]) -> list[Any]:
    if value in side.makers and side.makers[value][0].node is not None:
        maker, number = side.makers[value]
        return [((maker.scope, *_entry(maker)), number, target)]
    if value in side.inputs and value not in side.initializers:
        return [((value[0], INPUT, value[1]), 0, target)]
    return []


def _entry(entry: LineageEntry) -> tuple[Any, ...]:
    assert entry.node is not None
    return entry.op, entry.node.name, tuple(entry.inputs), tuple(entry.outputs)


def attribute_names(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return the names of the attributes that are no subgraphs."""
    return tuple(one.name for one in node.attribute if one.type not in GRAPHS)
