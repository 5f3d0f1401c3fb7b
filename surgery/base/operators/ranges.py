"""Ranges of results: their bounds, their sign, and the sign of a zero.

0.0 and -0.0 are equal, and most operators treat them alike, but 1 / 0.0 and 1 / -0.0 are opposite infinities.

Needs a row in `KEEPING` or `LOSING` for each operator that is elementwise or passes elements through.
"""

from __future__ import annotations

from collections.abc import Iterator

from surgery.base.operators import traits
from surgery.base.operators.forms import Schema
from surgery.base.operators.moving import CARRIES, CARRIES_FLOATS, REARRANGING, VARIADIC

BOUNDS = {
    "Erf": (-1.0, 1.0),
    "HardSigmoid": (0.0, 1.0),
    "Sigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
}
"""The bounds of the results of operators that approach both for large inputs."""

UNIT = frozenset(op for op, bounds in BOUNDS.items() if bounds == (0.0, 1.0))
"""Operators whose results are between 0 and 1."""

NOT_BELOW = UNIT | {
    "Abs",
    "Cosh",
    "Exp",
    "GlobalLpPool",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "Softplus",
}
"""Operators whose results are 0.0 or above, and never -0.0."""

NOT_NEGATIVE = NOT_BELOW | {"Relu", "Sqrt"}
"""Operators whose results are 0.0, -0.0 or above."""

KEEPING = REARRANGING | {
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Cast",
    "CastLike",
    "Ceil",
    "Celu",
    "Clip",
    "Compress",
    "ConcatFromSequence",
    "Div",
    "Dropout",
    "Elu",
    "Erf",
    "Floor",
    "Gelu",
    "GlobalMaxPool",
    "HardSwish",
    "LeakyRelu",
    "Max",
    "MaxPool",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "Optional",
    "OptionalGetElement",
    "PRelu",
    "Pad",
    "Pow",
    "ReduceMax",
    "ReduceMin",
    "Relu",
    "Resize",
    "ReverseSequence",
    "Round",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "Selu",
    "SequenceAt",
    "SequenceConstruct",
    "SequenceInsert",
    "Sign",
    "Sin",
    "Sinh",
    "Softsign",
    "SplitToSequence",
    "Sqrt",
    "Swish",
    "Tan",
    "Tanh",
    "TopK",
    "Trilu",
    "Unique",
    "Where",
}
"""Operators whose results may keep the sign of a zero of an operand."""

LOSING = NOT_BELOW | {
    "Acos",
    "Acosh",
    "Add",
    "And",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Cos",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "IsInf",
    "IsNaN",
    "Less",
    "LessOrEqual",
    "Log",
    "Mean",
    "Not",
    "Or",
    "Reciprocal",
    "Shrink",
    "Sub",
    "Sum",
    "ThresholdedRelu",
    "Xor",
}
"""Operators whose results do not depend on the sign of a zero, except a sum whose terms are all -0.0."""

KEEPING_ABOVE = REARRANGING | {
    "Add",
    "AveragePool",
    "Cast",
    "CastLike",
    "Div",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Max",
    "MaxPool",
    "Mean",
    "Min",
    "Mul",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "Sqrt",
    "Sum",
}
"""Operators whose results are 0.0 or above if all their operands are."""


def without_row(schema: Schema) -> Iterator[str]:
    """Report an operator whose effect on the sign of a zero is unknown."""
    asked = traits.UNARY_ELEMENTWISE | traits.BROADCASTING | CARRIES.keys() | CARRIES_FLOATS.keys() | VARIADIC
    if schema.key in asked and schema.key not in KEEPING | LOSING:
        yield "the sign of a zero"
