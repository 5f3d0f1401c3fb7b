"""Which values are provably finite, as masks often are."""

from __future__ import annotations

import numpy as np

from surgery.graph.values import Value

_MOVES = {"Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
_COMBINES = {"Add", "Concat", "Max", "Min", "Mul", "Sub"}


def is_finite(value: Value) -> bool:
    """Return whether a value provably contains no infinity: its elements are selected and moved from finite constants.

    Sums and products of finite values count as finite.
    """
    pending, seen = [value], set[Value]()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.is_constant:
            array = value.constant
            if array is None or not np.isfinite(array.astype(np.float64)).all():
                return False
            continue
        above = _above(value)
        if above is None:
            return False
        pending += above
    return True


def _above(value: Value) -> list[Value] | None:
    """List the values whose elements a value takes; None if infinities may arise otherwise."""
    if value.dtype is not None and not value.dtype.is_floating_point():
        return []
    node = value.producer
    inputs = [] if node is None else [operand for operand in node.inputs if operand is not None]
    if node is None:
        return None
    if node.op in _MOVES or node.op == "Cast":
        return inputs[:1]
    if node.op == "Where":
        return inputs[1:]
    return inputs if node.op in _COMBINES else None
