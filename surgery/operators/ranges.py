"""What values results can have: their bounds, their sign, and the sign of a zero.

0.0 and -0.0 are equal, and most operators treat them alike; 1 / 0.0 and 1 / -0.0 are as far apart as numbers can be.
"""

from __future__ import annotations

from surgery.operators.moving import REARRANGING

BOUNDS = {
    "Erf": (-1.0, 1.0),
    "HardSigmoid": (0.0, 1.0),
    "Sigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
}
"""The least and the greatest value of operators that come close to both for large inputs."""

UNIT = frozenset(op for op, bounds in BOUNDS.items() if bounds == (0.0, 1.0))
"""Operators whose results lie between 0 and 1."""

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
    "Cast",
    "CastLike",
    "Ceil",
    "Compress",
    "Div",
    "Erf",
    "Floor",
    "Max",
    "Min",
    "Mul",
    "Neg",
    "Pad",
    "Pow",
    "Round",
    "Sign",
    "Sin",
    "Sqrt",
    "Tan",
    "Tanh",
    "Where",
}
"""Operators whose result may have a zero of either sign where an operand has one."""

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
"""Operators whose results are 0.0 or above where all their operands are."""
