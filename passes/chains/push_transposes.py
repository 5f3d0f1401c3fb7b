"""Transposes around elementwise operators."""

from surgery import Graph, Node, Parity, graph_pass

from ._turned import push


@graph_pass("push-transposes", parity=Parity.CLOSE)
def push_transposes(graph: Graph) -> None:
    """Move Transposes out of regions of elementwise operators, Softmax and Concat if that leaves fewer of them.

    Right because such operators compute the same in any order of the axes; an axis that they name gets its new number.
    All operators that read each other's values are transposed together. A Transpose before them is removed, and so is
    one after them that undoes it; where other values enter or leave, a Transpose is inserted. This is done only if
    fewer nodes remain, so the pass terminates. Small constants are transposed directly. A kernel may compute the last
    elements of a buffer differently from those before, so the Log of elements in another order can differ in its last
    bit. Before opset 7 operands are broadcast differently, and before opset 13 Softmax joins axes; those nodes stay.

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
        push(graph, transpose, settled)
