"""Gelu with the error function."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._gelu import ERF_FORMS, gelu


@pattern_pass("fuse-gelu", match=list(ERF_FORMS), parity=Parity.CLOSE)
def fuse_gelu(m: Match, new: Builder) -> Value:
    """Turn x/2 · (1 + erf(x/√2)) into Gelu.

    Right because this is the definition of Gelu (opset 20, approximate = "none"). The three factors of the product may
    be in any order, and the division by √2 may be a multiplication. Each constant must be a scalar that does not
    enlarge x. Before opset 20, com.microsoft::Gelu computes the same where the target runs it.

    Example:
        g (float[N,4] x) => (float[N,4] y) <float root = {1.4142135}, float one = {1}, float half = {0.5}> {
            s = Div(x, root)
            e = Erf(s)
            p = Add(e, one)
            h = Mul(x, p)
            y = Mul(h, half)
        }
    """
    return new.node(gelu(m, new, "com.microsoft::Gelu"), m.x)
