"""The pass my-pass, over onnx-graphsurgeon."""

import numpy as np
import onnx_graphsurgeon as gs  # type: ignore[import-untyped, unused-ignore]
from surgery import Parity, graph_pass

FLOATS = (np.float16, np.float32, np.float64)


# The name in recipes and on the command line, and the promised parity of the results:
# EXACT (the same bits), CLOSE (rounding only) or LOSSY. Each run verifies it. Here
# -(a - a) is -0, and a - a is 0. The annotation gs.Graph selects the API of the pass.
@graph_pass("my-pass", parity=Parity.CLOSE)
def my_pass(graph: gs.Graph) -> None:
    """Turn -(a - b) into b - a.

    Valid because the difference of two floats is rounded the same in both directions.

    Example:
        g (float[n] a, float[n] b) => (float[n] y) {
            d = Sub(a, b)
            y = Neg(d)
        }
    """
    for neg in graph.nodes:
        if neg.op != "Neg" or not neg.inputs[0].inputs:
            continue
        sub = neg.inputs[0].inputs[0]
        if sub.op != "Sub":
            continue
        a, b = sub.inputs
        # Integers may wrap; nodes with unknown types are skipped.
        if a.dtype not in FLOATS:
            continue
        neg.op, neg.inputs = "Sub", [b, a]
    # Sub is removed if nothing reads its output any more.
    graph.cleanup()
