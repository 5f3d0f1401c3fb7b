"""BiasGelu and FastGelu with a bias."""

from surgery import Builder, Match, Parity, Value, pattern_pass

STANDARD = "t = Add(x, bias)\n y = Gelu(t)"
OWN = "t = Add(x, bias)\n y = com.microsoft::Gelu(t)"
FAST = "t = Add(x, bias)\n y = com.microsoft::FastGelu(t)"


@pattern_pass("fuse-bias-gelu", match=(STANDARD, OWN, FAST), parity=Parity.CLOSE)
def fuse_bias_gelu(m: Match, new: Builder) -> Value:
    """Fuse the bias before a Gelu: into BiasGelu, or into FastGelu for the tanh approximation.

    Right because both are defined as the Gelu of x + bias, with one bias element per element of the last axis. Run
    fuse-gelu and fuse-gelu-tanh first, which create the Gelu. A bias that a Gemm adds costs nothing and stays.

    Example:
        # target: ort-cpu
        g (float[N,4] x) => (float[N,4] y) <float[4] bias = {1, 2, 3, 4}> {
            t = Add(x, bias)
            y = Gelu(t)
        }
    """
    fast = m.root.op.endswith("FastGelu") or m.root.attr("approximate", "none") == "tanh"
    op = "com.microsoft::FastGelu" if fast else "com.microsoft::BiasGelu"
    new.require_operator(op, m.x)
    known = m.x.rank and m.x.shape[-1] is not None and m.bias.shape == m.x.shape[-1:]
    m.require(known, "the bias is not known to be one number for each element of the last axis")
    return new.node(op, m.x, m.bias)
