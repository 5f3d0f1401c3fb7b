"""Restore features that a tool drops unintentionally, if the objects that they belong to still exist.

A node survives if a node with the same operator produces the same outputs. If it also has the same inputs and
attributes, up to explicit defaults, it is replaced by the original node, with all features that the tool does not know.
The signature is restored where a tool merely loses it (an unused input, the order, the name of a dim); the engine
verifies whether the model still matches its signature. New declarations by the tool of unchanged values are not
adopted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import cache
from typing import Any

import onnx

from surgery.base.operators.subgraphs import graphs, nodes
from surgery.engine.bridges.tool_packing import read_names
from surgery.model import storage
from surgery.model.proto.extract import calls, function_key
from surgery.model.storage.message_merging import assign, wire

_LAST_WITHOUT_DEFAULTS = 3


def restore(before: onnx.ModelProto, made: onnx.ModelProto) -> onnx.ModelProto:
    """Return the result `made` of a tool with the dropped features of `before`; both may refer to weights."""
    result = deepcopy(before)
    versions = _versions(before)
    result.graph.CopyFrom(made.graph)
    _rename(result.graph, _lost_names(before.graph, result.graph))
    _RestoredBody(before.graph, result.graph, versions).restore()
    _ports(before, result)
    _initializers(before.graph, result.graph)
    assign(result.functions, _functions(before, made, versions))
    _imports(before, made, result)
    _list_constants(result)
    return result


def _versions(model: onnx.ModelProto) -> dict[str, int]:
    return {_domain(entry.domain): entry.version for entry in model.opset_import}


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


class _RestoredBody:
    """The nodes of a graph or function before and after the tool, and the declarations of their values."""

    def __init__(self, before: Any, made: Any, versions: Mapping[str, int]) -> None:
        self.before = before
        self.made = made
        self.versions = versions
        self._old = {output: node for node in before.node for output in node.output if output}
        self._producers: dict[str, onnx.NodeProto] = {}
        self._tensors = {tensor.name: tensor for tensor in getattr(made, "initializer", ())}

    def restore(self) -> None:
        """Restore the features in `made`, in place."""
        for field in ("name", "doc_string"):
            if self.before.HasField(field):
                setattr(self.made, field, getattr(self.before, field))
            else:
                self.made.ClearField(field)
        assign(self.made.metadata_props, self.before.metadata_props)
        for node in self.made.node:
            self._node(node)
        if _bag(self.made.node) == _bag(self.before.node):
            # Only the order of the nodes changed, so the original order is kept.
            assign(self.made.node, self.before.node)
        self._producers = {output: node for node in self.made.node for output in node.output if output}
        self._declarations()

    def _node(self, node: onnx.NodeProto) -> None:
        old = self._survivor(node)
        if old is None:
            return
        for attribute, was in _graphs(node, old):
            _RestoredBody(was, attribute, self.versions).restore()
            _inner(was, attribute)
        if _same(old, node, self.versions):
            node.CopyFrom(old)
            return
        for field in ("name", "doc_string", "overload"):
            if old.HasField(field) and not getattr(node, field):
                setattr(node, field, getattr(old, field))
        for field in ("metadata_props", "device_configurations"):
            if hasattr(node, field) and not getattr(node, field):  # onnx 1.17 has no configurations
                getattr(node, field).extend(getattr(old, field))

    def _survivor(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        old = self._old.get(next(filter(None, node.output), ""))
        return old if old is not None and _operator(old) == _operator(node) else None

    def _declarations(self) -> None:
        """Keep the declarations of outputs of surviving nodes, unless the tool contradicts them.

        For outputs of changed and new nodes, only the declarations of the tool are available.
        """
        declared = {entry.name: entry for entry in self.made.value_info}
        kept = {entry.name: entry for entry in self.before.value_info if self._still(entry, declared.get(entry.name))}
        for node in self.made.node:
            if self._survivor(node) != node:
                kept |= {name: declared[name] for name in node.output if name in declared and name not in kept}
        assign(self.made.value_info, list(kept.values()))

    def _still(self, entry: onnx.ValueInfoProto, now: onnx.ValueInfoProto | None) -> bool:
        """Return whether a declaration still holds, as far as can be determined."""
        was, maker = self._old.get(entry.name), self._producers.get(entry.name)
        if was is None or maker is None:
            tensor = self._tensors.get(entry.name)
            return was is maker and (tensor is None or list(tensor.dims) == _dims(entry))
        if _operator(was) != _operator(maker):
            return False
        return _compatible(entry.type, now.type) if now is not None else was == maker


def _dims(entry: onnx.ValueInfoProto) -> list[int]:
    return [dim.dim_value for dim in entry.type.tensor_type.shape.dim]


def _inner(before: onnx.GraphProto, made: onnx.GraphProto) -> None:
    """Restore the parts of a subgraph besides its nodes; its inputs and outputs are positional."""
    for field in ("input", "output"):
        old, new = getattr(before, field), getattr(made, field)
        if [value.name for value in old] == [value.name for value in new]:
            assign(new, old)
    _initializers(before, made)


def _operator(node: onnx.NodeProto) -> tuple[str, str]:
    return _domain(node.domain), node.op_type


def _bag(nodes: Iterable[onnx.NodeProto]) -> Counter[bytes]:
    return Counter(wire(node) for node in nodes)


def _graphs(node: onnx.NodeProto, old: onnx.NodeProto) -> list[tuple[onnx.GraphProto, onnx.GraphProto]]:
    """Pair the subgraphs of a node with those of the original node."""
    olds = {attribute.name: attribute for attribute in old.attribute}
    pairs = []
    for attribute in node.attribute:
        was = olds.get(attribute.name)
        if was is not None and attribute.HasField("g") and was.HasField("g"):
            pairs.append((attribute.g, was.g))
        if was is not None and len(attribute.graphs) == len(was.graphs):
            pairs += zip(attribute.graphs, was.graphs, strict=True)
    return pairs


# Equality


def _same(old: onnx.NodeProto, new: onnx.NodeProto, versions: Mapping[str, int]) -> bool:
    """Return whether two nodes are equivalent, and differ at most in features that tools drop."""
    if new.name and new.name != old.name:
        return False
    if _trimmed(old.input) != _trimmed(new.input) or _trimmed(old.output) != _trimmed(new.output):
        return False
    olds, news = ({attribute.name: _value(attribute) for attribute in node.attribute} for node in (old, new))
    domain, op = _operator(old)
    defaults = _defaults(op, domain, versions.get(domain, 0))
    return {**defaults, **olds} == {**defaults, **news}


def _trimmed(names: Iterable[str]) -> list[str]:
    found = list(names)
    while found and not found[-1]:
        found.pop()
    return found


def _value(attribute: onnx.AttributeProto) -> tuple[Any, ...]:
    """Return the contents of an attribute, independent of the encoding of its tensors."""
    plain = deepcopy(attribute)
    plain.ClearField("doc_string")
    tensors = [payload(tensor) for tensor in (*([plain.t] if plain.HasField("t") else []), *plain.tensors)]
    plain.ClearField("t")
    plain.ClearField("tensors")
    return wire(plain), *tensors


def payload(tensor: onnx.TensorProto) -> tuple[Any, ...]:
    """Return the type, dims and elements of a tensor, or the reference to its elements, without its name."""
    where = storage.external_reference(tensor) if storage.is_external(tensor) else storage.bytes_of(tensor)
    return tensor.data_type, tuple(tensor.dims), where


@cache
def _defaults(op: str, domain: str, version: int) -> dict[str, tuple[Any, ...]]:
    """Return the attributes of an operator with a default, which some tools write out."""
    try:
        schema = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return {}
    defaults = {}
    for name, attribute in schema.attributes.items():
        if attribute.default_value.type:
            value = deepcopy(attribute.default_value)
            value.name = name
            defaults[name] = _value(value)
    return defaults


# Names


def _lost_names(before: onnx.GraphProto, made: onnx.GraphProto) -> dict[str, str]:
    """Return the original names, by the new names, of values whose node kept its name and operator."""
    old_names, new_names = _made_names(before), _made_names(made)
    fixed = {value.name for value in (*made.input, *made.output)}
    olds = _by_name(before)
    pairs = (
        (was, now)
        for name, node in _by_name(made).items()
        if name in olds and _operator(olds[name]) == _operator(node)
        for was, now in zip(olds[name].output, node.output)
    )
    return {
        now: was
        for was, now in pairs
        if was and now and was not in new_names and now not in old_names and now not in fixed
    }


def _by_name(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    counts = Counter(node.name for node in graph.node)
    return {node.name: node for node in graph.node if node.name and counts[node.name] == 1}


def _made_names(graph: onnx.GraphProto) -> set[str]:
    """Return all names of values in a graph, at any depth."""
    names: set[str] = set()
    for scope in graphs(graph):
        names.update(value.name for value in (*scope.input, *scope.output, *scope.initializer))
        names.update(name for node in scope.node for name in (*node.input, *node.output))
    return names


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename values that are not inputs wherever they are produced, read or declared, at any depth."""
    for scope in graphs(graph) if names else ():
        for node in scope.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
        for value in (*scope.output, *scope.value_info):
            value.name = names.get(value.name, value.name)


