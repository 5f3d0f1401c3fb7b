"""The pass my-pass, over the protobuf message."""

import onnx
from surgery import Parity, graph_pass

FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)


# The name in recipes and on the command line, and the promised parity of the results:
# EXACT (the same bits), CLOSE (rounding only) or LOSSY. Each run verifies it. Here
# -(a - a) is -0, and a - a is 0. The annotation onnx.ModelProto selects the API of the
# pass.
@graph_pass("my-pass", parity=Parity.CLOSE)
def my_pass(model: onnx.ModelProto) -> None:
    """Turn -(a - b) into b - a.

    Valid because the difference of two floats is rounded the same in both directions.

    Example:
        g (float[n] a, float[n] b) => (float[n] y) {
            d = Sub(a, b)
            y = Neg(d)
        }
    """
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    declared = [*graph.input, *graph.value_info]
    types = {value.name: value.type.tensor_type.elem_type for value in declared}
    for neg in list(graph.node):
        sub = makers.get(neg.input[0]) if neg.op_type == "Neg" else None
        if sub is None or sub.op_type != "Sub":
            continue
        # Integers may wrap; nodes with unknown types are skipped.
        if types.get(sub.input[0]) not in FLOATS:
            continue
        neg.op_type = "Sub"
        neg.input[:] = reversed(sub.input)
        # Sub is removed if nothing reads its output any more.
        read = {name for node in graph.node for name in node.input}
        read.update(value.name for value in graph.output)
        if sub.output[0] not in read:
            graph.node.remove(sub)
