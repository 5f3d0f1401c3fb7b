"""HardSigmoid."""

from surgery import Builder, Match, Parity, Refusal, Value, pattern_pass

from ._shared import is_close, number, require_type

STRETCHED = """
    l = Mul(x, slope)
    a = Add(l, shift)
    y = Clip(a, 0, 1)
"""
DIVIDED = """
    l = Div(x, divisor)
    a = Add(l, shift)
    y = Clip(a, 0, 1)
"""
CUT = """
    a = Add(x, shift)
    c = Clip(a, 0, width)
    y = Div(c, divisor)
"""
CUT_AND_SCALED = """
    a = Add(x, shift)
    c = Clip(a, 0, width)
    y = Mul(c, slope)
"""


@pattern_pass("fuse-hard-sigmoid", match=(STRETCHED, DIVIDED, CUT, CUT_AND_SCALED), parity=Parity.CLOSE)
def fuse_hard_sigmoid(m: Match, new: Builder) -> Value:
    """Turn a line that is cut off at 0 and 1 into HardSigmoid.

    Right because HardSigmoid computes max(0, min(1, α·x + β)) by its text. The line may be written before the cut,
    or be cut at 0 and w first and divided by w then, as in relu6(x + 3) / 6: α is 1/w and β is shift/w. Each
    parameter must be one constant number that leaves the shape of x.

    Example:
        g (float[N,4] x) => (float[N,4] y) <float three = {3}, float zero = {0}, float six = {6}> {
            a = Add(x, three)
            c = Clip(a, zero, six)
            y = Div(c, six)
        }
    """
    require_type(m, "HardSigmoid", m.x)
    slope, shift = _line(m)
    return new.node("HardSigmoid", m.x, alpha=slope, beta=shift)


def _line(m: Match) -> tuple[float, float]:
    """Return α and β."""
    shift = number(m.shift, m.x)
    slope = number(m.slope, m.x) if hasattr(m, "slope") else _inverse(number(m.divisor, m.x))
    if m.root.op == "Clip":
        return slope, shift
    width = number(m.width, m.x)
    m.require(width > 0 and is_close(slope * width, 1, m.x), "the cut is not at 1")
    return slope, shift * slope


def _inverse(divisor: float) -> float:
    if divisor == 0:
        raise Refusal("the divisor is zero")
    return 1 / divisor
