"""Comparisons that are composed of others."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import require_operator

OPPOSITE = {"Less": "GreaterOrEqual", "Greater": "LessOrEqual", "LessOrEqual": "Greater", "GreaterOrEqual": "Less"}


@pattern_pass(
    "fuse-comparison",
    match=(
        """
        o = Greater|Less(a, b)
        e = Equal(a, b)
        y = Or(o, e)
        """,
        """
        o = Greater|Less|GreaterOrEqual|LessOrEqual(a, b)
        y = Not(o)
        """,
    ),
    parity=Parity.EXACT,
)
def fuse_comparison(m: Match, new: Builder) -> Value:
    """Turn "greater or equal" of two nodes, and "not less", into one comparison; likewise for the others.

    Right because the first is the definition of GreaterOrEqual and LessOrEqual (opset 12), and the second holds for
    integers. It does not hold for floats: NaN is neither less than, equal to, nor greater than a number.

    Example:
        g (float[N,4] a, float[N,4] b) => (bool[N,4] y) {
            o = Greater(a, b)
            e = Equal(a, b)
            y = Or(o, e)
        }
    """
    require_operator(m, "GreaterOrEqual", 12)
    compared = m.node("o").op
    if m.root.op == "Or":
        return new.node(f"{compared}OrEqual", m.a, m.b)
    m.require(m.a.dtype is not None and m.a.dtype.is_integer(), "NaN is neither less nor greater")
    return new.node(OPPOSITE[compared], m.a, m.b)
