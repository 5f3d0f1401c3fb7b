"""Swish, also called SiLU."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import number, require_operator, require_plain_constants, require_type, takes_own

QUICK_GELU = "com.microsoft::QuickGelu"
SCALED = """
    a = Mul(x, alpha)
    s = Sigmoid(a)
    y = Mul(x, s)
"""
PLAIN = """
    s = Sigmoid(x)
    y = Mul(x, s)
"""
WRITTEN_OUT = """
    n = Neg(x)
    e = Exp(n)
    d = Add(e, 1)
    y = Div(x, d)
"""


@pattern_pass("fuse-swish", match=(SCALED, PLAIN, WRITTEN_OUT), parity=Parity.CLOSE)
def fuse_swish(m: Match, new: Builder, *, without_kernel: bool = False) -> Value:
    """Turn x · sigmoid(α·x) into Swish.

    Right because this is the definition of Swish (opset 24); with α = 1 it is SiLU. α must be a constant scalar that
    does not enlarge x. The sigmoid may be written out, as x / (1 + exp(-x)): where the exponential overflows both are
    zero. From opset 25 on ONNX Runtime 1.31 does not run Swish, and the formula stays.

    For a target that runs com.microsoft::QuickGelu, which computes the same in one kernel, it is used at every opset.
    Without a target the formula stays: ONNX Runtime 1.32 fuses it into QuickGelu, but executes the four nodes of the
    function body of Swish (256 x 1024: 0.15 ms, QuickGelu 0.08 ms).

    Options:
        without_kernel: Make Swish for a runtime that is not known to have a kernel for it, too.

    Example:
        # options: {without_kernel: true}
        <ir_version: 11, opset_import: ["" : 24]>
        g (float[N,4] x) => (float[N,4] y) {
            s = Sigmoid(x)
            y = Mul(x, s)
        }
    """
    own = takes_own(new, QUICK_GELU, m.x)
    if not own:
        require_operator(m, "Swish", 24)
        m.require(
            m.root.opset == 24, "ONNX Runtime computes Swish through its function body, which it only has at opset 24"
        )
        require_type(m, "Swish", m.x)
        known = without_kernel or ("", "Swish") in new.target.operators
        m.require(known, "ONNX Runtime has no kernel for Swish, and computes the formula in one")
    require_plain_constants(m, m.x)
    scaled = m.root.op == "Mul" and m.node("s").input(0) != m.x
    alpha = number(m.alpha, m.x) if scaled else None
    if own:
        return new.node(QUICK_GELU, m.x, alpha=1.0 if alpha is None else alpha)
    return new.node("Swish", m.x, alpha=alpha)
