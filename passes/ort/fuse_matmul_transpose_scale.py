"""Transposes and scales around matrix products, fused into FusedMatMul."""

from __future__ import annotations

from surgery import Builder, Graph, Node, Parity, Refusal, Value, graph_pass

from ._factors import FUSED, PRODUCTS, Factor, alpha_of, factor_of, require_batches, require_rows, scale_in, step
from ._quantized import require_float


@graph_pass("fuse-matmul-transpose-scale", parity=Parity.CLOSE)
def fuse_matmul_transpose_scale(graph: Graph) -> None:
    """Turn a MatMul with transposed or scaled factors, or a scaled result, into com.microsoft::FusedMatMul.

    Right because FusedMatMul computes alpha · A' · B', where A' is A with its last two axes swapped (transA), with its
    first axis moved before the last one (transBatchA), or both, the latter first; likewise for B'. A scale is a Mul or
    Div by one constant number; scales are multiplied with each other, so the product is rounded once more or less.
    alpha is a float32, even for double factors. Other products may read the same Transpose or scale, because they can
    absorb it as well. An existing FusedMatMul absorbs adjacent nodes in the same way.

    These stay: a transposed constant, which fold-constants transposes once; products with a vector, for which the
    kernel of ONNX Runtime 1.32 ignores transA in one place and not in another; and the scale of a single row, because
    the kernel for one row has no alpha (measured with 12 heads of 1 by 64 by 512 and no optimizations of the runtime:
    155 us, MatMul and Mul 73 us; with optimizations ONNX Runtime fuses it itself); and products with a dequantized
    second factor, which ONNX Runtime computes in integers or from packed weights. Attention and its parts have their
    own operators, which must be fused first.

    Example:
        # target: ort-cpu
        g (float[2,N,4] q, float[2,M,4] k) => (float[2,N,M] y) <float scale = {0.5}> {
            t = Transpose<perm = [0, 2, 1]>(k)
            s = MatMul(q, t)
            y = Mul(s, scale)
        }
    """
    for node in graph.nodes(*PRODUCTS):
        if any(_may_go(node, place) for place in (0, 1)) or _scaled_result(node) is not None:
            with graph.site(node) as new:
                _fuse(node, new)


def _may_go(node: Node, place: int) -> bool:
    value = node.input(place)
    producer = None if value is None else value.producer
    return producer is not None and producer.op in ("Transpose", "Mul", "Div")


def _scaled_result(node: Node) -> Node | None:
    """Return the only reader of a product if it may scale it; otherwise None."""
    result = node.outputs[0]
    readers = result.consumers
    if result.is_output or result.reads != 1 or readers[0].op not in ("Mul", "Div"):
        return None
    return readers[0]


def _fuse(node: Node, new: Builder) -> None:
    result = node.outputs[0]
    new.require_operator(FUSED, node.required_input(0))
    refused: list[Refusal] = []
    factors = [_widest(factor_of(node, place), node, refused) for place in (0, 1)]
    end, scale = _end_of(node, refused)
    before = [factor_of(node, place) for place in (0, 1)]
    if factors == before and end == result:
        if refused:
            raise refused[0]
        return
    left, right = factors
    require_float(right.value)
    require_batches(left, right, new)
    total = scale * left.scale * right.scale
    alpha = alpha_of(total * float(node.attr("alpha", 1.0) if node.op == FUSED else 1.0), result)
    attributes = dict(zip(("transBatchA", "transA", "transBatchB", "transB"), (*_flags(left), *_flags(right))))
    given = {name: flag for name, flag in attributes.items() if flag} | ({"alpha": alpha} if alpha != 1.0 else {})
    new.replace(end, new.node(FUSED, left.value, right.value, attributes=given))


def _flags(factor: Factor) -> tuple[int, int]:
    return factor.flags or (0, 0)


def _widest(factor: Factor, node: Node, refused: list[Refusal]) -> Factor:
    """Return a factor without all nodes that can be absorbed, and record why others cannot."""
    taken: list[Node] = []
    while True:
        try:
            found = step(factor, node, taken)
        except Refusal as reason:
            refused.append(reason)
            return factor
        if found is None:
            return factor
        factor = found


def _end_of(node: Node, refused: list[Refusal]) -> tuple[Value, float]:
    """Return the scaled result of a product, and the total scale."""
    end, scale = node.outputs[0], 1.0
    reader = _scaled_result(node)
    while reader is not None and reader.scope is node.scope:
        try:
            found = scale_in(reader)
            if found is not None:
                require_rows(node)
        except Refusal as reason:
            refused.append(reason)
            break
        if found is None or found[0] != end:
            break
        end, scale = reader.outputs[0], scale * found[1]
        reader = _scaled_result(reader)
    return end, scale
