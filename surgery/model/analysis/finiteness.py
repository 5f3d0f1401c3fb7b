"""Which values are provably finite, as masks often are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from surgery.model.graph.values import Node, Value

_SHAPED = {"Expand", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
_MOVES = _SHAPED | {"Cast", "Gather", "Identity"}
_SELECTS = {"Concat", "Max", "Min", "Where"}
_ARITHMETIC = {"Add", "Mul", "Sub"}
_BOUNDED = {"Cos": (-1.0, 1.0), "Sigmoid": (0.0, 1.0), "Sin": (-1.0, 1.0), "Softmax": (0.0, 1.0), "Tanh": (-1.0, 1.0)}
"""Operators whose results are in an interval, or NaN, whatever they read."""
_ROUNDED = 2.0
"""How much further from 0 a sum of products may be than without rounding."""

Interval = tuple[float, float]


def is_finite(*values: Value) -> bool:
    """Return whether values, and every sum of some of them, provably contain no infinity.

    The bounds of a value follow from the constants that its elements are selected, moved and computed from: a sum of
    two masks with the lowest number of the type is minus infinity where both mask. A number that is cast from an
    integer counts as 0 or 1, as in a mask. Activations have bounds after an operator with a limited range, as a
    normalization, and so do their products with constants and with each other, as in a bias of relative positions.
    """
    known: dict[Value, Interval | None] = {}
    low = high = 0.0
    for value in values:
        interval = _interval(value, known)
        if interval is None:
            return False
        low, high = low + min(interval[0], 0.0), high + max(interval[1], 0.0)
    return not values or _held((low, high), values[0]) is not None


def _interval(value: Value, known: dict[Value, Interval | None]) -> Interval | None:
    """Return the least and the greatest element that a value may have; None if it may have an infinity."""
    pending = [value]
    while pending:
        current = pending[-1]
        if current in known:
            pending.pop()
            continue
        above = _above(current)
        missing = [operand for operand in above or () if operand not in known]
        if missing:
            pending += missing
            continue
        parts = None if above is None else [known[operand] for operand in above]
        known[current] = None if parts is None else _computed(current, parts)
    return known[value]


def _above(value: Value) -> Sequence[Value] | None:
    """List the values whose bounds determine those of a value; None if infinities may arise otherwise."""
    if value.is_constant or not _is_float(value):
        return ()
    node = value.producer
    return None if node is None else _operands(node)


def _operands(node: Node) -> Sequence[Value] | None:
    """List the operands whose bounds determine those of the first result of a node; None for other operators."""
    operands = [operand for operand in node.inputs if operand is not None]
    if node.op in _BOUNDED:
        return ()
    if node.op in _MOVES:
        return operands[:1]
    if node.op == "Where" or (node.op == "LayerNormalization" and _normalized(node)):
        return operands[1:]
    if node.op == "Pad" and node.attr("mode") == "constant":
        return [operands[0], *operands[2:3]]
    is_product = node.op == "MatMul" and _summed(node) is not None
    return operands if is_product or node.op in _SELECTS | _ARITHMETIC else None


def _normalized(node: Node) -> int:
    """Return the number of elements that a LayerNormalization normalizes together; 0 if its result has no bounds.

    Without an epsilon it has none: the variance of nearly equal elements may be rounded to 0.
    """
    extents, epsilon = node.required_input(0).shape, node.attr("epsilon")
    parts = (extents or (None,))[node.attr("axis") :]
    known = [extent for extent in parts if isinstance(extent, int)]
    return math.prod(known) if known and len(known) == len(parts) and epsilon > 0 else 0


def _summed(node: Node) -> int | None:
    """Return the number of products that an element of the result of a MatMul is the sum of; None if unknown."""
    left, right = (node.required_input(place).shape or (None,) for place in (0, 1))
    sizes = left[-1], right[-2] if len(right) > 1 else right[0]
    return next((size for size in sizes if isinstance(size, int)), None)


def _is_float(value: Value) -> bool:
    return value.dtype is None or value.dtype.is_floating_point()


def _computed(value: Value, parts: Sequence[Interval | None]) -> Interval | None:
    """Return the bounds of a value, given those of the values above it."""
    if value.is_constant:
        return _held(_ends(value), value)
    if not _is_float(value):
        return 0.0, 1.0
    known = [part for part in parts if part is not None]
    node = value.producer
    if node is None or len(known) < len(parts):
        return None
    return _held(_result(node, known), value) if value == node.outputs[0] or node.op == "Split" else None


def _result(node: Node, known: Sequence[Interval]) -> Interval:
    """Return the bounds of the results of a node, given those of the operands that determine them."""
    if node.op in _BOUNDED:
        return _BOUNDED[node.op]
    if node.op == "LayerNormalization":
        # no element is further from the mean than the root of their number times the standard deviation
        end = _ROUNDED * math.sqrt(_normalized(node)) * _reach(known[0])
        low, high = known[1] if len(known) > 1 else (0.0, 0.0)
        return low - end, high + end
    if node.op == "MatMul":
        end = _ROUNDED * (_summed(node) or 0) * _reach(known[0]) * _reach(known[1])
        return -end, end
    if node.op in _ARITHMETIC:
        (a, b), (c, d) = known
        corners = {"Add": (a + c, b + d), "Sub": (a - d, b - c), "Mul": (a * c, a * d, b * c, b * d)}[node.op]
        return min(corners), max(corners)
    ends = [*known, (0.0, 0.0)] if node.op == "Pad" else known  # pads with 0 where no number is given
    return min(low for low, _ in ends), max(high for _, high in ends)


def _reach(interval: Interval) -> float:
    """Return the greatest distance from 0 in an interval."""
    return max(abs(interval[0]), abs(interval[1]))


def _ends(value: Value) -> Interval:
    """Return the least and the greatest element of a constant; NaN if it has one, or no real numbers."""
    array = value.constant
    if array is None or array.dtype.kind in "OSUc":
        return math.nan, math.nan
    return (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)


def _held(interval: Interval, value: Value) -> Interval | None:
    """Return the bounds of a value unless its type holds one of them only as an infinity."""
    dtype = value.dtype
    low, high = interval
    if dtype is not None and dtype.is_floating_point():
        with np.errstate(over="ignore"):
            low, high = (float(np.float64(end).astype(dtype.numpy())) for end in interval)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None
