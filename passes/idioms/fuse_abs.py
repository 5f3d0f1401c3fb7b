"""Abs."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import require_operator


@pattern_pass(
    "fuse-abs",
    match="""
        n = Neg(x)
        y = Max(x, n)
    """,
    parity=Parity.CLOSE,
)
def fuse_abs(m: Match, new: Builder) -> Value:
    """Turn the larger of x and -x into Abs.

    Right because that is the absolute value, also for the smallest integer, which equals its own negation. Both
    operators support integers since opset 12.

    Example:
        g (float[N,4] x) => (float[N,4] y) {
            n = Neg(x)
            y = Max(x, n)
        }
    """
    require_operator(m, "Max", 8)
    return new.node("Abs", m.x)
