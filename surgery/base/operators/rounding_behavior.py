"""Rounding behavior of operators: exact, rounding once, or losing digits."""

from __future__ import annotations

from surgery.base.operators import traits
from surgery.base.operators.moving import REARRANGING

EXACT = REARRANGING | {"Abs", "Compress", "Max", "Min", "Neg", "Pad", "Relu", "Where"}
"""Operators without rounding."""

CANCELLING = frozenset({"Celu", "Elu", "Gelu", "HardSwish", "Mish", "Selu", "Softplus", "Swish"})
"""Elementwise functions whose expansion to smaller operators loses digits by cancellation. A float32 kernel that does
not lose them must not be taken as the reference."""

ROUNDING_ONCE = (
    (traits.UNARY_ELEMENTWISE - CANCELLING)
    | traits.BINARY_ELEMENTWISE
    | {"DequantizeLinear", "GlobalMaxPool", "Hardmax", "MaxUnpool", "NonZero", "OneHot", "QuantizeLinear", "Resize"}
)
"""Operators that round once or twice. If they run in float32, the float64 result is still accurate enough as a
reference for others, whereas a sum in float32 would share its rounding errors with the original."""

ROUNDING_AS_ONE = frozenset({"HardSigmoid", "Sigmoid"})
"""Operators that subtract from, or divide by, a number near 1, so that small results have the rounding error of 1."""