# Inputs, outputs and initializers


def _ports(before: onnx.ModelProto, made: onnx.ModelProto) -> None:
    """Restore inputs and outputs. New ones, and those with another type, are kept for the engine to check."""
    graph = made.graph
    there = {tensor.name for tensor in graph.initializer}
    hidden = {tensor.name for tensor in before.graph.initializer} if before.ir_version <= 3 else set()
    gone = hidden - there
    inputs = [value for value in before.graph.input if value.name not in gone]
    assign(graph.input, _merged(inputs, graph.input, keep=True))
    assign(graph.output, _merged(before.graph.output, graph.output, keep=False))


def _merged(olds: Iterable[Any], news: Iterable[Any], keep: bool) -> list[Any]:
    by_name = {value.name: value for value in news}
    merged = []
    for old in olds:
        new = by_name.pop(old.name, None)
        if new is not None or keep:
            merged.append(old if new is None or _compatible(old.type, new.type) else new)
    return [*merged, *by_name.values()]


def _compatible(old: onnx.TypeProto, new: onnx.TypeProto) -> bool:
    """Return whether two types can describe the same value: a dim may be named in one and have a size in the other."""
    kind = old.WhichOneof("value")
    if kind != new.WhichOneof("value") or kind is None:
        return new.WhichOneof("value") is None
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return wire(old) == wire(new)
    one, other = getattr(old, kind), getattr(new, kind)
    if one.elem_type != other.elem_type:
        return False
    if not (one.HasField("shape") and other.HasField("shape")):
        return True
    dims, others = one.shape.dim, other.shape.dim
    sizes, other_sizes = ([dim.dim_value if dim.HasField("dim_value") else None for dim in d] for d in (dims, others))
    if len(sizes) != len(other_sizes):
        return False
    return all(None in pair or pair[0] == pair[1] for pair in zip(sizes, other_sizes, strict=True))


