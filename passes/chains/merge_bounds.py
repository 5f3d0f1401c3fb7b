"""Chains of Clip and Relu."""

from math import inf

import numpy as np

from surgery import Builder, Match, Node, Parity, Value, pattern_pass

Bounds = tuple[float, float]


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

    Right because each of them moves what lies outside of its bounds to the nearer one. Done twice, that ends at what
    the second one makes of the first one's bounds. Relu has the bounds 0 and infinity. All bounds have to be
    constant, the lower one not above the upper one. Only the sign of a zero may change, by the order of its bounds.

    Example:
        g (float[N] x) => (float[N] y) <float low = {-1}, float high = {6}> {
            a = Clip(x, low, high)
            y = Relu(a)
        }
    """
    inner, outer = (_bounds(m.node(name)) for name in "ay")
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


def _bounds(node: Node) -> Bounds | None:
    """Return the bounds of Clip or Relu; infinite where there is none, None when one is not constant."""
    if node.op == "Relu":
        return 0, inf
    if node.opset < 11:
        low, high = node.attr("min", -inf), node.attr("max", inf)
        largest = float(np.finfo(np.float32).max)
        return (-inf if low <= -largest else low), (inf if high >= largest else high)
    low, high = (
        default if bound is None else bound.scalar for bound, default in ((node.input(1), -inf), (node.input(2), inf))
    )
    return None if low is None or high is None else (low, high)
