"""Elu."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import number, require_plain_constants, require_type

CHOICES = (
    "p = Greater|GreaterOrEqual(x, 0)\n y = Where(p, x, {0})",
    "p = Less|LessOrEqual(x, 0)\n y = Where(p, {0}, x)",
)


@pattern_pass(
    "fuse-elu",
    match=[
        f"e = Exp(x)\n o = Sub(e, 1)\n {scaled}\n {choice.format(result)}"
        for scaled, result in (("l = Mul(o, alpha)", "l"), ("", "o"))
        for choice in CHOICES
    ],
    parity=Parity.CLOSE,
)
def fuse_elu(m: Match, new: Builder) -> Value:
    """Turn the choice between x and α · (exp(x) - 1) by the sign of x into Elu.

    Right because this is the definition of Elu; the exponential of a large x is not chosen. α must be a constant scalar
    that does not enlarge x; without a factor, α is 1.

    Example:
        g (float[N,4] x) => (float[N,4] y) <float one = {1}, float zero = {0}> {
            e = Exp(x)
            o = Sub(e, one)
            p = Greater(x, zero)
            y = Where(p, x, o)
        }
    """
    require_plain_constants(m, m.x)
    require_type(m, "Elu", m.x)
    return new.node("Elu", m.x, alpha=number(m.alpha, m.x) if hasattr(m, "alpha") else None)
