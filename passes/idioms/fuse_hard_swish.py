"""HardSwish."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import require_operator, require_plain_constants, require_type

GATED = """
    h = HardSigmoid<alpha = slope, beta = shift>(x)
    y = Mul(x, h)
"""
CUTS = """
    a = Add(x, 3)
    c = Clip(a, 0, 6)
    p = Mul(x, c)
"""


@pattern_pass(
    "fuse-hard-swish",
    match=(GATED, f"{CUTS}\n y = Div(p, 6)", f"{CUTS}\n y = Mul(p, ~0.16666666666666666)"),
    parity=Parity.CLOSE,
)
def fuse_hard_swish(m: Match, new: Builder) -> Value:
    """Turn x · hardsigmoid(x), with α = 1/6 and β = 1/2, into HardSwish.

    Right because HardSwish is defined as x · max(0, min(1, x/6 + 1/2)) (opset 14). The other form is x · relu6(x + 3) /
    6.

    Example:
        g (float[N,4] x) => (float[N,4] y) {
            h = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)
            y = Mul(x, h)
        }
    """
    require_operator(m, "HardSwish", 14)
    require_type(m, "HardSwish", m.x)
    require_plain_constants(m, m.x)
    line = (m.slope, m.shift) if hasattr(m, "slope") else (1 / 6, 0.5)
    m.require(abs(line[0] - 1 / 6) < 1e-7 and line[1] == 0.5, "the HardSigmoid has other parameters")
    return new.node("HardSwish", m.x)
