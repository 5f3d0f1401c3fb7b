"""LeakyRelu."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import BY_SIGN, number, require_plain_constants, require_type


@pattern_pass(
    "fuse-leaky-relu",
    match=(
        """
        l = Mul(x, slope)
        y = Max(x, l)
        """,
        *BY_SIGN,
    ),
    parity=Parity.CLOSE,
)
def fuse_leaky_relu(m: Match, new: Builder) -> Value:
    """Turn the larger of x and α·x, or the choice between them by the sign of x, into LeakyRelu.

    Right because LeakyRelu is defined as x for positive and α·x for negative elements; for 0 < α < 1 this is the larger
    of the two. α must be a constant scalar that does not enlarge x.

    Example:
        g (float[N,4] x) => (float[N,4] y) <float slope = {0.01}> {
            l = Mul(x, slope)
            y = Max(x, l)
        }
    """
    require_plain_constants(m, m.x)
    require_type(m, "LeakyRelu", m.x)
    slope = number(m.slope, m.x)
    m.require(m.root.op == "Where" or 0 < slope < 1, "the larger one is not x where x is positive")
    return new.node("LeakyRelu", m.x, alpha=slope)
