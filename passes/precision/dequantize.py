"""Quantized models converted back to float."""

from typing import Literal

from surgery import Graph, Node, NodeSelector, Parity, data_type, graph_pass

from ._float_operators import DYNAMIC, OPERATORS, convert, convert_dynamic, look_up
from ._floats import MOVES, Floats, parameters
from ._packed_floats import PACKED, convert_packed
from ._selection import selection


@graph_pass("dequantize", parity=Parity.LOSSY)
def dequantize(
    graph: Graph,
    *,
    nodes: NodeSelector | None = None,
    exclude: NodeSelector | None = None,
    saturation: Literal["range", "zero", "none"] = "range",
) -> None:
    """Turn quantized operators, weights and activations back into float.

    For hardware without integer kernels, or to requantize a model whose float version is lost. Weights get the values
    of their integers, not those before rounding. Activations are no longer rounded, so results differ by the rounding
    noise.

    A pair of QuantizeLinear and DequantizeLinear also keeps numbers within the range of its integers; quantizers omit a
    Relu if the zero point has the same effect. So a pair is replaced by a Clip to that range, unless the value already
    has these bounds.

    What is converted: DequantizeLinear of constants, pairs of QuantizeLinear and DequantizeLinear with the same
    parameters, also with operators such as Reshape or MaxPool in between; QLinearConv, QLinearMatMul and operators of
    that form of com.microsoft; MatMulInteger and ConvInteger of data that are quantized at run time, and
    DynamicQuantizeMatMul, MatMulIntegerToFloat and DynamicQuantizeLSTM; MatMulNBits and GatherBlockQuantized.

    Options:
        nodes: The nodes to convert, all by default.
        exclude: Nodes that stay.
        saturation: How the range of the integers is preserved. `range` clips at both ends, `zero` keeps a Relu if the
            smallest integer represents 0, `none` does not clip.

    Example:
        g (float[N,4] x) => (float[N,4] y) <float s = {0.5}, uint8 z = {0}> {
            q = QuantizeLinear(x, s, z)
            y = DequantizeLinear(q, s, z)
        }
    """
    floats = Floats(saturation)
    planned = filter(selection(graph, nodes, exclude), graph.nodes())
    # Nodes after moved results of operators come last, so that the numbers of sites depend on nothing else.
    for node in sorted((node for node in planned if _is_quantized(node)), key=_is_late):
        if node.is_removed:
            continue
        with graph.site(node) as new:
            if node.op in OPERATORS:
                convert(node, floats, new)
            elif node.op in DYNAMIC:
                convert_dynamic(node, new)
            elif node.op in PACKED:
                convert_packed(node, new)
            elif node.op == "Gather":
                look_up(node, new)
            else:
                made = floats.known(node, node.required_input(0), parameters(node), new)
                new.require(made is not None, "the integers are not made by a QuantizeLinear with these parameters")
                if made is not None:
                    new.replace(node.outputs[0], made)


def _is_quantized(node: Node) -> bool:
    if node.op == "Gather":
        table = node.required_input(0)
        readers = node.outputs[0].consumers
        integers = table.is_constant and table.dtype in (data_type("int8"), data_type("uint8"))
        return integers and bool(readers) and all(reader.op == "Cast" for reader in readers)
    return node.op in OPERATORS or node.op in DYNAMIC or node.op in PACKED or node.op == "DequantizeLinear"


def _is_late(node: Node) -> bool:
    """Return whether a DequantizeLinear reads a value that another site turns into the result of a QuantizeLinear."""
    if node.op != "DequantizeLinear":
        return False
    producer = node.required_input(0).producer
    while producer is not None and producer.op in MOVES:
        producer = producer.required_input(0).producer
    return producer is not None and producer.op in OPERATORS
