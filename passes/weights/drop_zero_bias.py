"""Biases that are all zero."""

import numpy as np

from surgery import Graph, Node, Parity, graph_pass


@graph_pass("drop-zero-bias", parity=Parity.CLOSE)
def drop_zero_bias(graph: Graph) -> None:
    """Remove the bias of a Conv, ConvTranspose or Gemm that is constant and zero.

    Right because the bias is optional and a missing one counts as zero; for Gemm since opset 11. Only the sign of a
    zero may differ.

    Example:
        g (float[N,1,4] x) => (float[N,2,4] y) <float[2,1,1] w = {1, 2}, float[2] b = {0, 0}> {
            y = Conv(x, w, b)
        }
    """
    for node in graph.nodes("Conv", "ConvTranspose", "Gemm"):
        bias = node.input(2)
        if bias is not None and bias.is_constant and bias.dtype is not None and bias.dtype.is_floating_point():
            with graph.site(node) as new:
                new.require(node.op != "Gemm" or node.opset >= 11, "before opset 11 a Gemm needs a bias")
                new.require(_is_zero(node), "the bias is not zero")
                new.set_input(node, 2, None)


def _is_zero(node: Node) -> bool:
    bias = node.required_input(2).constant
    return bias is not None and not np.any(bias)
