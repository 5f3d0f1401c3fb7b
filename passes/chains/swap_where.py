"""Where with a negated condition."""

from surgery import Builder, Match, Parity, Value, pattern_pass


@pattern_pass(
    "swap-where",
    match="""
        n = Not(c)
        y = Where(n, a, b)
    """,
    parity=Parity.CLOSE,
)
def swap_where(m: Match, new: Builder) -> Value:
    """Turn Where(Not(c), a, b) into Where(c, b, a).

    Right because Not(c) is true exactly where c is false. If the negation has other consumers, it must stay, and
    nothing is saved. The sign of a zero may change, because Where of ONNX Runtime sometimes loses it.

    Example:
        g (bool[N] c, float[N] a, float[N] b) => (float[N] y) {
            n = Not(c)
            y = Where(n, a, b)
        }
    """
    return new.node("Where", m.c, m.b, m.a)
