"""Transposes around elementwise operators."""

from surgery import Graph, Node, Parity, graph_pass

from ._turned import push


@graph_pass("push-transposes", parity=Parity.CLOSE)
def push_transposes(graph: Graph) -> None:
    """Move Transposes out of regions of elementwise operators, Softmax and Concat if that leaves fewer of them.

    Right because such an operator does with each element what it does in whichever order the axes stand; an axis that
    it names stands elsewhere then. All operators that read one another's values are turned together: a Transpose in
    front of them goes, one after them that undoes it goes too, and where something else comes in or goes out a
    Transpose has to be put. That is done only when fewer nodes are left, so that it ends. Small constants are turned
    themselves. A kernel may compute the last elements of a buffer in another way than those before them, so that the
    Log of elements in another order can differ in its last bit. Before opset 7 operands are broadcast in another way,
    and before 13 Softmax joins axes; those stay.

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
