"""Sigmoid."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import require_plain_constants, require_tolerant_readers

EXPONENTIAL = """
    n = Neg(x)
    e = Exp(n)
    p = Add(e, 1)
"""


@pattern_pass(
    "fuse-sigmoid",
    match=(f"{EXPONENTIAL}\n y = Div(1, p)", f"{EXPONENTIAL}\n y = Reciprocal(p)"),
    parity=Parity.CLOSE,
)
def fuse_sigmoid(m: Match, new: Builder) -> Value:
    """Turn 1 / (1 + exp(-x)) into Sigmoid.

    Right because this is the definition of Sigmoid; where the exponential overflows both are zero. The ones must not
    enlarge x. Consumers that divide by the result or take its logarithm need the relative precision of small numbers,
    but the kernel of ONNX Runtime has an absolute error of 1e-7: it makes 0 of a probability of 5e-12. So the result
    may not be an output of the model either, whose caller may take the logarithm.

    Example:
        g (float[N,4] x) => (float[N,4] z) <float one = {1}> {
            n = Neg(x)
            e = Exp(n)
            p = Add(e, one)
            y = Div(one, p)
            z = Mul(y, x)
        }
    """
    m.require(m.root.opset >= 7, "before opset 7 operands are broadcast differently")
    require_plain_constants(m, m.x)
    require_tolerant_readers(m)
    m.require(not m.root.outputs[0].is_returned, "the caller may take the logarithm of an output of the model")
    return new.node("Sigmoid", m.x)
