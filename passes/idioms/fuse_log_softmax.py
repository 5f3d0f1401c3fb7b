"""LogSoftmax."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import common_axis, require_operator


@pattern_pass(
    "fuse-log-softmax",
    match="""
        m = ReduceMax(x, axes?)
        d = Sub(x, m)
        e = Exp(d)
        t = ReduceSum(e, sum_axes?)
        l = Log(t)
        y = Sub(d, l)
    """,
    parity=Parity.CLOSE,
)
def fuse_log_softmax(m: Match, new: Builder) -> Value:
    """Turn x - max(x) - log(sum(exp(x - max(x)))) into LogSoftmax.

    Right because this is the definition of LogSoftmax along one axis (since opset 13), and the maximum keeps
    the exponentials from overflow, as in every runtime.

    Example:
        g (float[N,4] x) => (float[N,4] y) <int64[1] last = {-1}> {
            m = ReduceMax(x, last)
            d = Sub(x, m)
            e = Exp(d)
            t = ReduceSum(e, last)
            l = Log(t)
            y = Sub(d, l)
        }
    """
    require_operator(m, "LogSoftmax", 13)
    return new.node("LogSoftmax", m.x, axis=common_axis(m.node("m"), m.node("t"), m.x))
