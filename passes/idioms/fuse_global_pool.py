"""GlobalAveragePool whose dims of size 1 are removed."""

import numpy as np

from surgery import Builder, Match, Parity, Value, pattern_pass


@pattern_pass(
    "fuse-global-pool",
    match="""
        p = GlobalAveragePool(x)
        y = Flatten|Reshape|Squeeze(p, how?)
    """,
    parity=Parity.CLOSE,
)
def fuse_global_pool(m: Match, new: Builder) -> Value:
    """Turn a GlobalAveragePool and the removal of its dims of size 1 into one ReduceMean.

    Right because the pool is the mean over all dims except the first two, and ReduceMean can drop them. The dims
    of the result must be known to be the first two of x.

    Example:
        g (float[N,8,4,4] x) => (float[N,8] y) {
            p = GlobalAveragePool(x)
            y = Flatten(p)
        }
    """
    outer, inner = m.x.shape or (), m.y.shape or ()
    m.require(len(outer) > 2 and len(inner) == 2 and None not in inner, "the result is not known to have two dims")
    m.require(inner == outer[:2], "the result is not known to have the first two dims")
    axes = list(range(2, len(outer)))
    if m.root.opset < 18:
        return new.node("ReduceMean", m.x, axes=axes, keepdims=0)
    return new.node("ReduceMean", m.x, new.constant(np.array(axes), "axes"), keepdims=0)
