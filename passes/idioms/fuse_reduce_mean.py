"""ReduceMean."""

from math import prod

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import is_close, number, reduce_like, reduced_axes


@pattern_pass(
    "fuse-reduce-mean",
    match=(
        """
        t = ReduceSum(x, axes?)
        y = Div(t, count)
        """,
        """
        t = ReduceSum(x, axes?)
        y = Mul(t, inverse)
        """,
    ),
    parity=Parity.CLOSE,
)
def fuse_reduce_mean(m: Match, new: Builder) -> Value:
    """Turn a sum divided by the number of its terms into ReduceMean.

    Right because this is the definition of ReduceMean. The extents of the axes and the divisor must be
    known numbers. The axes become an attribute before opset 18.

    Example:
        g (float[N,4] x) => (float[N,1] y) <int64[1] last = {-1}, float four = {4}> {
            t = ReduceSum(x, last)
            y = Div(t, four)
        }
    """
    axes = reduced_axes(m.node("t"))
    extents = [m.x.shape[axis] if m.x.shape else None for axis in axes or [0]]
    m.require(axes and all(isinstance(extent, int) for extent in extents), "the number of terms is not known")
    terms = prod(extent for extent in extents if isinstance(extent, int))
    ratio = number(m.count, m.t) / max(terms, 1) if m.root.op == "Div" else number(m.inverse, m.t) * terms
    m.require(terms and is_close(ratio, 1, m.x), "the divisor is not the number of terms")
    return reduce_like(m, new, "ReduceMean", m.node("t"), m.x)
