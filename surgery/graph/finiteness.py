"""Which values are provably finite, as masks often are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from surgery.graph.values import Node, Value

_MOVES = {"Cast", "Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
_SELECTS = {"Concat", "Max", "Min", "Where"}
_ARITHMETIC = {"Add", "Mul", "Sub"}

Interval = tuple[float, float]


def is_finite(*values: Value) -> bool:
    """Return whether values, and every sum of some of them, provably contain no infinity.

    The bounds of a value follow from the constants that its elements are selected, moved and computed from: a sum of
    two masks with the lowest number of the type is minus infinity where both mask. A number that is cast from an
    integer counts as 0 or 1, as in a mask.
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
    if node is None:
        return None
    if node.op in _MOVES:
        return (node.required_input(0),)
    if node.op in _SELECTS | _ARITHMETIC:
        return _operands(node)
    return None


def _operands(node: Node) -> list[Value]:
    operands = [operand for operand in node.inputs if operand is not None]
    return operands[1:] if node.op == "Where" else operands


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
    if node.op not in _ARITHMETIC:
        found = min(low for low, _ in known), max(high for _, high in known)
    else:
        (a, b), (c, d) = known
        ends = {"Add": (a + c, b + d), "Sub": (a - d, b - c), "Mul": (a * c, a * d, b * c, b * d)}[node.op]
        found = min(ends), max(ends)
    return _held(found, value)


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
