"""Clip."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import is_plain, require_operator


@pattern_pass(
    "fuse-clip",
    match=(
        """
        a = Max(x, low)
        y = Min(a, high)
        """,
        """
        a = Min(x, high)
        y = Max(a, low)
        """,
    ),
    parity=Parity.CLOSE,
)
def fuse_clip(m: Match, new: Builder) -> Value:
    """Turn Min and Max with two bounds into Clip.

    Right because Clip is defined as min(max(x, low), high) (with bounds as inputs and all types of numbers since opset
    12); the other order is the same when low is not above high. Each bound must be a constant scalar that does not
    enlarge x.

    Example:
        g (float[N,4] x) => (float[N,4] y) <float low = {0}, float high = {6}> {
            a = Max(x, low)
            y = Min(a, high)
        }
    """
    require_operator(m, "Clip", 12)
    m.require(is_plain(m.low, m.x) and is_plain(m.high, m.x), "a bound is not one constant number")
    m.require(m.low.scalar <= m.high.scalar, "the bounds are reversed")
    return new.node("Clip", m.x, _scalar(new, m.low), _scalar(new, m.high))


def _scalar(new: Builder, bound: Value) -> Value:
    array = bound.constant
    return bound if array is None or array.ndim == 0 else new.constant(array.reshape(()), bound.name)
