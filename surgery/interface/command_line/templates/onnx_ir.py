"""The pass my-pass, over onnx-ir."""

import onnx_ir as ir
from surgery import Parity, graph_pass


# The name in recipes and on the command line, and the promised parity of the results:
# EXACT (the same bits), CLOSE (rounding only) or LOSSY. Each run verifies it. Here
# -(a - a) is -0, and a - a is 0. The annotation ir.Model selects the API of the pass.
@graph_pass("my-pass", parity=Parity.CLOSE)
def my_pass(model: ir.Model) -> None:
    """Turn -(a - b) into b - a.

    Valid because the difference of two floats is rounded the same in both directions.

    Example:
        g (float[n] a, float[n] b) => (float[n] y) {
            d = Sub(a, b)
            y = Neg(d)
        }
    """
    for neg in list(model.graph):
        difference = neg.inputs[0] if neg.op_type == "Neg" else None
        sub = difference.producer() if difference is not None else None
        if difference is None or sub is None or sub.op_type != "Sub":
            continue
        a, b = sub.inputs
        # Integers may wrap; nodes with unknown types are skipped.
        if a is None or a.dtype is None or not a.dtype.is_floating_point():
            continue
        swapped = ir.node("Sub", [b, a])
        ir.convenience.replace_nodes_and_values(
            model.graph,
            neg,
            [neg],
            [swapped],
            neg.outputs,
            swapped.outputs,
        )
        # Sub is removed if nothing reads its output any more.
        if not difference.uses() and not difference.is_graph_output():
            model.graph.remove(sub, safe=True)
