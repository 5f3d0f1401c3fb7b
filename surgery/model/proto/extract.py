"""Extraction: models that output inner values of a model, and separate models with a part of its nodes.

    values = record(skeleton, feed, ["/layer.3/Add_output_0"])
    small = cut(onnx.load_model_from_string(skeleton), values, ["/layer.3/Relu_output_0"])

Both handle only values of the main graph. The weights of a skeleton stay in place: `cut` returns a skeleton that refers
to the same files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError
from surgery.base.operators.dtypes import type_of
from surgery.base.operators.subgraphs import subgraphs
from surgery.model.proto.dataflow import Flow

if TYPE_CHECKING:
    import onnx


def only(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """Copy a model with some values of its main graph as its only outputs, and the nodes upstream of these.

    Their types are not declared, which ONNX Runtime and the reference evaluator accept, although the checker does not:
    both infer them, and a wrong declaration would be refused. Raises `UsageError` for a name that is not in the main
    graph.
    """
    flow, wanted = Flow(model.graph), list(dict.fromkeys(names))
    unknown = next((name for name in wanted if name not in flow), None)
    if unknown is not None:
        raise UsageError(f"the main graph has no value '{unknown}'")
    result = deepcopy(model)
    needed = sorted(flow.above(wanted))
    if len(needed) < len(flow.nodes):
        del result.graph.node[:]
        result.graph.node.extend(flow.nodes[number] for number in needed)
    del result.graph.output[:]
    for name in wanted:
        result.graph.output.add().name = name
    return result


def cut(
    model: onnx.ModelProto,
    inputs: Mapping[str, Any],
    outputs: Sequence[str] | Mapping[str, Any],
    flow: Flow | None = None,
) -> onnx.ModelProto:
    """Copy the nodes between some values of the main graph into a separate model.

    `inputs` are the values that become inputs, each with an array (a list of arrays for a sequence) or a
    `ValueInfoProto` that determines its type; constants are allowed. All nodes upstream of the outputs are copied, up
    to these inputs; other inputs of the model that they read remain inputs. Values captured by subgraphs count as read.
    Only the needed initializers, functions and declared types are copied; opsets and IR version are kept. `outputs` may
    also have arrays or types; otherwise the declared type is used, if there is one. `flow` is that of the main graph,
    if it is known. Raises `UsageError` for a name that is not in the main graph.
    """
    import onnx

    flow = flow or Flow(model.graph)
    unknown = next((name for name in (*inputs, *outputs) if name not in flow), None)
    if unknown is not None:
        raise UsageError(f"the main graph has no value '{unknown}'")
    numbers = sorted(flow.above(outputs, stop=inputs))
    read = {name for number in numbers for name in flow.reads[number]} | set(outputs)
    made = {name for number in numbers for name in flow.makes(number)}
    result = onnx.ModelProto(ir_version=model.ir_version, producer_name=model.producer_name)
    result.opset_import.extend(model.opset_import)
    graph = result.graph
    graph.name = model.graph.name or "cut"
    graph.node.extend(flow.nodes[number] for number in numbers)
    constants = read - set(inputs)
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in constants)
    graph.sparse_initializer.extend(t for t in model.graph.sparse_initializer if t.values.name in constants)
    graph.input.extend(describe(name, inputs[name]) for name in inputs)
    graph.input.extend(value for value in model.graph.input if value.name in constants)
    declared = {value.name: value for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)}
    for name in outputs:
        given = outputs[name] if isinstance(outputs, Mapping) else declared.get(name)
        graph.output.append(describe(name, given))
    graph.value_info.extend(
        value for value in model.graph.value_info if value.name in made and value.name not in outputs
    )
    kept = read | made
    graph.quantization_annotation.extend(
        item for item in model.graph.quantization_annotation if item.tensor_name in kept
    )
    result.functions.extend(called(model, graph.node))
    return result


def describe(name: str, value: Any, *, shape: bool = True) -> onnx.ValueInfoProto:
    """Declare a value with the type of an array, a list of arrays or another declaration; None leaves it undeclared.

    Without `shape`, the shape is not declared.
    """
    import onnx

    result = onnx.ValueInfoProto(name=name)
    if value is None:
        return result
    if isinstance(value, onnx.ValueInfoProto):
        result.type.CopyFrom(value.type)
    elif isinstance(value, list):
        if value:
            item = result.type.sequence_type.elem_type.tensor_type
            item.elem_type = type_of(value[0].dtype)
    else:
        tensor = result.type.tensor_type
        tensor.elem_type = type_of(value.dtype)
        if shape:
            tensor.shape.SetInParent()
            for extent in value.shape:
                tensor.shape.dim.add().dim_value = extent
    return result


FunctionKey = tuple[str, str, str]
"""The key by which a call finds a function: domain, name, overload."""


def function_key(function: onnx.FunctionProto) -> FunctionKey:
    """Return the key of a function."""
    return function.domain, function.name, function.overload


def called(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> list[onnx.FunctionProto]:
    """List the model-local functions that nodes call, directly or indirectly, in file order."""
    known = {function_key(function): function for function in model.functions}
    found = calls(nodes, known) if known else set()
    return [function for key, function in known.items() if key in found]


def calls(nodes: Iterable[onnx.NodeProto], known: Mapping[FunctionKey, onnx.FunctionProto]) -> set[FunctionKey]:
    """Return the keys of the functions that nodes call, directly or indirectly."""
    found: set[FunctionKey] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        key = (node.domain, node.op_type, node.overload)
        if key in known and key not in found:
            found.add(key)
            pending.extend(known[key].node)
        pending.extend(inner for body in subgraphs(node) for inner in body.node)
    return found
