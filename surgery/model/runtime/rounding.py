"""Actual rounding of 16-bit floats in ONNX Runtime; in a worker process.

On the CPU, the runtime has few float16 kernels. It computes in float32 with casts around each node, and then removes
consecutive casts together with their rounding: a float16 detour in a float32 model has no effect, and removing an
Identity between two float16 nodes changes the last bits. Two Identity nodes after each 16-bit result, which have
kernels, separate the casts (a single one would run in float32 with its neighbors), so that every value is rounded as
the model specifies.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from surgery.base.operators.subgraphs import graphs

if TYPE_CHECKING:
    import onnx

NARROW = frozenset({10, 16})
"""float16 and bfloat16, by number in `TensorProto.DataType`."""

_INT, _TENSOR = 2, 4
"""By number in `AttributeProto.AttributeType`."""

_SUFFIX = "/before_rounding"

_STORED = "/as_stored"
FACTORS = (0.7, 0.9)
"""Factors by which a weight is multiplied and divided again: not powers of two, so that both operations round."""

_LEAST_WEIGHT = 16
"""Minimum number of elements of a weight: a smaller tensor may be a bound or a scale, and exact."""

_BROADCASTING = 7
"""The first opset in which a scalar is broadcast to a tensor of any shape."""


def hold(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with a barrier after each 16-bit float; the same model if it has none."""
    import onnx.inliner
    import onnx.shape_inference

    if not _mentions_narrow(model):
        return model
    if model.functions:
        # Function bodies have no types.
        model = onnx.inliner.inline_local_functions(model)
    typed = onnx.shape_inference.infer_shapes(model)
    narrow = {
        value.name
        for graph in graphs(typed.graph)
        for value in (*graph.value_info, *graph.output)
        if value.type.tensor_type.elem_type in NARROW
    }
    for graph in graphs(model.graph):
        _add_barriers(graph, narrow)
    return model


def _add_barriers(graph: onnx.GraphProto, narrow: set[str]) -> None:
    import onnx

    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        barriers = []
        if node.op_type not in ("Identity", "Constant"):
            for position, name in enumerate(node.output):
                if name in narrow:
                    first, second = f"{name}{_SUFFIX}", f"{name}{_SUFFIX}/2"
                    node.output[position] = first
                    barriers.append(onnx.NodeProto(op_type="Identity", input=[first], output=[second]))
                    barriers.append(onnx.NodeProto(op_type="Identity", input=[second], output=[name]))
        graph.node.append(node)
        graph.node.extend(barriers)


def reround(model: onnx.ModelProto, factor: float) -> onnx.ModelProto | None:
    """Round each 16-bit weight of the main graph once more, in place; return None for a model without such weights.

    Folding a constant into such a weight must also round it. This changes a result more than the roundings downstream
    of the weight, because the same error occurs wherever the weight is used.
    """
    import onnx.helper

    opsets = {entry.domain: entry.version for entry in model.opset_import}
    if opsets.get("", opsets.get("ai.onnx", 0)) < _BROADCASTING:
        return None
    graph = model.graph
    fixed = {value.name for value in (*graph.input, *graph.output)}
    weights = [tensor for tensor in graph.initializer if _is_weight(tensor) and tensor.name not in fixed]
    nodes: list[onnx.NodeProto] = []
    for tensor in weights:
        nodes += _rounded_again(tensor.name, tensor.data_type, factor)
        tensor.name += _STORED
    for node in graph.node:
        nodes.append(node)
        held = next((a.t for a in node.attribute if node.op_type == "Constant" and a.name == "value"), None)
        if held is not None and _is_weight(held) and node.output[0] not in fixed:
            nodes += _rounded_again(node.output[0], held.data_type, factor)
            node.output[0] += _STORED
    if len(nodes) == len(graph.node):
        return None
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    return model


def _is_weight(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type in NARROW and math.prod(tensor.dims) >= _LEAST_WEIGHT


def _rounded_again(name: str, data_type: int, factor: float) -> list[onnx.NodeProto]:
    """Return nodes that compute the value `name` from the tensor stored under another name."""
    import onnx.helper

    tensor = onnx.helper.make_tensor("", data_type, [], [factor])
    number, product = f"{name}{_STORED}/factor", f"{name}{_STORED}/product"
    return [
        onnx.helper.make_node("Constant", [], [number], value=tensor),
        onnx.helper.make_node("Mul", [f"{name}{_STORED}", number], [product]),
        onnx.helper.make_node("Div", [product, number], [name]),
    ]


def _mentions_narrow(model: onnx.ModelProto) -> bool:
    """Return whether a 16-bit float occurs anywhere: in an input, a tensor, or the target of a Cast."""
    bodies: list[Any] = [*graphs(model.graph), *model.functions]
    for body in bodies:
        for value in (*getattr(body, "input", ()), *getattr(body, "initializer", ())):
            if _is_narrow(value):
                return True
        for node in body.node:
            for attribute in node.attribute:
                kind = attribute.type
                if (kind == _INT and attribute.i in NARROW) or (kind == _TENSOR and attribute.t.data_type in NARROW):
                    return True
    return False


def _is_narrow(value: Any) -> bool:
    kind = getattr(value, "data_type", None)
    if kind is None and hasattr(value, "type"):
        kind = value.type.tensor_type.elem_type
    return kind in NARROW
