"""Cutting: recorded inner values of a model, and a separate model with a few of its nodes.

    values = record(skeleton, feed, ["/layer.3/Add_output_0"])
    small = cut(onnx.load_model_from_string(skeleton), values, ["/layer.3/Relu_output_0"])

Both know the values of the main graph only. A skeleton's weights stay where they are: what `cut` returns is a skeleton
like the one it was cut from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from surgery.errors import UsageError
from surgery.operators.dtypes import dtype_of
from surgery.operators.subgraphs import subgraphs
from surgery.proto.dataflow import Flow

if TYPE_CHECKING:
    import onnx

_NEWEST_TYPE = 26


def only(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """Copy a model with some values of its main graph as its only outputs.

    Their types are left open, which ONNX Runtime and the reference evaluator accept though the checker does not: both
    find them for themselves, and a declared one that is wrong would be refused. Raises `UsageError` for a name that
    the main graph does not have.
    """
    flow = Flow(model.graph)
    result = deepcopy(model)
    del result.graph.output[:]
    for name in dict.fromkeys(names):
        if name not in flow:
            raise UsageError(f"the main graph has no value '{name}'")
        result.graph.output.add().name = name
    return result


def cut(
    model: onnx.ModelProto, inputs: Mapping[str, Any], outputs: Sequence[str] | Mapping[str, Any]
) -> onnx.ModelProto:
    """Copy the nodes between some values of the main graph into a model of their own.

    `inputs` are the values that are given from outside from now on, each with an array (a list of arrays, for a
    sequence) or a `ValueInfoProto` to tell its type; constants may be among them. Above an output, all nodes down from
    these inputs are taken, and inputs of the model itself that are read without being in `inputs` stay inputs. What
    subgraphs capture counts as read. Only the initializers, functions and declared types that the nodes need come
    along; opsets and IR version stay. `outputs` may give arrays or types too; otherwise the declared type is taken,
    and left open when there is none. Raises `UsageError` for a name that the main graph does not have.
    """
    import onnx

    flow = Flow(model.graph)
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
    """Declare a value with the type of an array, a list of arrays or another declaration; None leaves it open.

    Without `shape` arrays of any shape have the type.
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
            item.elem_type = _number(value[0].dtype)
    else:
        tensor = result.type.tensor_type
        tensor.elem_type = _number(value.dtype)
        if shape:
            tensor.shape.SetInParent()
            for extent in value.shape:
                tensor.shape.dim.add().dim_value = extent
    return result


def _number(dtype: Any) -> int:
    """Return the number in `TensorProto.DataType` of a numpy dtype."""
    if dtype.kind in "US":
        return 8
    return next(number for number in range(1, _NEWEST_TYPE + 1) if dtype_of(number) == dtype)


FunctionKey = tuple[str, str, str]
"""What a call finds a function by: domain, name, overload."""


def function_key(function: onnx.FunctionProto) -> FunctionKey:
    """Return what a function is found by."""
    return function.domain, function.name, function.overload


def called(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> list[onnx.FunctionProto]:
    """List the model-local functions that nodes call, directly or through others, in the order of the file."""
    known = {function_key(function): function for function in model.functions}
    found = calls(nodes, known) if known else set()
    return [function for key, function in known.items() if key in found]


def calls(nodes: Iterable[onnx.NodeProto], known: Mapping[FunctionKey, onnx.FunctionProto]) -> set[FunctionKey]:
    """Find which functions nodes call, directly or through others."""
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
