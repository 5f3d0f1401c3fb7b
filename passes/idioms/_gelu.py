"""The ways in which exporters and people write a Gelu, and the operators that compute it."""

from surgery import Builder, Match

from ._shared import require_operator, require_plain_constants, require_type, takes_own

HALF_BEFORE = "h = Mul(x, 0.5)\n y = Mul(h, p)"
HALF_AFTER = "h = Mul(x, p)\n y = Mul(h, 0.5)"
HALF_INSIDE = "h = Mul(p, 0.5)\n y = Mul(x, h)"
DIVIDED = ("h = Div(x, 2)\n y = Mul(h, p)", "h = Mul(x, p)\n y = Div(h, 2)")

BY_ROOT = "s = Div(x, ~1.4142135623730951)"
BY_INVERSE = "s = Mul(x, ~0.7071067811865476)"

_CUBIC = (
    "q = Mul(x, x)\n c = Mul(q, x)\n k = Mul(c, ~0.044715)",
    "q = Pow(x, 2)\n c = Mul(q, x)\n k = Mul(c, ~0.044715)",
    "l = Mul(x, ~0.044715)\n q = Mul(l, x)\n k = Mul(q, x)",
    "q = Mul(x, x)\n l = Mul(q, ~0.044715)\n k = Mul(l, x)",
    "q = Mul(x, x)\n l = Mul(x, ~0.044715)\n k = Mul(l, q)",
)
_SQUARE = (
    "q = Mul(x, x)\n k = Mul(q, ~0.044715)",
    "q = Pow(x, 2)\n k = Mul(q, ~0.044715)",
    "l = Mul(x, ~0.044715)\n k = Mul(l, x)",
)
_SCALED_FIRST = "a = Add(k, 1)\n l2 = Mul(x, ~0.7978845608028654)\n s = Mul(l2, a)"
_SCALED_LAST = "a = Add(k, 1)\n l2 = Mul(x, a)\n s = Mul(l2, ~0.7978845608028654)"

BY_CUBE = "c = Pow(x, 3)\n k = Mul(c, ~0.044715)\n a = Add|Sum(x, k)\n s = Mul(a, ~0.7978845608028654)"
BY_SQUARE = f"{_SQUARE[-1]}\n {_SCALED_FIRST}"
OTHERS = (
    *(f"{cubic}\n a = Add|Sum(x, k)\n s = Mul(a, ~0.7978845608028654)" for cubic in _CUBIC),
    *(f"{square}\n {_SCALED_FIRST}" for square in _SQUARE[:-1]),
    *(f"{square}\n {_SCALED_LAST}" for square in _SQUARE),
)


def by_erf(argument: str, product: str) -> str:
    """Return the pattern of x/2 · (1 + erf(s)), with this argument and this order of the product."""
    return f"{argument}\n e = Erf(s)\n p = Add|Sum(e, 1)\n {product}"


def by_tanh(argument: str, product: str) -> str:
    """Return the pattern of x/2 · (1 + tanh(s)), with this argument and this order of the product."""
    return f"{argument}\n t = Tanh(s)\n p = Add|Sum(t, 1)\n {product}"


ERF_FORMS = tuple(
    by_erf(argument, product)
    for product in (HALF_BEFORE, HALF_AFTER, *DIVIDED, HALF_INSIDE)
    for argument in (BY_ROOT, BY_INVERSE)
)
TANH_FORMS = tuple(
    by_tanh(argument, product)
    for product in (HALF_BEFORE, HALF_AFTER, HALF_INSIDE)
    for argument in (BY_CUBE, BY_SQUARE, *OTHERS)
)
RECOGNIZED = frozenset(
    {
        by_erf(BY_ROOT, HALF_BEFORE),
        by_erf(BY_ROOT, HALF_AFTER),
        by_tanh(BY_CUBE, HALF_BEFORE),
        by_tanh(BY_SQUARE, HALF_BEFORE),
    }
)
"""The forms that ONNX Runtime fuses; tried with 1.32 on all forms of this module."""


def gelu(m: Match, new: Builder, own: str) -> str:
    """Return the operator for a Gelu: the standard one, or before opset 20 `own` if the target runs it.

    Refuse unless one of them is computed in this type, and the formula has only one value and plain numbers.
    """
    if m.root.opset < 20 and takes_own(new, own, m.x):
        require_plain_constants(m, m.x)
        return own
    require_operator(m, "Gelu", 20)
    require_type(m, "Gelu", m.x)
    require_plain_constants(m, m.x)
    return "Gelu"
