"""Where the sign of a zero shows, and which values have no -0.0.

0.0 and -0.0 are equal, and most operators treat them alike; 1 / 0.0 and 1 / -0.0 are as far apart as numbers can be.
"""

from __future__ import annotations

KEEPING = frozenset(
    {
        "Cast",
        "CastLike",
        "Ceil",
        "Compress",
        "Concat",
        "DepthToSpace",
        "Div",
        "Erf",
        "Expand",
        "Flatten",
        "Floor",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "Max",
        "Min",
        "Mul",
        "Neg",
        "Pad",
        "Pow",
        "Reshape",
        "Round",
        "Sign",
        "Sin",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Sqrt",
        "Squeeze",
        "Tan",
        "Tanh",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
    }
)
"""Operators whose result may have a zero of either sign where an operand has one."""

NOT_BELOW = frozenset(
    {
        "Abs",
        "Exp",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "Sigmoid",
        "Softmax",
        "Softplus",
        "GlobalLpPool",
        "HardSigmoid",
        "Cosh",
    }
)
"""Operators whose results are 0.0 or above."""

KEEPING_ABOVE = frozenset(
    {
        "Add",
        "AveragePool",
        "Cast",
        "CastLike",
        "Concat",
        "Div",
        "Expand",
        "Flatten",
        "Gather",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "Identity",
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
        "Reshape",
        "Slice",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sum",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators whose results are 0.0 or above where all their operands are."""
