"""The body of a model-local function as a separate model with known types, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from surgery.model.graph.copy import Copier
from surgery.model.graph.values import Node, Refusal, Value
from surgery.model.shapes.facts import declarable

if TYPE_CHECKING:
    from surgery.model.graph.state import GraphState


def body_model(graph: GraphState, calls: Sequence[Node]) -> ir.Model:
    """Return a model whose graph is a copy of the body of the function that the nodes call.

    Its inputs have the types of the operands, which must be the same in all calls, and the attributes of the first call
    replace the parameters. A dim that differs between calls is left unknown. Raises `Refusal` if an operand is omitted,
    or if its type is unknown or differs between calls.
    """
    function = graph.ir.functions[calls[0].identifier]
    copier = Copier({}, {**function.attributes, **calls[0].attributes})
    inputs = []
    for index, formal in enumerate(function.inputs):
        operands = [call.input(index) for call in calls]
        copy = copier.made(formal)
        _declare(copy, [value for value in operands if value is not None], len(calls))
        inputs.append(copy)
    nodes = [copier.node(node, declared=False) for node in function]
    outputs = [value for value in map(copier.read, function.outputs) if value is not None]
    for index, value in enumerate(outputs):
        if not value.is_graph_input() and value not in inputs:
            _declare(value, [call.outputs[index] for call in calls if index < len(call.outputs)], 1)
    body = ir.Graph(inputs, outputs, nodes=nodes, opset_imports=dict(function.opset_imports), name=function.name)
    others = [each for each in graph.ir.functions.values() if each is not function]
    return ir.Model(body, ir_version=graph.ir.ir_version, functions=others)


def _declare(value: ir.Value, actual: Sequence[Value], least: int) -> None:
    """Declare the type and the dims of a value that all actual values have in common."""
    kinds = [each.type for each in actual]
    if len(kinds) < least or any(kind is None or kind != kinds[0] for kind in kinds):
        raise Refusal("the types of the operands are unknown, or differ between calls")
    shapes = [each.shape for each in actual]
    value.type, value.shape = kinds[0] if kinds else None, None
    first = shapes[0] if shapes else None
    if first is not None and all(shape is not None and len(shape) == len(first) for shape in shapes):
        columns = zip(*(shape for shape in shapes if shape is not None))
        common = [dims[0] if all(dim == dims[0] for dim in dims) else None for dims in columns]
        value.shape = ir.Shape(declarable(common))


def function_of_model(model: ir.Model, domain: str, name: str) -> ir.Function:
    """Return a function whose body is a copy of the graph of a model; its initializers become Constant nodes."""
    copier, nodes = Copier({}), []
    inputs = [copier.made(value, declared=False) for value in model.graph.inputs]
    for value in model.graph.initializers.values():
        held = ir.Attr("value", ir.AttributeType.TENSOR, value.const_value)
        nodes.append(ir.Node("", "Constant", [], [held], outputs=[copier.made(value, declared=False)]))
    nodes += [copier.node(node, declared=False) for node in model.graph]
    outputs = [value for value in map(copier.read, model.graph.outputs) if value is not None]
    body = ir.Graph(inputs, outputs, nodes=nodes, opset_imports=dict(model.graph.opset_imports))
    return ir.Function(domain, name, "", graph=body, attributes=[])
