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

    Right because where c holds Not(c) does not, and the other way round. When something else reads the negation it
    has to stay, and nothing is saved. The sign of a zero may change in ONNX Runtime, whose Where loses it now and
    then.

    Example:
        g (bool[N] c, float[N] a, float[N] b) => (float[N] y) {
            n = Not(c)
            y = Where(n, a, b)
        }
    """
    return new.node("Where", m.c, m.b, m.a)
