"""Composition of two protobuf models: the independent reference for a merge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from surgery.base.operators.subgraphs import graphs
from surgery.model.proto.extract import function_key
from surgery.model.proto.signature import signature
from surgery.verification.comparing.ports import names_of, rename_values, unused

if TYPE_CHECKING:
    import onnx


def obstacle(first: onnx.ModelProto, second: onnx.ModelProto, connect: Mapping[str, str], prefix: str) -> str:
    """Return why two models cannot be composed, with a remedy; empty if they can."""
    versions = {item.domain: item.version for item in first.opset_import}
    for item in second.opset_import:
        if versions.get(item.domain, item.version) != item.version:
            domain = item.domain or "ai.onnx"
            both = f"one imports {domain} {versions[item.domain]}, the other {item.version}"
            return f"{both}; convert the older one first, as 'surgery merge' does"
    taken = set(names_of(first.graph)) & {f"{prefix}{name}" for name in names_of(second.graph)}
    if taken:
        return f"both have a value '{min(taken)}'; give the other one a prefix"
    inputs = {port.name: port.type for port in signature(second).inputs}
    own = signature(first)
    known = {port.name: port.type for port in (*own.inputs, *own.outputs)}
    for name, value in connect.items():
        if name not in inputs:
            return f"the other model has no input '{name}'"
        if value in known and known[value] != inputs[name]:
            return f"input '{name}' is {inputs[name]}, and '{value}' is {known[value]}"
    return ""


def compose(
    first: onnx.ModelProto, second: onnx.ModelProto, connect: Mapping[str, str], prefix: str = ""
) -> onnx.ModelProto:
    """Append a second model to a first one; `connect` maps inputs of the second to values of the first.

    All names of the second model get the prefix; names of functions and dims only if both models have them. Its other
    inputs and all its outputs become inputs and outputs of the result; an input with a default keeps it as a constant.
    """
    import onnx

    result, other = deepcopy(first), deepcopy(second)
    _rename_functions(other, result, prefix)
    _rename_dims(other, result, prefix)
    rename_values(other.graph, {name: f"{prefix}{name}" for name in names_of(other.graph)})
    taken = {node.name for body in graphs(result.graph) for node in body.node}
    for node in (node for body in graphs(other.graph) for node in body.node):
        node.name = "" if f"{prefix}{node.name}" in taken else f"{prefix}{node.name}"
    graph, mine = result.graph, other.graph
    fed = {f"{prefix}{name}": value for name, value in connect.items()}
    links = [onnx.helper.make_node("Identity", [value], [name]) for name, value in fed.items()]
    graph.node.extend([*links, *mine.node])
    held = [tensor for tensor in mine.initializer if tensor.name not in fed]
    given = {tensor.name for tensor in held} | {tensor.values.name for tensor in mine.sparse_initializer}
    graph.initializer.extend(held)
    graph.sparse_initializer.extend(mine.sparse_initializer)
    graph.quantization_annotation.extend(mine.quantization_annotation)
    graph.input.extend(port for port in mine.input if port.name not in fed and port.name not in given)
    graph.output.extend(mine.output)
    domains = {item.domain for item in result.opset_import}
    result.opset_import.extend(item for item in other.opset_import if item.domain not in domains)
    known = {function_key(function) for function in result.functions}
    result.functions.extend(function for function in other.functions if function_key(function) not in known)
    result.ir_version = max(first.ir_version, second.ir_version)
    return result


def _rename_functions(model: onnx.ModelProto, other: onnx.ModelProto, prefix: str) -> None:
    """Rename functions whose name the other model uses for a function with another body."""
    known = {function_key(function): function for function in other.functions}
    clashing = {function_key(item) for item in model.functions if known.get(function_key(item), item) != item}
    taken = {name for _, name, _ in (*known, *map(function_key, model.functions))}
    names = {key: unused(f"{prefix}{key[1]}", taken) for key in sorted(clashing)}
    for function in model.functions:
        function.name = names.get(function_key(function), function.name)
    bodies: list[Any] = [model.graph, *model.functions]
    for node in (node for body in bodies for inner in graphs(body) for node in inner.node):
        node.op_type = names.get((node.domain, node.op_type, node.overload), node.op_type)


def _rename_dims(model: onnx.ModelProto, other: onnx.ModelProto, prefix: str) -> None:
    """Rename dims whose names the other model also declares, because they may be different dims."""
    taken = {dim.dim_param for dim in _dims(other) if dim.dim_param}
    names = {name: unused(f"{prefix}{name}", taken) for name in {dim.dim_param for dim in _dims(model)} & taken}
    for dim in _dims(model):
        if dim.dim_param in names:
            dim.dim_param = names[dim.dim_param]


def _dims(model: onnx.ModelProto) -> Iterable[onnx.TensorShapeProto.Dimension]:
    for graph in graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            yield from value.type.tensor_type.shape.dim
