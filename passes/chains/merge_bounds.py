"""Chains of Clip and Relu."""

from math import inf

import numpy as np

from surgery import Builder, Match, Parity, Value, pattern_pass


@pattern_pass(
    "merge-bounds",
    match="""
        a = Clip|Relu(x, first...)
        y = Clip|Relu(a, second...)
    """,
    parity=Parity.CLOSE,
)
def merge_bounds(m: Match, new: Builder) -> Value:
    """Merge two of Clip and Relu into one.

    Right because each of them moves values outside of its bounds to the nearer bound. Applying two of them is the same
    as clipping to the first bounds clipped by the second. Relu has the bounds 0 and infinity. All bounds must be
    constant, and the lower one not above the upper one. Only the sign of a zero may change, by the order of its bounds.

    Example:
        g (float[N] x) => (float[N] y) <float low = {-1}, float high = {6}> {
            a = Clip(x, low, high)
            y = Relu(a)
        }
    """
    inner, outer = (m.node(name).bounds for name in "ay")
    m.require(inner is not None and outer is not None, "a bound is not constant")
    assert inner is not None and outer is not None
    m.require(inner[0] <= inner[1] and outer[0] <= outer[1], "a lower bound is above the upper one")
    low, high = (min(max(bound, outer[0]), outer[1]) for bound in inner)
    if (low, high) == (0, inf):
        return new.node("Relu", m.x)
    if m.root.opset < 11:
        given = {name: float(bound) for name, bound in (("min", low), ("max", high)) if abs(bound) != inf}
        return new.node("Clip", m.x, attributes=given)
    kind = m.x.dtype
    m.require(kind is not None, "the type is not known")
    limits = [
        None if abs(bound) == inf else new.constant(np.array(bound, kind.numpy()), name)
        for bound, name in ((low, "low"), (high, "high"))
    ]
    return new.node("Clip", m.x, *limits)
