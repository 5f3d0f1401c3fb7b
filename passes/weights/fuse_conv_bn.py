"""BatchNormalization after a convolution."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import fold_batch_norm


@pattern_pass(
    "fuse-conv-bn",
    match="""
        c = Conv|ConvTranspose(x, w, b?)
        y, mean_out?, var_out?, saved_mean?, saved_var? = BatchNormalization(c, scale, shift, mean, var)
    """,
    parity=Parity.CLOSE,
)
def fuse_conv_bn(m: Match, new: Builder) -> Value:
    """Fold a BatchNormalization into the weight and bias of the preceding Conv or ConvTranspose.

    Right because in inference BatchNormalization multiplies each channel by a constant and adds a constant, and a
    convolution is linear in its weight and its bias. All parameters must be constants that no caller overrides,
    the result of the convolution must not be read by anything else, and the new weight must fit its type. It is
    computed in float64 and rounded once. A weight with other consumers is copied only if the file does not grow.

    Example:
        g (float[N,1,4,4] x) => (float[N,1,4,4] y)
        <float[1,1,1,1] w = {2}, float[1] s = {3}, float[1] shift = {1}, float[1] mean = {0.5}, float[1] var = {2}> {
            c = Conv(x, w)
            y = BatchNormalization(c, s, shift, mean, var)
        }
    """
    conv = m.node("c")
    folded = fold_batch_norm(conv, m.node("y"))
    weight = new.constant(folded.weight, m.w.name)
    bias = new.constant(folded.bias, f"{m.w.name}_bias" if m.b is None else m.b.name)
    return new.node(conv.op, m.x, weight, bias, attributes=conv.attributes)