def _initializers(before: onnx.GraphProto, made: onnx.GraphProto) -> None:
    """Restore the order, encoding and names of initializers, and missing initializers that are still read."""
    _merge_tied(before, made)
    olds = {tensor.name: tensor for tensor in before.initializer}
    news = {tensor.name: tensor for tensor in made.initializer}
    for name in _missing(made) & olds.keys():
        news[name] = olds[name]
    for name, old in olds.items():
        if name in news and payload(old) == payload(news[name]):
            news[name] = old
    order = [*(name for name in olds if name in news), *(name for name in news if name not in olds)]
    assign(made.initializer, [news[name] for name in order])
    missing = _missing(made)
    assign(made.sparse_initializer, [one for one in before.sparse_initializer if one.values.name in missing])
    names = _made_names(made)
    assign(made.quantization_annotation, [one for one in before.quantization_annotation if one.tensor_name in names])


def _missing(graph: onnx.GraphProto) -> set[str]:
    """Return the names that the nodes of a graph read but neither the graph nor a subgraph produces."""
    names = read_names(graph) - {""}
    for scope in graphs(graph):
        names.difference_update(value.name for value in (*scope.input, *scope.initializer))
        names.difference_update(name for node in scope.node for name in node.output)
    return names


def _merge_tied(before: onnx.GraphProto, made: onnx.GraphProto) -> None:
    """Merge copies of a large weight that a tool wrote once per reader."""
    olds = {tensor.name for tensor in before.initializer}
    known: dict[Any, str] = {payload(t): t.name for t in reversed(before.initializer) if storage.is_external(t)}
    names: dict[str, str] = {}
    there = {tensor.name for tensor in made.initializer}
    outputs = {value.name for value in made.output}
    for tensor in made.initializer:
        if storage.is_external(tensor) and tensor.name not in olds | outputs:
            first = known.get(payload(tensor))
            if first is not None and first in there:
                names[tensor.name] = first
    if names:
        assign(made.initializer, [tensor for tensor in made.initializer if tensor.name not in names])
        _rename(made, names)


def _list_constants(model: onnx.ModelProto) -> None:
    """List new initializers as inputs if the IR version requires it."""
    if model.ir_version > _LAST_WITHOUT_DEFAULTS:
        return
    listed = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in listed:
            model.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )


# Functions and opsets


def _functions(before: onnx.ModelProto, made: onnx.ModelProto, versions: Mapping[str, int]) -> list[onnx.FunctionProto]:
    """Return the functions of the result, with dropped ones restored if they are called, or were never called."""
    news = {function_key(function): deepcopy(function) for function in made.functions}
    olds = {function_key(function): function for function in before.functions}
    was_called = calls(before.graph.node, olds)
    wanted = calls(made.graph.node, {**olds, **news}) | (olds.keys() - was_called)
    for key, function in news.items():
        if key in olds:
            _RestoredBody(olds[key], function, versions).restore()
            if _trimmed(function.input) == _trimmed(olds[key].input) and _bag(function.node) == _bag(olds[key].node):
                function.CopyFrom(olds[key])
    everything = {**{key: olds[key] for key in olds if key in wanted}, **news}
    order = [*(key for key in olds if key in everything), *(key for key in everything if key not in olds)]
    return [everything[key] for key in order]


def _imports(before: onnx.ModelProto, made: onnx.ModelProto, result: onnx.ModelProto) -> None:
    """Import the original domains at the versions of the tool, and other domains that nodes use."""
    versions, olds = _versions(made), _versions(before)
    used = {_domain(node.domain) for node in nodes(result)}
    for entry in result.opset_import:
        entry.version = versions.get(_domain(entry.domain), entry.version)
    for domain in sorted(used - olds.keys()):
        result.opset_import.add(domain=domain, version=versions.get(domain, 1))
    if versions.get("") != olds.get(""):
        result.ir_version = max(before.ir_version, _least_ir_version(versions.get("", 1)))


def _least_ir_version(opset: int) -> int:
    """Return the first IR version in which the default domain had this opset."""
    entry = onnx.helper.make_opsetid("", opset)
    return int(onnx.helper.find_min_ir_version_for([entry], ignore_unknown=True))
