"""Conversion to float16."""

from typing import Literal

from surgery import Graph, NodeSelector, Parity, graph_pass

from ._narrow import Narrowing, Wishes
from ._narrow_format import FLOAT16


@graph_pass("to-float16", parity=Parity.LOSSY, changes=("types",))
def to_float16(
    graph: Graph,
    *,
    keep_io_types: bool = True,
    keep: NodeSelector | None = None,
    ops_in_float32: list[str] | None = None,
    margin: float = 2.0,
    runtime: Literal["cpu", "any"] = "cpu",
) -> None:
    """Compute in float16, with Casts where float32 is left.

    Weights take half the bytes, and hardware with float16 units computes faster. ONNX Runtime on the CPU casts to
    float32 for most operators, so there it saves space only.

    A node stays in float32 where its schema or the runtime has no float16, where a weight overflows or gets lost in
    denormals, where calibration data drives a value beyond 65,504, or a divisor below the smallest number of float16,
    and where it computes with integers (positions, lengths, masks), of which float16 holds those up to 2,048.
    Operators that only move elements take the type of their neighbors, so that each value is cast once in each
    direction at most.

    Nodes in bodies of If, Loop and Scan are converted too. What goes into a body and comes out takes the narrower type
    where no element changes by that, and a sum over many iterations stays in float32. Calls of a function with the same
    types share a copy of it that is converted as the model is.

    Options:
        keep_io_types: whether inputs and outputs of the model stay float32
        keep: nodes that stay in float32
        ops_in_float32: operators that stay in float32
        margin: how many times larger than on the calibration data a value may be; 0 does not measure
        runtime: whether ONNX Runtime on the CPU must have a kernel, or the schema alone decides

    Example:
        g (float[N,64] x) => (float[N,8] y) <float[64,8] w>
        {
            a = MatMul(x, w)
            y = Relu(a)
        }
    """
    nodes = frozenset(graph.select(keep) if keep is not None else ())
    ops = frozenset(ops_in_float32 or ())
    Narrowing(graph, Wishes(FLOAT16, keep_io_types, nodes, ops, margin, runtime)).run()
