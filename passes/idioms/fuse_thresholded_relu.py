"""ThresholdedRelu."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import number, require_operator, require_plain_constants, require_type


@pattern_pass(
    "fuse-thresholded-relu",
    match=(
        """
        p = Greater(x, threshold)
        y = Where(p, x, 0)
        """,
        """
        p = Less(threshold, x)
        y = Where(p, x, 0)
        """,
    ),
    parity=Parity.CLOSE,
)
def fuse_thresholded_relu(m: Match, new: Builder) -> Value:
    """Turn x where x > α, and 0 elsewhere, into ThresholdedRelu.

    Right because this is the definition of ThresholdedRelu (opset 10), for NaN too: that is not greater than
    anything. α must be a constant scalar that does not enlarge x.

    Example:
        g (float[N,4] x) => (float[N,4] y) <float one = {1}, float zero = {0}> {
            p = Greater(x, one)
            y = Where(p, x, zero)
        }
    """
    require_operator(m, "ThresholdedRelu", 10)
    require_plain_constants(m, m.x)
    require_type(m, "ThresholdedRelu", m.x)
    return new.node("ThresholdedRelu", m.x, alpha=number(m.threshold, m.x))
