"""Which operators round, and how: not at all, once, or with digits lost."""

from __future__ import annotations

from surgery.operators import traits
from surgery.operators.moving import REARRANGING

EXACT = REARRANGING | {"Abs", "Compress", "Max", "Min", "Neg", "Pad", "Relu", "Where"}
"""Operators that round nothing."""

CANCELLING = frozenset({"Celu", "Elu", "Gelu", "HardSwish", "Mish", "Selu", "Softplus", "Swish"})
"""Functions of one element that, spelled out in smaller operators, lose digits by a difference of near numbers. A
kernel in float32 that does not lose them must not be taken for the truth."""

ROUNDING_ONCE = (
    (traits.UNARY_ELEMENTWISE - CANCELLING)
    | traits.BINARY_ELEMENTWISE
    | {"DequantizeLinear", "GlobalMaxPool", "Hardmax", "MaxUnpool", "NonZero", "OneHot", "QuantizeLinear", "Resize"}
)
"""Operators that round once or twice: run in float32, they leave the float64 result good enough to find others wrong
by. A sum in float32 would share its rounding with the original."""

ROUNDING_AS_ONE = frozenset({"HardSigmoid", "Sigmoid"})
"""Operators that subtract from, or divide by, a number near 1, so that small results have the rounding of 1 in them."""
