"""Gemm + Add as one Gemm."""

from surgery import Builder, Match, Parity, Value, pattern_pass


@pattern_pass(
    "fuse-gemm-add",
    match="""
        t = Gemm(a, b)
        y = Add(t, bias)
    """,
    parity=Parity.CLOSE,
)
def fuse_gemm_add(m: Match, new: Builder) -> Value:
    """Let a Gemm without a bias add what is added to its result, a constant or not.

    Right because Gemm computes alpha·A·B + beta·C with C broadcast to the product in one direction; beta becomes 1,
    alpha stays. So what is added must not enlarge the product.

    Example:
        g (float[N,3] x, float[3,2] w, float[N,2] z) => (float[N,2] y) {
            t = Gemm(x, w)
            y = Add(t, z)
        }
    """
    m.require(m.broadcasts_to(m.bias, m.t), "the bias may enlarge the result")
    attributes = {name: value for name, value in m.node("t").ir.attributes.items() if name != "beta"}
    return new.node("Gemm", m.a, m.b, m.bias, attributes=attributes)
