"""The pass my-pass."""

from surgery import Builder, Match, Parity, Value, pattern_pass


@pattern_pass(
    "my-pass",  # its name in recipes and on the command line
    # The pattern to match, in ONNX text. Each name is then an attribute of the match:
    # m.a and m.b are the inputs, m.y is the value that this pass computes differently.
    # Values that are read elsewhere, or that are graph outputs, are never broken.
    match="""
        d = Sub(a, b)
        y = Neg(d)
    """,
    # The promised parity of the results: EXACT (the same bits), CLOSE (rounding only)
    # or LOSSY. Each run verifies it. Here -(a - a) is -0, and a - a is 0.
    parity=Parity.CLOSE,
)
def my_pass(m: Match, new: Builder) -> Value:
    """Turn -(a - b) into b - a.

    Valid because the difference of two floats is rounded the same in both directions.

    Example:
        g (float[n] a, float[n] b) => (float[n] y) {
            d = Sub(a, b)
            y = Neg(d)
        }
    """
    # First the further conditions, each with the reason why the pass refuses.
    # 'surgery test' requires a case for each reason.
    dtype = m.d.dtype
    floating = dtype is not None and dtype.is_floating_point()
    m.require(floating, "not floating point")
    # Then the value that replaces y. Nodes that nothing reads any more are removed.
    return new.node("Sub", m.b, m.a)
