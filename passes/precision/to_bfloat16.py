"""Conversion to bfloat16."""

from typing import Literal

from surgery import Graph, NodeSelector, Parity, graph_pass

from ._narrow import Narrowing, Wishes
from ._narrow_format import BFLOAT16


@graph_pass("to-bfloat16", parity=Parity.LOSSY, changes=("types",))
def to_bfloat16(
    graph: Graph,
    *,
    keep_io_types: bool = True,
    keep: NodeSelector | None = None,
    ops_in_float32: list[str] | None = None,
    margin: float = 2.0,
    runtime: Literal["cpu", "any"] = "cpu",
) -> None:
    """Compute in bfloat16, with Casts where float32 is left.

    bfloat16 has the range of float32 and 8 bits of precision, so weights take half the bytes and nothing overflows.
    Operators have it since opset 13, Conv and others only since opset 22. ONNX Runtime on the CPU has kernels for few
    of them and puts no Casts around the others, so with `runtime: cpu` little changes; a model for other hardware is
    made with `runtime: any`, and ONNX Runtime on the CPU cannot run that.

    A node stays in float32 where its schema or the runtime has no bfloat16, and where it computes with integers
    (positions, lengths, masks), of which bfloat16 holds those up to 256.

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
        g (float[N,64] x) => (float[N,64] y) <float[64] scale>
        {
            y = LayerNormalization(x, scale)
        }
    """
    nodes = frozenset(graph.select(keep) if keep is not None else ())
    ops = frozenset(ops_in_float32 or ())
    Narrowing(graph, Wishes(BFLOAT16, keep_io_types, nodes, ops, margin, runtime)).run()
