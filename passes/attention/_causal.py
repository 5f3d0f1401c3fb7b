"""Causal masks: what a mask hides, read from the comparisons of positions that compute it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from surgery import Node, Value

_STEPS = 16
"""Maximum number of nodes followed from a tensor of positions back to its Range."""

_BOUNDS = {"LessOrEqual": (True, 0), "Less": (True, -1), "Greater": (False, 0), "GreaterOrEqual": (False, -1)}
"""Comparisons of a key with a query: whether the query is an upper bound of the key, and the offset of the query."""

_FLIPPED = {"LessOrEqual": "GreaterOrEqual", "Less": "Greater", "Greater": "Less", "GreaterOrEqual": "LessOrEqual"}
_NEGATED = {"LessOrEqual": "Greater", "Less": "GreaterOrEqual", "Greater": "LessOrEqual", "GreaterOrEqual": "Less"}

Number = tuple[str, int]
"""A symbol ("" for none) and the integer added to it."""


@dataclass(frozen=True)
class Hidden:
    """What a mask hides: future keys (`is_causal`), keys `window` or more positions back, and unknown `others`.

    `low` is the number added to hidden scores. The mask adds `bias` to the other scores, which may hide more of them,
    or 0.
    """

    is_causal: bool
    window: int | None
    others: bool
    low: float
    bias: Value | None = None


def hidden(mask: Value, past: int | str) -> Hidden | None:
    """Read what a mask [..., queries, keys] hides if its first query follows `past` keys; None for other forms."""
    mask = _below(mask)
    choice = mask.producer
    extents = mask.shape
    if choice is None or choice.op != "Where" or extents is None or len(extents) < 2:
        return None
    branches = choice.required_input(1), choice.required_input(2)
    shown = _shown(branches)
    if shown is None:
        return None
    bias, low = branches[shown], branches[1 - shown].scalar
    upper, window, others = False, None, False
    for term, negated in _terms(choice.required_input(0), shown != 0):
        bound = _bound(term, negated, extents[-2:], ("", past) if isinstance(past, int) else (past, 0))
        if bound == (True, 0):
            upper = True
        elif bound is not None and not bound[0] and bound[1] < 0 and window is None:
            window = -bound[1]
        else:
            others = True
    return Hidden(upper, window, others, low, None if bias.scalar == 0 else bias)


def _shown(branches: tuple[Value, Value]) -> int | None:
    """Return which branch of a Where is for visible scores: 0, or the tensor if the other is minus infinity."""
    numbers = [branch.scalar for branch in branches]
    zeros = [isinstance(number, float) and number == 0 for number in numbers]
    if all(isinstance(number, float) for number in numbers):
        return zeros.index(True) if zeros.count(True) == 1 else None
    lowest = [number == -math.inf for number in numbers]
    return lowest.index(False) if lowest.count(True) == 1 else None


def _below(value: Value) -> Value:
    """Step over Expand, Identity and Unsqueeze nodes that keep the last two dims."""
    for _ in range(_STEPS):
        node = value.producer
        if node is None or node.op not in ("Expand", "Identity", "Unsqueeze"):
            break
        source = node.required_input(0)
        if source.shape is None or value.shape is None or source.shape[-2:] != value.shape[-2:]:
            break
        value = source
    return value


def _terms(condition: Value, negated: bool) -> Iterator[tuple[Value, bool]]:
    """Yield each condition that must hold for a key to be visible, and whether it is negated."""
    pending = [(condition, negated)]
    while pending:
        value, negated = pending.pop()
        value = _below(value)
        node = value.producer
        if node is not None and node.op == ("Or" if negated else "And"):
            pending += [(operand, negated) for operand in node.inputs if operand is not None]
        elif node is not None and node.op == "Not":
            pending.append((node.required_input(0), not negated))
        else:
            yield value, negated


def _bound(term: Value, negated: bool, extents: tuple[int | str | None, ...], past: Number) -> tuple[bool, int] | None:
    """Read "key <= query + c" as (True, c) and "key > query + c" as (False, c); None for other conditions."""
    node = term.producer
    if node is None or node.op not in _BOUNDS:
        return None
    first, second = (_ramp(operand) for operand in (node.required_input(0), node.required_input(1)))
    if first is None or second is None:
        return None
    op = node.op
    if first.axis == -2:
        first, second, op = second, first, _FLIPPED[op]
    op = _NEGATED[op] if negated else op
    if (first.axis, second.axis) != (-1, -2) or (second.extent, first.extent) != extents:
        return None
    if first.start[0] or second.start[0] != past[0]:
        return None
    is_upper, more = _BOUNDS[op]
    return is_upper, second.start[1] - past[1] - first.start[1] + more


@dataclass(frozen=True)
class _Ramp:
    """Integers that increase by one along `axis`, counted from the end, and are constant along the other axes."""

    axis: int
    start: Number
    extent: int | str


def _ramp(value: Value, steps: int = _STEPS) -> _Ramp | None:
    if value.is_constant:
        return _constant_ramp(value)
    node = value.producer
    if node is None or steps == 0 or (value.dtype is not None and value.dtype.is_floating_point()):
        return None
    if node.op == "Range":
        return _range(node)
    if node.op in ("Cast", "Identity"):
        return _ramp(node.required_input(0), steps - 1)
    if node.op in ("Unsqueeze", "Reshape"):
        return _moved(_ramp(node.required_input(0), steps - 1), value)
    return _shifted(node, steps) if node.op in ("Add", "Sub") else None


def _constant_ramp(value: Value) -> _Ramp | None:
    array = value.constant
    assert array is not None
    axes = [axis for axis, extent in enumerate(array.shape) if extent != 1]
    if not np.issubdtype(array.dtype, np.integer) or len(axes) != 1:
        return None
    numbers = array.reshape(-1)
    if not (np.diff(numbers) == 1).all() or not numbers.size:
        return None
    return _Ramp(axes[0] - array.ndim, ("", int(numbers[0])), numbers.size)


def _range(node: Node) -> _Ramp | None:
    start, extents = _number(node.required_input(0)), node.outputs[0].shape
    if start is None or node.required_input(2).scalar != 1 or extents is None or extents[0] is None:
        return None
    return _Ramp(-1, start, extents[0])


def _moved(ramp: _Ramp | None, value: Value) -> _Ramp | None:
    """Return a ramp with its axis moved after dims of size 1 were added or removed."""
    extents = value.shape
    if ramp is None or extents is None:
        return None
    axes = [axis for axis, extent in enumerate(extents) if extent != 1]
    if len(axes) != 1 or extents[axes[0]] != ramp.extent:
        return None
    return _Ramp(axes[0] - len(extents), ramp.start, ramp.extent)


def _shifted(node: Node, steps: int) -> _Ramp | None:
    """Read a ramp with one number added or subtracted."""
    first, second = node.required_input(0), node.required_input(1)
    for base, other in ((first, second), (second, first)):
        ramp, number = _ramp(base, steps - 1), _number(other)
        if ramp is None or number is None or (other.rank or 0) > (base.rank or 0):
            continue
        if node.op == "Sub" and (base != first or number[0]):
            return None
        if ramp.start[0] and number[0]:
            return None
        sign = -1 if node.op == "Sub" else 1
        start = ramp.start[0] or number[0], ramp.start[1] + sign * number[1]
        return _Ramp(ramp.axis, start, ramp.extent)
    return None


def _number(value: Value) -> Number | None:
    """Return the only element of an integer tensor as a symbol and a number; None if it is not known."""
    elements = value.elements
    if elements is None or len(elements) != 1:
        return None
    only = elements[0]
    return ("", only) if isinstance(only, int) else (str(only), 0)
