"""HardSigmoid."""

import numpy as np

from surgery import Builder, Match, Parity, Refusal, Value, pattern_pass

from ._shared import is_close, number, require_type

LINES = ("l = Mul(x, slope)\n a = Add(l, shift)", "l = Div(x, divisor)\n a = Add(l, shift)")
CUT = "a = Add(x, shift)\n c = Clip(a, bounds...)"
SCALED = ("y = Div(c, divisor)", "y = Mul(c, slope)")
PRODUCTS = (
    "p = Mul(z, c)\n y = Div(p, divisor)",
    "p = Mul(z, c)\n y = Mul(p, slope)",
    "q = Div(z, divisor)\n y = Mul(q, c)",
    "q = Mul(z, slope)\n y = Mul(q, c)",
)


@pattern_pass(
    "fuse-hard-sigmoid",
    match=(
        *(f"{line}\n y = Clip(a, bounds...)" for line in LINES),
        *(f"{CUT}\n {result}" for result in (*SCALED, *PRODUCTS)),
    ),
    parity=Parity.CLOSE,
)
def fuse_hard_sigmoid(m: Match, new: Builder) -> Value:
    """Turn a linear function clipped to 0 and 1 into HardSigmoid.

    Right because HardSigmoid is defined as max(0, min(1, α·x + β)). The linear function may be scaled before clipping,
    or be clipped to 0 and w and then divided by w, as in relu6(x + 3) / 6: α is 1/w and β is shift/w. The clipped value
    may be multiplied by another value before the division, as in x · relu6(x + 3) / 6; if the divisor is not w, one
    factor stays. Each parameter must be a constant scalar that does not enlarge x.

    Example:
        g (float[N,4] x) => (float[N,4] y) <float three = {3}, float zero = {0}, float six = {6}> {
            a = Add(x, three)
            c = Clip(a, zero, six)
            y = Div(c, six)
        }
    """
    require_type(m, "HardSigmoid", m.x)
    m.require(new.target.prefers.get("hard_sigmoid") != "clipped", "the target prefers the clipped form")
    bounds = (m.root if m.root.op == "Clip" else m.node("c")).bounds
    m.require(bounds is not None and bounds[0] == 0 and 0 < bounds[1] < np.inf, "the cut is not at 0 and a number")
    assert bounds is not None
    width = bounds[1]
    shift = number(m.shift, m.x)
    if m.root.op == "Clip":
        m.require(width == 1, "the cut is not at 1")
        return new.node("HardSigmoid", m.x, alpha=_slope(m, m.x), beta=shift)
    if not hasattr(m, "z"):
        m.require(is_close(_slope(m, m.x) * width, 1, m.x), "the cut is not at 1")
        return new.node("HardSigmoid", m.x, alpha=1 / width, beta=shift / width)
    whole = m.p if hasattr(m, "p") else m.z
    factor = _slope(m, whole) * width
    hard = new.node("HardSigmoid", m.x, alpha=1 / width, beta=shift / width)
    product = new.node("Mul", m.z, hard)
    if is_close(factor, 1, m.x):
        return product
    given = m.slope if hasattr(m, "slope") else m.divisor
    constant = np.array(factor, None if m.x.dtype is None else m.x.dtype.numpy())
    m.require(np.isfinite(constant) and constant != 0, "the factor that stays is not a number of this type")
    return new.node("Mul", product, new.constant(constant, given.name))


def _slope(m: Match, x: Value) -> float:
    """Return the factor of a value, which may be given as a divisor."""
    if hasattr(m, "slope"):
        return number(m.slope, x)
    divisor = number(m.divisor, x)
    if divisor == 0:
        raise Refusal("the divisor is zero")
    return 1 / divisor
