"""Conversion to float16."""

from typing import Literal

from surgery import Graph, NodeSelector, Parity, graph_pass

from ._narrow import Narrowing, Wishes, operators_in_float32
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

    A node stays in float32 if its schema or the runtime does not support float16, if the target has it in float32 only,
    if a sum that a kernel of the target rounds on the way to its result overflows, if a weight overflows or is lost in
    denormals, if a value exceeds 65,504 on calibration data, if the data are drawn and it does so for inputs of 100 or
    is lost for inputs of 0.001, as a power of them is, or if it computes with integers (positions, lengths,
    masks), which float16 represents exactly only up to 2,048. So do a Div, a Log, a Reciprocal and a Pow with a
    negative exponent whose divisor falls below the smallest normal float16 number, and what computes such a divisor:
    its small operands, those of a difference that float16 rounds away (1 minus a probability of 0.9999), squares of
    which a root is left, and bounds such as the 1e-12 of a Clip, a Max or an Add, which keep it from being 0.
    So do a Floor, a Mod, a Unique and others that jump where their operands are rounded, and what computes these, up to
    a layer with large weights.
    A mask that is added to the scores of a Softmax, as low as float32 allows, is raised to the range of float16, unless
    it covers a row of the calibration data completely. MultiHeadAttention and Attention of ONNX Runtime are converted
    then, too, where a choice makes the mask: the queries of covered rows become 0, so that all keys keep the same
    weight. Attention becomes MultiHeadAttention for this. An epsilon that is lost in the rounding of its sum is
    converted too, so that a norm in parts is converted as a whole. Where a part of one must stay in float32, all of it
    does: ONNX Runtime fuses a norm with Casts around it, but none with Casts inside.
    Operators that only move elements take the type of their neighbors, so that each value is cast at most once in each
    direction. A comparison with constants that float16 represents reads the value in float16.

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
        g (float[N,64] x) => (float[N,8] y) <float[64,8] w>
        {
            a = MatMul(x, w)
            y = Relu(a)
        }
    """
    nodes = frozenset(graph.select(keep) if keep is not None else ())
    ops = operators_in_float32(graph, ops_in_float32 or ())
    Narrowing(graph, Wishes(FLOAT16, keep_io_types, nodes, ops, margin, runtime)).run()
