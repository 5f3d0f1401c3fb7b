"""Real rounding of 16-bit floats in ONNX Runtime. In a worker process.

On the CPU the runtime has few float16 kernels. It computes in float32 with casts around each node, and then drops
casts that follow one another, with the rounding that they stand for: a float16 detour in a float32 model leaves no
trace, and dropping an Identity between two float16 nodes changes the last bits. Two Identity nodes behind each 16-bit
result, which have kernels, keep the casts apart (a single one would be run in float32 with its neighbours): every
value is rounded as the model says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from surgery.verify.inputs.shapes import graphs

if TYPE_CHECKING:
    import onnx

NARROW = frozenset({10, 16})
"""float16 and bfloat16, by their number in `TensorProto.DataType`."""

_INT, _TENSOR = 2, 4
"""By their number in `AttributeProto.AttributeType`."""

_SUFFIX = "/before_rounding"


def hold(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with a barrier behind each 16-bit float; the same model when it has none."""
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
