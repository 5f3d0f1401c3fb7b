"""The pass my-pass."""

from surgery import Builder, Match, Parity, Value, pattern_pass


@pattern_pass(
    "my-pass",  # its name in recipes and on the command line
    # What to look for, in ONNX text. Each name is then an attribute of the match:
    # m.a and m.b are what comes in, m.y is what this pass finds another way to make.
    # What the graph reads elsewhere, or gives out, is never broken.
    match="""
        d = Sub(a, b)
        y = Neg(d)
    """,
    # What is promised of the results: EXACT (the same bits), CLOSE (rounding only) or
    # LOSSY. Each run is held to it. Here -(a - a) is -0, and a - a is 0.
    parity=Parity.CLOSE,
)
def my_pass(m: Match, new: Builder) -> Value:
    """Turn -(a - b) into b - a.

    Right because the difference of two floats is rounded the same in both directions.

    Example:
        g (float[n] a, float[n] b) => (float[n] y) {
            d = Sub(a, b)
            y = Neg(d)
        }
    """
    # First what else must hold, each with the reason for which the pass declines.
    # 'surgery test' wants a case that shows each reason.
    dtype = m.d.dtype
    floating = dtype is not None and dtype.is_floating_point()
    m.require(floating, "not floating point")
    # Then what takes the place of y. The nodes that nothing reads any more go.
    return new.node("Sub", m.b, m.a)
