"""Softmax."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import common_axis, require_operator

EXPONENTIALS = """
    m = ReduceMax(x, axes?)
    d = Sub(x, m)
    e = Exp(d)
    t = ReduceSum(e, sum_axes?)
"""


@pattern_pass(
    "fuse-softmax",
    match=(f"{EXPONENTIALS}\n y = Div(e, t)", f"{EXPONENTIALS}\n r = Reciprocal(t)\n y = Mul(e, r)"),
    parity=Parity.CLOSE,
)
def fuse_softmax(m: Match, new: Builder) -> Value:
    """Turn exp(x - max(x)) / sum(exp(x - max(x))) into Softmax.

    Right because this is the definition of Softmax along one axis (since opset 13), and the maximum keeps the
    exponentials from overflow, as in every runtime. Without it, a large x gives NaN, unlike in Softmax, so that form is
    not rewritten.

    Example:
        g (float[N,4] x) => (float[N,4] y) <int64[1] last = {-1}> {
            m = ReduceMax(x, last)
            d = Sub(x, m)
            e = Exp(d)
            t = ReduceSum(e, last)
            y = Div(e, t)
        }
    """
    require_operator(m, "Softmax", 13)
    return new.node("Softmax", m.x, axis=common_axis(m.node("m"), m.node("t"), m.x))
