"""Selu."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import number


@pattern_pass(
    "fuse-selu",
    match="""
        e = Elu<alpha = alpha>(x)
        y = Mul(e, gamma)
    """,
    parity=Parity.CLOSE,
)
def fuse_selu(m: Match, new: Builder) -> Value:
    """Turn γ · elu(x) into Selu.

    Right because Selu is defined as γ · x for positive elements and γ · (α · exp(x) - α) for others. γ must be
    one positive constant number that leaves the shape of x, as runtimes require.

    Example:
        g (float[N,4] x) => (float[N,4] y) <float gamma = {1.0507}> {
            e = Elu<alpha = 1.67326>(x)
            y = Mul(e, gamma)
        }
    """
    gamma = number(m.gamma, m.x)
    m.require(gamma > 0, "gamma is not positive")
    return new.node("Selu", m.x, alpha=m.alpha, gamma=gamma)
