"""Operators between DequantizeLinear and QuantizeLinear turned into operators on integers."""

from surgery import Graph, Node, NodeSelector, Parity, graph_pass

from ._integer_operators import RULES
from ._integer_products import Integers
from ._pairs import DEQUANTIZE
from ._selection import chosen


@graph_pass("qdq-to-qoperator", parity=Parity.LOSSY)
def qdq_to_qoperator(graph: Graph, *, nodes: NodeSelector | None = None, exclude: NodeSelector | None = None) -> None:
    """Turn operators between DequantizeLinear and QuantizeLinear into operators on integers (QDQ to QOperator).

    For runtimes that expect this form: a Conv becomes a QLinearConv, a MatMul a QLinearMatMul. If the result stays in
    float32, they become ConvInteger or MatMulInteger, whose sums are scaled afterwards, and so does a Gemm with a bias.
    A target with ONNX Runtime's operators also gets QGemm, QLinearAdd, QLinearMul, QLinearAveragePool,
    QLinearGlobalAveragePool, QLinearLeakyRelu, QLinearSigmoid, QLinearSoftmax, QLinearConcat and QLinearWhere.
    Operators that only move elements, Concat and Where move the integers if they keep their scale. A Relu or Clip is
    left out if the range of the integers has its effect. `decompose` does the reverse.

    Sums of products are exact in integers and scaled once, so a result near the middle of two integers may be rounded
    to the other one (ONNX Runtime 1.32: one of 100,000 elements of a Conv or a product, none of Add, Mul, Concat or
    Sigmoid); this is what ONNX Runtime itself does to QDQ models when it loads them. A float bias becomes int32 in
    units of the products.

    The sums must fit into int32: the constant weight, or 255 for each element of a computed one, bounds them; a dynamic
    dim that is summed over may have up to 33,000 elements. QLinearSoftmax is used only for integers of 1/256, because
    its kernel rounds one of 50 elements otherwise.

    Options:
        nodes: The nodes to turn, all by default.
        exclude: Nodes that stay.

    Example:
        g (uint8[N,4] x) => (uint8[N,2] y)
        <float s = {0.1}, uint8 z = {128}, int8[4,2] w = {1, -2, 3, -4, 5, -6, 7, -8}, float t = {0.02}> {
            a = DequantizeLinear(x, s, z)
            b = DequantizeLinear(w, t)
            c = MatMul(a, b)
            y = QuantizeLinear(c, s, z)
        }
    """
    integers = Integers()
    for node in chosen(graph, tuple(RULES), nodes, exclude):
        if not any(_is_dequantized(node, position) for position in range(len(node.inputs))):
            continue
        with graph.site(node) as new:
            RULES[node.op](node, integers, new)


def _is_dequantized(node: Node, position: int) -> bool:
    value = node.input(position)
    producer = None if value is None else value.producer
    return producer is not None and producer.op in DEQUANTIZE
