"""Reductions of transformed elements, or with a transformed result."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import reduce_like, reduced_axes, require_before_28

INTO = {
    "Abs ReduceSum": "ReduceL1",
    "Mul ReduceSum": "ReduceSumSquare",
    "Pow ReduceSum": "ReduceSumSquare",
    "ReduceSum Log": "ReduceLogSum",
    "ReduceSumSquare Sqrt": "ReduceL2",
}


@pattern_pass(
    "fuse-reduction",
    match=(
        """
        e = Abs(x)
        y = ReduceSum(e, axes?)
        """,
        """
        e = Mul(x, x)
        y = ReduceSum(e, axes?)
        """,
        """
        e = Pow(x, 2)
        y = ReduceSum(e, axes?)
        """,
        """
        e = ReduceSumSquare(x, axes?)
        y = Sqrt(e)
        """,
        """
        e = ReduceSum(x, axes?)
        y = Log(e)
        """,
    ),
    parity=Parity.CLOSE,
)
def fuse_reduction(m: Match, new: Builder) -> Value:
    """Turn a sum of absolute values or squares, the root of the latter, and the logarithm of a sum into one reduction.

    Right because these are the definitions of ReduceL1, ReduceSumSquare, ReduceL2 and ReduceLogSum. The axes become an
    attribute before opset 18. The logarithm of a sum of exponentials stays, because it overflows where ReduceLogSumExp
    does not.

    Example:
        g (float[N,4] x) => (float[N,1] y) <int64[1] last = {-1}> {
            q = Mul(x, x)
            t = ReduceSum(q, last)
            y = Sqrt(t)
        }
    """
    inner = m.node("e")
    reduction = m.root if m.root.op == "ReduceSum" else inner
    m.require(not reduction.attr("noop_with_empty_axes"), "without axes nothing is reduced")
    known = reduction.input(1) is None or reduced_axes(reduction) is not None
    m.require(reduction.opset >= 18 or known, "the axes are not constant")
    op = INTO[f"{inner.op} {m.root.op}"]
    if op == "ReduceLogSum":
        require_before_28(m, op)
    return reduce_like(m, new, op, reduction, m.x)
