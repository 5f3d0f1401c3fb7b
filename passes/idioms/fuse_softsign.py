"""Softsign."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import require_plain_constants, require_type


@pattern_pass(
    "fuse-softsign",
    match="""
        a = Abs(x)
        p = Add(a, 1)
        y = Div(x, p)
    """,
    parity=Parity.CLOSE,
)
def fuse_softsign(m: Match, new: Builder) -> Value:
    """Turn x / (1 + |x|) into Softsign.

    Right because this is the definition of Softsign. The one must not enlarge x.

    Example:
        g (float[N,4] x) => (float[N,4] y) <float one = {1}> {
            a = Abs(x)
            p = Add(a, one)
            y = Div(x, p)
        }
    """
    m.require(m.root.opset >= 7, "before opset 7 operands are broadcast differently")
    require_type(m, "Softsign", m.x)
    require_plain_constants(m, m.x)
    return new.node("Softsign", m.x)
