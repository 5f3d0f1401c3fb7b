"""A linear layer between two Reshapes."""

from surgery import RESHAPES, Builder, Graph, Node, Parity, Value, graph_pass

from ._rows import dims_of


@graph_pass("drop-reshapes-around-matmul", parity=Parity.CLOSE)
def drop_reshapes_around_matmul(graph: Graph) -> None:
    """Turn Reshape, MatMul or Gemm, Reshape into MatMul, or MatMul and Add.

    Right because MatMul by a matrix treats the rows of its left operand independently, however many axes index them:
    the first Reshape only flattens [..., k] to a matrix, and the second restores the axes. A Gemm must be A·B + C
    without scaling or transposition, with a vector C. It becomes two nodes, so the first Reshape must have no other
    consumers. For whole networks, the opposite is better: see flatten-batch.

    Example:
        g (float[N,5,4] x) => (float[N,5,2] y)
        <float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[2] b = {1, 2},
         int64[2] rows = {-1, 4}, int64[3] back = {-1, 5, 2}> {
            a = Reshape(x, rows)
            p = Gemm(a, w, b)
            y = Reshape(p, back)
        }
    """
    for node in graph.nodes("Gemm", "MatMul"):
        back = _only_reader(node.outputs[0])
        front = node.required_input(0).producer
        if back is None or front is None or back.op not in RESHAPES or front.op not in RESHAPES:
            continue
        with graph.site(back) as new:
            _require_rows(front, node, back, new)
            _lift(front, node, back, new)


def _only_reader(value: Value) -> Node | None:
    readers = value.consumers
    return readers[0] if len(readers) == 1 and not value.is_output else None


def _require_rows(front: Node, node: Node, back: Node, new: Builder) -> None:
    """Refuse unless the rows of a stack pass through the product and return to their places."""
    stack, result = dims_of(front.required_input(0)), dims_of(back.outputs[0])
    matrix, product = dims_of(front.outputs[0]), dims_of(node.outputs[0])
    if stack is None or result is None or matrix is None or product is None:
        new.require(False, "the shapes around the product are not known")
        return
    new.require(front.scope is node.scope is back.scope, "the Reshapes are in another graph")
    new.require(len(matrix) == len(product) == 2 and matrix[-1] == stack[-1], "the Reshape before it mixes rows")
    new.require(
        product[-1] == result[-1] and stack[:-1] == result[:-1], "the Reshape after it changes the axes of the rows"
    )


def _lift(front: Node, node: Node, back: Node, new: Builder) -> None:
    addend = node.input(2)
    if node.op == "Gemm":
        plain = not node.attr("transA") and not node.attr("transB") and node.attr("alpha") == 1.0
        new.require(plain and (addend is None or node.attr("beta") == 1.0), "the Gemm scales or transposes")
    product = new.node("MatMul", front.required_input(0), node.required_input(1))
    if addend is not None:
        shape = addend.shape
        new.require(shape is not None and len(shape) < 3 and all(dim == 1 for dim in shape[:-1]), "C is not a vector")
        matrix = front.outputs[0]
        new.require(matrix.reads == 1 and not matrix.is_output, "the result of the first Reshape is read by others")
        product = new.node("Add", product, addend)
    new.replace(back.outputs[0], product)
