"""Real rounding of 16-bit floats in ONNX Runtime. In a worker process.

On the CPU the runtime has few float16 kernels. It computes in float32 with casts around each node, and then drops
casts that follow one another, with the rounding that they stand for: a float16 detour in a float32 model leaves no
trace, and dropping an Identity between two float16 nodes changes the last bits. Two Identity nodes after each 16-bit
result, which have kernels, keep the casts apart (a single one would be run in float32 with its neighbours): every
value is rounded as the model says.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from surgery.operators.subgraphs import graphs

if TYPE_CHECKING:
    import onnx

NARROW = frozenset({10, 16})
"""float16 and bfloat16, by their number in `TensorProto.DataType`."""

_INT, _TENSOR = 2, 4
"""By their number in `AttributeProto.AttributeType`."""

_SUFFIX = "/before_rounding"

_STORED = "/as_stored"
FACTORS = (0.7, 0.9)
"""What a weight is multiplied by, and divided by again: no powers of two, so that both are rounded."""

_LEAST_WEIGHT = 16
"""Elements from which on a tensor counts as a weight: a smaller one may be a bound or a scale, and exact."""

_BROADCASTING = 7
"""The opset since which a number is multiplied with a tensor of any shape."""


def hold(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with a barrier after each 16-bit float; the same model when it has none."""
    import onnx.inliner
    import onnx.shape_inference

    if not _mentions_narrow(model):
        return model
    if model.functions:
        # The bodies of functions have no types of their own.
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
    """Round each 16-bit weight of the main graph once more, in place; None for a model that has none.

    What folds a constant into such a weight must round it too. That moves a result by more than the roundings
    after the weight do, for it is the same error at each place where the weight is used.
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
    """Return nodes that make the value `name` of what is stored under another name."""
    import onnx.helper

    tensor = onnx.helper.make_tensor("", data_type, [], [factor])
    number, product = f"{name}{_STORED}/factor", f"{name}{_STORED}/product"
    return [
        onnx.helper.make_node("Constant", [], [number], value=tensor),
        onnx.helper.make_node("Mul", [f"{name}{_STORED}", number], [product]),
        onnx.helper.make_node("Div", [product, number], [name]),
    ]


def _mentions_narrow(model: onnx.ModelProto) -> bool:
    """Whether a 16-bit float occurs anywhere: in an input, a tensor, the target of a Cast."""
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
