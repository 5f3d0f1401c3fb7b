"""Negated operands of sums and products."""

from surgery import Builder, Match, Parity, Value, pattern_pass


@pattern_pass(
    "absorb-neg",
    match=[
        """
        n = Neg(b)
        y = Add(a, n)
        """,
        """
        n = Neg(b)
        y = Sub(a, n)
        """,
        """
        k = Neg(a)
        n = Neg(b)
        y = Mul|Div(k, n)
        """,
    ],
    parity=Parity.EXACT,
)
def absorb_neg(m: Match, new: Builder) -> Value:
    """Turn a + (-b) into a - b, a - (-b) into a + b, and (-a) · (-b) into a · b; so for quotients.

    Right because Neg changes only the sign: a difference is the sum with the negated operand by definition, and two
    signs cancel in a product. Integers wrap around in the same way, except for the quotient of the smallest integer and
    -1, which is not rewritten. If the negation has other consumers, it must stay, and nothing is saved.

    Example:
        g (float[N] a, float[N] b) => (float[N] y) {
            n = Neg(b)
            y = Add(a, n)
        }
    """
    m.require(m.root.opset >= 7, "before opset 7 operands are broadcast differently")
    op = {"Add": "Sub", "Sub": "Add"}.get(m.root.op, m.root.op)
    m.require(
        op != "Div" or (m.a.dtype is not None and m.a.dtype.is_floating_point()), "the quotient is not floating point"
    )
    return new.node(op, m.a, m.b)
