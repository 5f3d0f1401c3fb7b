"""Transposed operands of matrix products."""

from surgery import Builder, Graph, Node, Parity, graph_pass


@graph_pass("fuse-transpose-gemm", parity=Parity.CLOSE)
def fuse_transpose_gemm(graph: Graph) -> None:
    """Merge a Transpose of a matrix into the Gemm or MatMul that reads it.

    Right because Gemm transposes its operands itself (transA, transB); a MatMul of two matrices is a Gemm without a
    bias, which is optional since opset 11. The Transpose must swap two axes and have no other consumers.

    Example:
        g (float[3,N] x, float[3,2] w) => (float[N,2] y) {
            t = Transpose<perm = [1, 0]>(x)
            y = MatMul(t, w)
        }
    """
    for node in graph.nodes("Gemm", "MatMul"):
        places = [place for place in (0, 1) if _is_transposed(node, place)]
        if places and (node.op == "Gemm" or _are_matrices(node)):
            with graph.site(node) as new:
                _fuse(node, places, new)


def _is_transposed(node: Node, place: int) -> bool:
    value = node.input(place)
    producer = None if value is None else value.producer
    if producer is None or producer.op != "Transpose":
        return False
    perm = producer.attr("perm")
    return list(perm) == [1, 0] if perm else node.op == "Gemm" or producer.outputs[0].rank == 2


def _are_matrices(node: Node) -> bool:
    return all(value is not None and value.rank == 2 for value in node.inputs)


def _fuse(node: Node, places: list[int], new: Builder) -> None:
    new.require(node.opset >= 11 or node.op == "Gemm", "before opset 11 a Gemm needs a bias")
    is_computed = new.target.computes("Gemm", node.outputs[0].dtype, node.opset)
    new.require(node.op == "Gemm" or is_computed, "Gemm is not computed in this type")
    operands = [node.required_input(0), node.required_input(1)]
    flips = [False, False]
    for place in places:
        transpose = operands[place].producer
        assert transpose is not None
        alone = all(reader == node for reader in operands[place].consumers) and not operands[place].is_output
        new.require(alone, "the transposed matrix is read by others")
        operands[place], flips[place] = transpose.required_input(0), True
    transposed = [bool(node.attr(name) if node.op == "Gemm" else 0) for name in ("transA", "transB")]
    attributes = dict(node.attributes) | {
        name: int(before != flip) or None for name, before, flip in zip(("transA", "transB"), transposed, flips)
    }
    new.replace(node.outputs[0], new.node("Gemm", *operands, *node.inputs[2:], attributes=attributes))
