"""BiasGelu and FastGelu with a bias."""

from surgery import Builder, Match, Parity, Value, pattern_pass

STANDARD = "t = Add(x, bias)\n y = Gelu(t)"
OWN = "t = Add(x, bias)\n y = com.microsoft::Gelu(t)"
FAST = "t = Add(x, bias)\n y = com.microsoft::FastGelu(t)"


@pattern_pass("fuse-bias-gelu", match=(STANDARD, OWN, FAST), parity=Parity.CLOSE)
def fuse_bias_gelu(m: Match, new: Builder) -> Value:
    """Fuse the bias in front of a Gelu: into BiasGelu, or into FastGelu for the approximation with tanh.

    Right because both compute the Gelu of x + bias by their text, with one number of the bias for each element of the
    last axis. fuse-gelu and fuse-gelu-tanh come first, which make a Gelu of what is written out. A bias that a Gemm
    adds costs nothing, and stays there.

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
