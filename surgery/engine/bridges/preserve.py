"""Features of a model that onnx-graphsurgeon drops, recorded per object and restored after the pass.

Unchanged fields are written as in the original; new ones as by onnx-graphsurgeon. Objects are tracked by identity, so a
pass may rename, move and reorder them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter
from onnx_graphsurgeon.ir.tensor import SparseValues
from onnx_graphsurgeon.util.misc import convert_from_onnx_attr_type

from surgery.model.storage.message_merging import assign, ordered, wire, without

_LISTS = ("node", "initializer", "sparse_initializer", "input", "output", "value_info")
_EMPTY = "surgery.empty"
_LISTED_BEFORE = 4
"""The first IR version in which initializers need not be listed as inputs."""


@dataclass
class _OriginalGraph:
    """An original graph: its message, the tensors by name, and the names of all its tensors."""

    graph: gs.Graph
    proto: onnx.GraphProto
    tensors: dict[str, gs.Tensor] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)


@dataclass
class _OriginalNode:
    """An original node: its message, and its attributes as onnx-graphsurgeon alone would write them."""

    node: gs.Node
    proto: onnx.NodeProto
    plain: dict[str, bytes]


@dataclass
class _Function:
    function: gs.Function
    proto: onnx.FunctionProto
    plain: bytes


class Remains:
    """Records, for each object of a graph, the message in `model` that it came from.

    `hidden` has the names of initializers that are hidden from the graph, where they are inputs without a default.
    """

    def __init__(self, model: onnx.ModelProto, graph: gs.Graph, hidden: frozenset[str]) -> None:
        self._model = model
        self._main = graph
        self._hidden = hidden
        self._scopes: dict[int, _OriginalGraph] = {}
        self._nodes: dict[int, _OriginalNode] = {}
        self._looks: dict[int, tuple[gs.Tensor, Any]] = {}
        self._homes: dict[int, int] = {}
        self._functions: dict[int, _Function] = {}
        self._remember(graph, model.graph, {})
        for function, message in zip(graph.functions, model.functions, strict=True):
            plain = OnnxExporter.export_function(function).SerializeToString(deterministic=True)
            self._functions[id(function)] = _Function(function, message, plain)
            self._remember_nodes(function.nodes, message.node, {})

    def _remember(self, graph: gs.Graph, proto: onnx.GraphProto, outer: Mapping[str, int]) -> None:
        scope = self._scopes[id(graph)] = _OriginalGraph(graph, proto)
        homes = {**outer, **dict.fromkeys((tensor.name for tensor in proto.initializer), id(graph))}
        homes.update(dict.fromkeys((tensor.values.name for tensor in proto.sparse_initializer), id(graph)))
        for tensor in tensors_of(graph):
            scope.tensors.setdefault(tensor.name, tensor)
            scope.names.add(tensor.name)
            self._looks.setdefault(id(tensor), (tensor, _look(tensor)))
            if isinstance(tensor, gs.Constant) and tensor.name in homes:
                home = self._homes.setdefault(id(tensor), homes[tensor.name])
                self._scopes[home].tensors.setdefault(tensor.name, tensor)
                self._scopes[home].names.add(tensor.name)
        self._remember_nodes(graph.nodes, proto.node, homes)

    def _remember_nodes(self, nodes: list[gs.Node], protos: Sequence[onnx.NodeProto], homes: Mapping[str, int]) -> None:
        for node, proto in zip(nodes, protos, strict=True):
            plain = {}
            attributes = {attribute.name: attribute for attribute in proto.attribute}
            for name, value in node.attrs.items():
                if isinstance(value, gs.Graph):
                    self._remember(value, attributes[name].g, homes)
                    plain[name] = b""
                else:
                    written = _stand_in(attributes[name]) if _is_empty(value) else value
                    (attribute,) = OnnxExporter.export_attributes({name: written})
                    plain[name] = wire(attribute)
            self._nodes[id(node)] = _OriginalNode(node, proto, plain)

    def recognise(self, graph: gs.Graph) -> None:
        """Match the tensors and nodes of another graph, such as a copy, with the original ones by name."""
        if id(graph) in self._scopes:
            return
        main = self._scopes[id(self._main)]
        scope = self._scopes[id(graph)] = _OriginalGraph(graph, main.proto, names=main.names)
        for tensor in tensors_of(graph):
            old = main.tensors.get(tensor.name)
            if old is not None and type(old) is type(tensor):
                scope.tensors[tensor.name] = tensor
                if (old.dtype, old.shape) == (tensor.dtype, tensor.shape):
                    self._looks[id(tensor)] = tensor, _look(tensor)
        nodes = {known.node.name: known for known in self._nodes.values() if known.node.name}
        for node in graph.nodes:
            known = nodes.get(node.name)
            if known is not None and known.proto.op_type == node.op:
                self._nodes[id(node)] = known

    # Restoring

    @contextmanager
    def typed(self, graph: gs.Graph) -> Iterator[None]:
        """Give empty lists in attributes a type temporarily, because it cannot be inferred from their elements."""
        bodies = [*_with_subgraphs(graph), *graph.functions]
        held = []
        for node in (node for body in bodies for node in body.nodes):
            known = self._nodes.get(id(node))
            for attribute in () if known is None else known.proto.attribute:
                if _is_empty(node.attrs.get(attribute.name)):
                    held.append((node, attribute.name, node.attrs[attribute.name]))
                    node.attrs[attribute.name] = _stand_in(attribute)
        try:
            yield
        finally:
            for node, name, value in held:
                node.attrs[name] = value

    def model(self, made: onnx.ModelProto, graph: gs.Graph) -> onnx.ModelProto:
        """Return the exported model with all features restored that onnx-graphsurgeon cannot represent."""
        result: onnx.ModelProto = without(self._model, "graph", "functions")
        if graph.ir_version is not None and graph.ir_version != result.ir_version:
            result.ir_version = graph.ir_version
        _import(result.opset_import, made.opset_import)
        scope = self._scopes[id(graph)]
        result.graph.CopyFrom(self._graph(made.graph, graph, scope, frozenset()))
        if result.ir_version < _LISTED_BEFORE:
            _list_initializers(result.graph, self._model.graph)
        for message, function in zip(made.functions, graph.functions, strict=True):
            result.functions.append(self._function(message, function))
        return result

    def _graph(
        self, made: onnx.GraphProto, graph: gs.Graph, scope: _OriginalGraph, outer: frozenset[int]
    ) -> onnx.GraphProto:
        """Restore the recorded features of a graph; `outer` has the ids of constants that enclosing graphs contain."""
        result: onnx.GraphProto = without(scope.proto, *_LISTS)
        for name in ("name", "doc_string"):
            if getattr(result, name) != getattr(made, name):
                setattr(result, name, getattr(made, name))
        constants = self._constants(graph, scope, outer)
        _add_constants(result, constants)
        held = outer | {id(constant) for constant in constants if isinstance(constant, gs.Constant)}
        for message, node in zip(made.node, graph.nodes, strict=True):
            result.node.append(self._node(message, node, held))
        for name, tensors in (("input", graph.inputs), ("output", graph.outputs)):
            known = {id(scope.tensors.get(entry.name)): entry for entry in getattr(scope.proto, name)}
            messages = zip(getattr(made, name), tensors, strict=True)
            getattr(result, name).extend(self._value(m, tensor, known.get(id(tensor))) for m, tensor in messages)
        result.value_info.extend(self._value_infos(made, graph, scope))
        _drop_annotations(result, scope)
        return result

    def _constants(self, graph: gs.Graph, scope: _OriginalGraph, outer: frozenset[int]) -> list[gs.Constant | Any]:
        """List the constants of a graph, in their original order, with messages for those that were hidden from it."""
        local = {id(tensor): tensor for tensor in tensors_of(graph) if isinstance(tensor, gs.Constant)}
        used = {id(tensor) for inner in _with_subgraphs(graph) for tensor in tensors_of(inner)}
        names = {tensor.name for tensor in tensors_of(graph)}
        found: dict[int, Any] = {}
        for proto in (*scope.proto.initializer, *scope.proto.sparse_initializer):
            name = proto.name if isinstance(proto, onnx.TensorProto) else proto.values.name
            tensor = scope.tensors.get(name)
            if name in self._hidden:
                place = next((one for one in graph.inputs if one is tensor or one.name == name), None)
                if place is not None:
                    found[id(proto)] = _renamed(proto, place.name)
            elif name not in scope.names and name not in names:
                found[id(proto)] = proto  # nothing reads it
            elif isinstance(tensor, gs.Constant) and id(tensor) in used:
                found[id(tensor)] = tensor
        found.update({key: constant for key, constant in local.items() if key not in outer})
        return list(found.values())

    def _node(self, made: onnx.NodeProto, node: gs.Node, outer: frozenset[int]) -> onnx.NodeProto:
        for attribute in made.attribute:
            value = node.attrs.get(attribute.name)
            if isinstance(value, gs.Graph):
                scope = self._scopes.get(id(value)) or _OriginalGraph(value, onnx.GraphProto())
                attribute.g.CopyFrom(self._graph(attribute.g, value, scope, outer))
        known = self._nodes.get(id(node))
        if known is None:
            return made
        result: onnx.NodeProto = without(known.proto, "input", "output", "attribute")
        same = (made.op_type, made.domain) == (result.op_type, result.domain)
        for name in ("name", "op_type", "domain"):
            if getattr(result, name) != getattr(made, name):
                setattr(result, name, getattr(made, name))
        if not same:
            result.ClearField("overload")
        result.input.extend(made.input)
        result.output.extend(made.output)
        result.attribute.extend(_attributes(made, known, same))
        return result

    def _function(self, made: onnx.FunctionProto, function: gs.Function) -> onnx.FunctionProto:
        known = self._functions.get(id(function))
        if known is None:
            return made
        if wire(made) == known.plain:
            return known.proto
        result: onnx.FunctionProto = without(made, "node")
        # Constants of a function are written as nodes before its own nodes.
        new = len(made.node) - len(function.nodes)
        result.node.extend(made.node[:new])
        for message, node in zip(made.node[new:], function.nodes, strict=True):
            result.node.append(self._node(message, node, frozenset()))
        result.metadata_props.extend(known.proto.metadata_props)
        result.overload = known.proto.overload
        names = {name for node in result.node for name in node.output} | set(result.input)
        result.value_info.extend(entry for entry in known.proto.value_info if entry.name in names)
        return result

    def _value(
        self, made: onnx.ValueInfoProto, tensor: gs.Tensor, known: onnx.ValueInfoProto | None
    ) -> onnx.ValueInfoProto:
        if known is None:
            return made
        result: onnx.ValueInfoProto = _renamed(known, tensor.name)
        if not self._is_unchanged(tensor):
            result.type.CopyFrom(made.type)
        return result

    def _value_infos(
        self, made: onnx.GraphProto, graph: gs.Graph, scope: _OriginalGraph
    ) -> Iterator[onnx.ValueInfoProto]:
        """Yield the declarations of intermediate values: the remaining original ones, in their order, then new ones."""
        alive = {id(tensor): tensor for tensor in tensors_of(graph)}
        messages = {entry.name: entry for entry in made.value_info}
        done = set()
        for entry in scope.proto.value_info:
            tensor = scope.tensors.get(entry.name)
            if entry.name not in scope.names:
                yield entry
            elif id(tensor) in alive and tensor is not None:
                done.add(tensor.name)
                yield self._value(messages.get(tensor.name, entry), tensor, entry)
        for tensor in alive.values():
            if tensor.name in messages and tensor.name not in done and not self._is_unchanged(tensor):
                done.add(tensor.name)
                yield messages[tensor.name]

    def _is_unchanged(self, tensor: gs.Tensor) -> bool:
        """Return whether a tensor comes from the original model, with the same type and shape."""
        known = self._looks.get(id(tensor))
        return known is not None and known[1] == _look(tensor)


def tensors_of(graph: gs.Graph | gs.Function) -> Iterator[gs.Tensor]:
    """Yield each tensor that a graph declares, reads or produces, once, in node order, except omitted ones."""
    seen: set[int] = set()
    pending = [graph.inputs, *(part for node in graph.nodes for part in (node.inputs, node.outputs)), graph.outputs]
    for tensors in pending:
        for tensor in tensors:
            if tensor.name and id(tensor) not in seen:
                seen.add(id(tensor))
                yield tensor


def _with_subgraphs(graph: gs.Graph) -> Iterator[gs.Graph]:
    yield graph
    yield from graph.subgraphs(recursive=True)


def _is_empty(value: Any) -> bool:
    return isinstance(value, list) and not value


def _stand_in(attribute: onnx.AttributeProto) -> gs.Node.AttributeRef:
    return gs.Node.AttributeRef(_EMPTY, convert_from_onnx_attr_type(attribute.type))


def _look(tensor: gs.Tensor) -> Any:
    if isinstance(tensor, gs.Constant):
        return None
    return tensor.dtype, None if tensor.shape is None else tuple(tensor.shape), tensor.type


def _attributes(made: onnx.NodeProto, known: _OriginalNode, same: bool) -> list[onnx.AttributeProto]:
    """List the attributes of a node: the remaining original ones, in their order, then new ones."""
    messages = {attribute.name: attribute for attribute in made.attribute}
    found = []
    for attribute in known.proto.attribute:
        message = messages.pop(attribute.name, None)
        if message is None:
            if same and attribute.name not in known.plain:
                found.append(attribute)  # of a type that onnx-graphsurgeon does not import
        elif wire(message) == known.plain.get(attribute.name):
            found.append(attribute)
        else:
            if message.ref_attr_name == _EMPTY:
                message.ClearField("ref_attr_name")
            if attribute.HasField("doc_string"):
                message.doc_string = attribute.doc_string
            found.append(message)
    return [*found, *messages.values()]


def _add_constants(graph: onnx.GraphProto, constants: Iterable[Any]) -> None:
    for constant in constants:
        if not isinstance(constant, gs.Constant):
            proto = constant
        elif isinstance(constant._values, SparseValues):
            proto = _renamed(OnnxExporter.export_sparse_tensor_proto(constant), constant.name)
        else:
            proto = OnnxExporter.export_tensor_proto(constant)
        (graph.initializer if isinstance(proto, onnx.TensorProto) else graph.sparse_initializer).append(proto)


def _drop_annotations(graph: onnx.GraphProto, scope: _OriginalGraph) -> None:
    """Drop the quantization annotations of removed tensors."""
    names = {entry.name for entry in (*graph.input, *graph.output, *graph.initializer)}
    names.update(name for node in graph.node for name in node.output)
    kept = [e for e in graph.quantization_annotation if e.tensor_name in names or e.tensor_name not in scope.names]
    if len(kept) < len(graph.quantization_annotation):
        assign(graph.quantization_annotation, kept)


def _list_initializers(graph: onnx.GraphProto, before: onnx.GraphProto) -> None:
    """List each initializer as an input: original ones at their positions, new ones at the end."""
    entries = {entry.name: entry for entry in graph.input}
    old = {entry.name: entry for entry in before.input}
    listed = [tensor.name for tensor in graph.initializer] + [tensor.values.name for tensor in graph.sparse_initializer]
    shapes = {tensor.name: tensor for tensor in graph.initializer}
    for name in listed:
        if name in old:
            entries.setdefault(name, old[name])
        elif name not in {tensor.name for tensor in before.initializer}:
            tensor = shapes[name]
            value = onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims)
            entries.setdefault(name, value)
    order = {name: position for position, name in enumerate(old)}
    assign(graph.input, ordered(list(entries.values()), order, "name"))


def _import(imports: Any, made: Iterable[onnx.OperatorSetIdProto]) -> None:
    """Set the opset versions of the export, and keep the imports of all other domains."""
    known = {entry.domain: entry for entry in imports}
    for entry in made:
        if entry.domain not in known:
            imports.append(entry)
        elif known[entry.domain].version != entry.version:
            known[entry.domain].version = entry.version


def _renamed(message: Any, name: str) -> Any:
    """Copy a value info, a tensor or a sparse tensor under another name."""
    copy = deepcopy(message)
    named = copy.values if isinstance(copy, onnx.SparseTensorProto) else copy
    if named.name != name:
        named.name = name
    return copy
