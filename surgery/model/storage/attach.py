"""Attach residue: find the parts of a model that the IR does not represent, and attach them to the IR objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import onnx
import onnx_ir as ir

from surgery.model.storage.ir_to_proto import GRAPH_TYPES, QUANTIZATION, Exporter, graph_values
from surgery.model.storage.message_merging import wire, without
from surgery.model.storage.residue import KEY, GraphResidue, Residue

_GRAPH_LISTS = (
    "node",
    "initializer",
    "sparse_initializer",
    "input",
    "output",
    "value_info",
    "quantization_annotation",
)


class Attacher:
    """Compares a model with its plain export, message by message."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def model(self, original: onnx.ModelProto, plain: onnx.ModelProto, model: ir.Model) -> None:
        """Attach all parts that are missing in the plain export of `model`."""
        if wire(original) == wire(plain):
            return
        residue = self._graph(original.graph, plain.graph, model.graph)
        parts = ("graph", "functions")
        residue.model = _difference(without(original, *parts), without(plain, *parts))
        functions = {(proto.domain, proto.name, proto.overload): proto for proto in original.functions}
        for proto, function in zip(plain.functions, model.functions.values(), strict=True):
            self._function(functions[function.identifier()], proto, function)

    def _graph(self, original: onnx.GraphProto, plain: onnx.GraphProto, graph: ir.Graph) -> GraphResidue:
        residue = GraphResidue()
        residue.shell = _difference(without(original, *_GRAPH_LISTS), without(plain, *_GRAPH_LISTS))
        for role, values in (("input", graph.inputs), ("output", graph.outputs)):
            befores, afters = getattr(original, role), getattr(plain, role)
            for before, after, value in zip(befores, afters, values, strict=True):
                _attach_role(value, role, before, after)
        by_name = {value.name: value for value in graph_values(graph)}
        self._value_infos(original, plain, by_name, residue)
        self._annotations(original, plain, by_name, residue)
        self._initializers(original, plain, graph, residue)
        self._nodes(original.node, plain.node, graph)
        graph.meta[KEY] = residue
        return residue

    def _function(self, original: onnx.FunctionProto, plain: onnx.FunctionProto, function: ir.Function) -> None:
        residue = GraphResidue()
        lists = ("node", "value_info")
        residue.shell = _difference(without(original, *lists), without(plain, *lists))
        values = list(function.inputs)
        for node in function:
            values.extend(node.outputs)
        self._value_infos(original, plain, {value.name: value for value in values}, residue)
        self._nodes(original.node, plain.node, function)
        function.meta[KEY] = residue

    def _value_infos(self, original: Any, plain: Any, values: dict[Any, ir.Value], residue: GraphResidue) -> None:
        """Attach value infos to the values that they describe, and those with unknown names to the graph."""

        def made(value: ir.Value) -> onnx.ValueInfoProto:
            # The IR exports no value info for this value: the entry marks that it needs one.
            entry = onnx.ValueInfoProto()
            self._exporter.value(entry, value, "value_info")
            return entry

        entries = _by(original.value_info, "name"), _by(plain.value_info, "name")
        residue.loose_values, residue.value_order = _attach_entries(values, "value_info", *entries, made)

    def _annotations(
        self, original: onnx.GraphProto, plain: onnx.GraphProto, values: dict[Any, ir.Value], residue: GraphResidue
    ) -> None:
        def made(value: ir.Value) -> onnx.TensorAnnotation:
            # The IR drops an annotation without entries.
            value.meta[QUANTIZATION] = {}
            entry = onnx.TensorAnnotation()
            self._exporter.annotation(entry, value)
            return entry

        entries = (
            _by(original.quantization_annotation, "tensor_name"),
            _by(plain.quantization_annotation, "tensor_name"),
        )
        residue.loose_annotations, residue.annotation_order = _attach_entries(values, "annotation", *entries, made)

    def _initializers(
        self, original: onnx.GraphProto, plain: onnx.GraphProto, graph: ir.Graph, residue: GraphResidue
    ) -> None:
        """Attach residue to the tensors; of several initializers with the same name, only the last one is kept."""
        befores = {tensor.name: tensor for tensor in original.initializer}
        for after in plain.initializer:
            tensor = graph.initializers[after.name].const_value
            before = befores[after.name]
            if tensor is not None and wire(before) != wire(after):
                _attach(tensor.meta, before, after)
        residue.unnamed_initializers = [deepcopy(tensor) for tensor in original.initializer if not tensor.name]

    def _nodes(self, originals: Any, plains: Any, nodes: Iterable[ir.Node]) -> None:
        for before, after, node in zip(originals, plains, nodes, strict=True):
            if wire(before) == wire(after):
                continue
            names = {held.name for held in node.attributes.values() if held.type in GRAPH_TYPES}
            _attach(node.meta, _shell(before, names), _shell(after, names))
            for attribute in before.attribute:
                known = node.attributes.get(attribute.name)
                twin = next((item for item in after.attribute if item.name == attribute.name), None)
                if known is None or known.is_ref() or twin is None:
                    continue
                if known.type == ir.AttributeType.GRAPH:
                    self._graph(attribute.g, twin.g, known.value)
                elif known.type == ir.AttributeType.GRAPHS:
                    for graphs in zip(attribute.graphs, twin.graphs, known.value, strict=True):
                        self._graph(*graphs)


def _shell(node: onnx.NodeProto, graphs: set[str]) -> onnx.NodeProto:
    """Return a copy of a node without the contents of graph attributes."""
    copy = deepcopy(node)
    for attribute in copy.attribute:
        if attribute.name in graphs:
            attribute.ClearField("g")
            attribute.ClearField("graphs")
    return copy


def _by(entries: Any, key: str) -> dict[str, Any]:
    return {getattr(entry, key): entry for entry in entries}


def _attach_entries(
    values: dict[Any, ir.Value],
    role: str,
    befores: dict[str, Any],
    afters: dict[str, Any],
    made: Callable[[ir.Value], Any],
) -> tuple[list[Any], dict[str, int]]:
    """Attach list entries to values; return the entries without a value, and the positions if the order differs."""
    loose = []
    for name, before in befores.items():
        value = values.get(name) if name else None
        if value is None:
            loose.append(deepcopy(before))
        elif name in afters:
            _attach_role(value, role, before, afters[name])
        else:
            _roles(value)[role] = Residue(before, made(value))
    same = list(befores) == list(afters)
    return loose, {} if same else {name: index for index, name in enumerate(befores)}


def _difference(original: Any, plain: Any) -> Residue | None:
    return None if wire(original) == wire(plain) else Residue(original, plain)


def _attach(meta: Any, original: Any, plain: Any) -> None:
    residue = _difference(original, plain)
    if residue is not None:
        meta[KEY] = residue


def _attach_role(value: ir.Value, role: str, original: Any, plain: Any) -> None:
    residue = _difference(original, plain)
    if residue is not None:
        _roles(value)[role] = residue


def _roles(value: ir.Value) -> dict[str, Residue]:
    roles: dict[str, Residue] = value.meta.setdefault(KEY, {})
    return roles
