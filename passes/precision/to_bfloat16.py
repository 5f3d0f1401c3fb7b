"""Conversion to bfloat16."""

from typing import Literal

from surgery import Graph, NodeSelector, Parity, graph_pass

from ._narrow import Narrowing, Wishes, operators_in_float32
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
    Operators support it since opset 13, Conv and others only since opset 22. ONNX Runtime on the CPU has kernels for
    few of them and inserts no Casts around the others, so with `runtime: cpu` little changes. `runtime: any` creates a
    model for other hardware, which ONNX Runtime on the CPU cannot run.

    A node stays in float32 if its schema or the runtime does not support bfloat16, or if it computes with integers
    (positions, lengths, masks), which bfloat16 represents exactly only up to 256.

    Nodes in bodies of If, Loop and Scan are converted too. Values that enter or leave a body take the narrower type if
    this changes no element; a sum over many iterations stays in float32. Calls of a function with the same types share
    a copy of it, which is converted like the model.

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
    ops = operators_in_float32(graph, ops_in_float32 or ())
    Narrowing(graph, Wishes(BFLOAT16, keep_io_types, nodes, ops, margin, runtime)).run()
