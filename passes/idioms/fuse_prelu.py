"""PRelu."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import BY_SIGN, require_plain_constants, require_type


@pattern_pass(
    "fuse-prelu",
    match=(
        """
        p = Relu(x)
        n = Neg(x)
        r = Relu(n)
        g = Neg(r)
        l = Mul(g, slope)
        y = Add(p, l)
        """,
        """
        p = Relu(x)
        n = Neg(x)
        r = Relu(n)
        l = Mul(r, slope)
        y = Sub(p, l)
        """,
        *BY_SIGN,
    ),
    parity=Parity.CLOSE,
)
def fuse_prelu(m: Match, new: Builder) -> Value:
    """Turn relu(x) - slope · relu(-x), or the choice between x and slope · x by the sign of x, into PRelu.

    Right because PRelu is defined as x for positive and slope · x for negative elements. The slope, constant
    or not, is broadcast to x and must not enlarge it.

    Example:
        g (float[N,4] x) => (float[N,4] y) <float[4] slope = {0.1, 0.2, 0.3, 0.4}> {
            p = Relu(x)
            n = Neg(x)
            r = Relu(n)
            l = Mul(r, slope)
            y = Sub(p, l)
        }
    """
    m.require(m.root.opset >= 7, "before opset 7 operands are broadcast differently")
    require_plain_constants(m, m.x)
    m.require(m.broadcasts_to(m.slope, m.x), "the slope may enlarge the result")
    require_type(m, "PRelu", m.x)
    return new.node("PRelu", m.x, m.slope)
