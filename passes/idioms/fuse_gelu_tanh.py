"""Gelu with the tanh approximation."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._gelu import TANH_FORMS, gelu


@pattern_pass("fuse-gelu-tanh", match=list(TANH_FORMS), parity=Parity.CLOSE)
def fuse_gelu_tanh(m: Match, new: Builder) -> Value:
    """Turn x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))) into Gelu.

    Right because this is the definition of Gelu with approximate = "tanh" (opset 20). The cube may be a power or a
    chain of products, x may come before the parentheses, and factors may be in any order. Each constant must be a
    scalar that does not enlarge x. Before opset 20, com.microsoft::FastGelu computes the same where the target runs it;
    the one of ONNX Runtime does not accept scalars.

    Example:
        g (float[N,4] x) => (float[N,4] y)
        <float three = {3}, float k = {0.044715}, float root = {0.7978846}, float one = {1}, float half = {0.5}> {
            cube = Pow(x, three)
            small = Mul(cube, k)
            sum = Add(x, small)
            scaled = Mul(sum, root)
            t = Tanh(scaled)
            p = Add(t, one)
            h = Mul(x, half)
            y = Mul(h, p)
        }
    """
    op = gelu(m, new, "com.microsoft::FastGelu")
    if op == "Gelu":
        return new.node(op, m.x, approximate="tanh")
    m.require(m.x.rank, "FastGelu does not accept scalars, and the rank is 0 or unknown")
    return new.node(op, m.x)
