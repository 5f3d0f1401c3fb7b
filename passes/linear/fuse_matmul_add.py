"""MatMul + Add as Gemm."""

from surgery import Builder, Match, Parity, Value, pattern_pass


@pattern_pass(
    "fuse-matmul-add",
    match="""
        t = MatMul(a, b)
        y = Add(t, bias)
    """,
    parity=Parity.CLOSE,
)
def fuse_matmul_add(m: Match, new: Builder) -> Value:
    """Turn MatMul + Add into Gemm.

    Right because Gemm computes A·B + C with alpha = beta = 1, and C is broadcast to A·B in one direction only.
    So both factors must be matrices, and the bias, constant or not, must not enlarge the product. The sum may be
    rounded differently, once per element. Before opset 7, Add and Gemm broadcast by attributes; these stay.

    Example:
        g (float[N,3] x) => (float[N,2] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}, float[2] bias = {1, 2}> {
            t = MatMul(x, w)
            y = Add(t, bias)
        }
    """
    m.require(m.root.opset >= 7, "before opset 7 operands are broadcast differently")
    m.require(m.a.rank == 2 and m.b.rank == 2, "MatMul is not two-dimensional")
    m.require(m.broadcasts_to(m.bias, m.t), "the bias may enlarge the result")
    m.require(new.target.computes("Gemm", m.t.dtype, m.root.opset), "Gemm is not computed in this type")
    return new.node("Gemm", m.a, m.b, m.bias)
