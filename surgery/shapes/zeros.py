"""Where the sign of a zero shows, and which values have no -0.0.

0.0 and -0.0 are equal, and most operators treat them alike; 1 / 0.0 and 1 / -0.0 are as far apart as numbers can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surgery.graph.values import Node, Value

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

_MOST, _DEPTH = 1000, 16


def shows_sign(value: Value, logarithms: bool = False) -> bool:
    """Return whether something divides by a value, or by what is computed from it with the sign of a zero kept.

    Graph outputs do not count: 0.0 and -0.0 are equal there. With `logarithms` those count too, which have no sign of a
    zero, but magnify what is close to it as much.
    """
    pending, seen = [value], {value}
    while pending and len(seen) < _MOST:
        current = pending.pop()
        for reader in current.consumers:
            if reader.ir.domain not in ("", "ai.onnx"):
                continue
            if _divides(reader, current) or (logarithms and reader.op == "Log"):
                return True
            if reader.op in KEEPING:
                pending += [output for output in reader.outputs if output not in seen]
                seen.update(reader.outputs)
    return False


def _divides(reader: Node, value: Value) -> bool:
    if reader.op == "Pow" and reader.input(0) == value:
        exponent = reader.required_input(1).constant
        return exponent is None or bool((exponent < 0).any())
    return reader.op == "Reciprocal" or (reader.op == "Div" and reader.input(1) == value)


def is_never_minus_zero(value: Value, depth: int = _DEPTH) -> bool:
    """Return whether a value surely has no -0.0, since nothing that it is computed from is below 0.0."""
    if value.dtype is not None and not value.dtype.is_floating_point():
        return True
    array = value.constant if value.is_constant else None
    if array is not None:
        return array.dtype.kind in "biuf" and not (array < 0).any() and not _has_minus_zero(array)
    node = value.producer
    if node is None or node.ir.domain not in ("", "ai.onnx") or not depth:
        return False
    if node.op in NOT_BELOW:
        return True
    if node.op == "Mul" and node.input(0) == node.input(1):
        return True
    if node.op == "Pow":
        exponent = node.required_input(1).constant
        return exponent is not None and bool((exponent % 2 == 0).all())
    if node.op not in KEEPING_ABOVE:
        return False
    # The other inputs of what moves elements are shapes and places.
    data = [each for each in node.inputs if each is not None and not _is_integer(each)]
    return bool(data) and all(is_never_minus_zero(each, depth - 1) for each in data)


def _is_integer(value: Value) -> bool:
    return value.dtype is not None and value.dtype.is_integer()


def _has_minus_zero(array: object) -> bool:
    import numpy as np

    elements = np.asarray(array)
    return elements.dtype.kind == "f" and bool(np.signbit(elements[elements == 0]).any())
