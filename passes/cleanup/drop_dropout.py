"""Dropout nodes that drop nothing."""

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass


@graph_pass("drop-dropout", parity=Parity.EXACT)
def drop_dropout(graph: Graph) -> None:
    """Remove Dropout nodes that copy their input: those in inference mode, and those of ratio 0 in training mode.

    Right because Dropout then copies its input, without dropping or scaling. The mode is the attribute `is_test` before
    opset 7, always inference from 7 to 11, and the input `training_mode` since 12, which must be absent or a constant
    false. If the mask is read, it becomes a tensor of trues of the input's shape. This holds since opset 12; before,
    the mask in inference is unspecified (ONNX Runtime: zeros).

    Example:
        g (float[N,3] x) => (float[N,3] y) <float ratio = {0.1}> {
            a = Dropout(x, ratio)
            y = Relu(a)
        }
    """
    for node in graph.nodes("Dropout"):
        with graph.site(node) as new:
            _require_copy(node, new)
            data, mask = node.required_input(0), node.outputs[1] if len(node.outputs) > 1 else None
            if mask is not None and mask.is_used:
                new.require(node.opset >= 12, "the mask is read, and its content is unspecified before opset 12")
                new.replace(mask, _trues(data, new))
            new.replace(node.outputs[0], data)


def _require_copy(node: Node, new: Builder) -> None:
    """Refuse unless the output is a copy of the input in every run."""
    if node.opset < 7:
        new.require(node.attr("is_test") or node.attr("ratio") == 0, "the Dropout is in training mode")
    elif node.opset >= 12:
        mode, ratio = node.input(2), node.input(1)
        if mode is None or (ratio is not None and ratio.scalar == 0):
            return
        new.require(mode.is_constant, "training_mode is not constant")
        new.require(not mode.scalar, "the Dropout is in training mode")


def _trues(data: Value, new: Builder) -> Value:
    shape = data.static_shape
    extents = new.node("Shape", data) if shape is None else new.constant(np.array(shape, np.int64), "mask_shape")
    return new.node("ConstantOfShape", extents, value=np.array([True]))
