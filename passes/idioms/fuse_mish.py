"""Mish."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import require_operator, require_plain_constants


@pattern_pass(
    "fuse-mish",
    match=(
        """
        s = Softplus(x)
        t = Tanh(s)
        y = Mul(x, t)
        """,
        """
        e = Exp(x)
        p = Add(e, 1)
        s = Log(p)
        t = Tanh(s)
        y = Mul(x, t)
        """,
    ),
    parity=Parity.CLOSE,
)
def fuse_mish(m: Match, new: Builder) -> Value:
    """Turn x · tanh(softplus(x)) into Mish.

    Right because this is the definition of Mish (opset 18). The softplus may be written out, as
    log(1 + exp(x)): where the exponential overflows the tanh is 1.

    Example:
        g (float[N,4] x) => (float[N,4] y) {
            s = Softplus(x)
            t = Tanh(s)
            y = Mul(x, t)
        }
    """
    require_operator(m, "Mish", 18)
    require_plain_constants(m, m.x)
    return new.node("Mish", m.x)
