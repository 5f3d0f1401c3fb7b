"""Division, written as a product with a reciprocal."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import require_operator, require_plain_constants


@pattern_pass(
    "fuse-reciprocal-mul",
    match=(
        """
        r = Reciprocal(b)
        y = Mul(a, r)
        """,
        """
        r = Div(1, b)
        y = Mul(a, r)
        """,
    ),
    parity=Parity.CLOSE,
)
def fuse_reciprocal_mul(m: Match, new: Builder) -> Value:
    """Turn a · (1 / b) into a / b.

    Right because the quotient equals the product, rounded once instead of twice. Integers are not rewritten, because
    their reciprocal is rounded to 0 or 1. Runtimes match the division when they fuse a normalization.

    Example:
        g (float[N,4] a, float[N,1] b) => (float[N,4] y) {
            r = Reciprocal(b)
            y = Mul(a, r)
        }
    """
    require_operator(m, "Div", 7)
    require_plain_constants(m, m.b)
    m.require(m.y.dtype is not None and m.y.dtype.is_floating_point(), "integers are not divided exactly")
    return new.node("Div", m.a, m.b)
