"""Gelu with the tanh approximation."""

from surgery import Builder, Match, Parity, Value, pattern_pass

from ._shared import gelu

CUBIC = (
    "c = Pow(x, 3)\n k = Mul(c, ~0.044715)",
    "q = Mul(x, x)\n c = Mul(q, x)\n k = Mul(c, ~0.044715)",
    "q = Pow(x, 2)\n c = Mul(q, x)\n k = Mul(c, ~0.044715)",
    "l = Mul(x, ~0.044715)\n q = Mul(l, x)\n k = Mul(q, x)",
    "q = Mul(x, x)\n l = Mul(q, ~0.044715)\n k = Mul(l, x)",
    "q = Mul(x, x)\n l = Mul(x, ~0.044715)\n k = Mul(l, q)",
)
SQUARE = (
    "q = Mul(x, x)\n k = Mul(q, ~0.044715)",
    "q = Pow(x, 2)\n k = Mul(q, ~0.044715)",
    "l = Mul(x, ~0.044715)\n k = Mul(l, x)",
)
ARGUMENTS = (
    *(f"{cubic}\n a = Add|Sum(x, k)\n s = Mul(a, ~0.7978845608028654)" for cubic in CUBIC),
    *(f"{square}\n a = Add(k, 1)\n l2 = Mul(x, ~0.7978845608028654)\n s = Mul(l2, a)" for square in SQUARE),
    *(f"{square}\n a = Add(k, 1)\n l2 = Mul(x, a)\n s = Mul(l2, ~0.7978845608028654)" for square in SQUARE),
)
PRODUCTS = (
    "h = Mul(x, 0.5)\n y = Mul(h, p)",
    "h = Mul(x, p)\n y = Mul(h, 0.5)",
    "h = Mul(p, 0.5)\n y = Mul(x, h)",
)


@pattern_pass(
    "fuse-gelu-tanh",
    match=[
        f"""
        {argument}
        t = Tanh(s)
        p = Add|Sum(t, 1)
        {product}
        """
        for product in PRODUCTS
        for argument in ARGUMENTS
    ],
    parity=Parity.CLOSE,
)
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
