"""Celu."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import is_close, number, require_before_28, require_operator


@pattern_pass(
    "fuse-celu",
    match="""
        d = Div(x, inner)
        e = Elu<alpha = 1.0>(d)
        y = Mul(e, outer)
    """,
    parity=Parity.CLOSE,
)
def fuse_celu(m: Match, new: Builder) -> Value:
    """Turn α · elu(x / α) into Celu.

    Right because Celu is defined as max(0, x) + min(0, α · (exp(x/α) - 1)) (opset 12), which equals this form for a
    positive α. α must be a constant scalar that does not enlarge x.

    Example:
        g (float[N,4] x) => (float[N,4] y) <float alpha = {2}> {
            d = Div(x, alpha)
            e = Elu(d)
            y = Mul(e, alpha)
        }
    """
    require_operator(m, "Celu", 12)
    require_before_28(m, "Celu")
    m.require(m.x.dtype is not None and m.x.dtype.name == "FLOAT", "Celu is computed in float only")
    alpha = number(m.inner, m.x)
    m.require(alpha > 0 and is_close(number(m.outer, m.x), alpha, m.x), "the two factors are not one positive number")
    return new.node("Celu", m.x, alpha=alpha)
