"""Transposes around operators that compute the same in any order of the axes."""

from surgery import Graph, Node, Parity, graph_pass

from ._turned import push


@graph_pass("push-transposes", parity=Parity.CLOSE)
def push_transposes(graph: Graph, *, convolve: bool = False) -> None:
    """Move Transposes out of regions of operators that can work in another layout, if that leaves fewer of them.

    Right because such operators compute the same in any order of the axes: elementwise operators, operators along an
    axis that they name (Concat, Split, Gather, Softmax, TopK), reductions, and those with a number for each axis (Pad,
    Slice, Tile, Resize), if the numbers are constant. An axis gets its new number, and numbers for each axis their new
    order. QuantizeLinear and DequantizeLinear are among them, with a scale for each channel, too. A product with a
    constant matrix over the last axis stays one if that axis stays the last; with `convolve`, it becomes a Conv with
    1x1 kernels if the channels become the second axis.

    All operators that read each other's values are transposed together. A Transpose before them is removed, and so is
    one after them that undoes it; where other values enter or leave, a Transpose is inserted. This is done only if
    fewer nodes remain, so the pass terminates. Small constants are transposed directly. A kernel may compute the last
    elements of a buffer differently from those before, and add up in another order, so the last bits can differ. Before
    opset 7 operands are broadcast differently, and before opset 13 Softmax joins axes; those nodes stay.

    Options:
        convolve: Turn products over the channels into Convs, for hardware that is made for these.

    Example:
        g (float[N,3,4,5] x) => (float[N,3,4,5] y) {
            a = Transpose<perm = [0, 2, 3, 1]>(x)
            b = Sigmoid(a)
            c = Mul(a, b)
            d = Transpose<perm = [0, 3, 1, 2]>(c)
            y = Exp(d)
        }
    """
    settled: set[Node] = set()
    for transpose in graph.nodes("Transpose"):
        push(graph, transpose, settled, convolve=convolve)
