"""Relu."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import require_operator, require_plain_constants, require_type


@pattern_pass("fuse-relu", match="y = Max(x, 0)", parity=Parity.CLOSE)
def fuse_relu(m: Match, new: Builder) -> Value:
    """Turn the larger of x and 0 into Relu.

    Right because this is the definition of Relu, for NaN too in ONNX Runtime. The number of nodes does not change, but
    runtimes fuse a Relu into the preceding convolution. The zero must not enlarge x.

    Example:
        g (float[N,4] x) => (float[N,4] y) <float zero = {0}> {
            y = Max(x, zero)
        }
    """
    require_operator(m, "Max", 8)
    require_type(m, "Relu", m.x)
    require_plain_constants(m, m.x)
    return new.node("Relu", m.x)
