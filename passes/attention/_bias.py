"""Masks and biases of attention scores, combined into one `attention_bias` [batch or 1, heads or 1, queries, keys]."""

from collections.abc import Sequence

import numpy as np

from surgery import Builder, Value

from ._mask import broadcasts_to, expanded
from ._operands import Operands
from ._shared import ints
from ._steps import Added, Dims, times
from ._written import Written


def joined_bias(written: Written, read: Operands, opset: int, new: Builder) -> Value | None:
    """Return the sum of all biases of the scores, with Where masks applied in their order; None without any.

    The last dim of each bias is the number of keys or 1, because the probabilities are multiplied by as many values.
    """
    steps = written.steps.added
    if not steps:
        return None
    new.require(opset >= 15, "the mask has fewer dims or rows, and the opset is older than 15")
    bias: Value | None = None
    parts: list[Dims] = []
    for place, step in reversed(list(enumerate(steps))):
        is_joint = written.joint_from is not None and place >= written.joint_from
        given = step.value if isinstance(step, Added) else step.condition
        if step.windows:
            value, extents = _of_windows(given, step.windows, written, read, new)
        else:
            value, extents = _in_heads(given, is_joint, written, new), _extents(given, is_joint, written, new)
        parts.append(require_fit(extents, written, new))
        if isinstance(step, Added):
            value = value if step.factor == 1 else new.node("Mul", value, _number(step.value, step.factor, new))
            bias = value if bias is None else new.node("Add", bias, value)
            continue
        scores = bias if bias is not None else _number(step.low, 0.0, new)
        bias = new.node("Where", value, *((step.low, scores) if step.where_true else (scores, step.low)))
    assert bias is not None
    return _whole(bias, parts, written, read, new)


def _number(like: Value, number: float, new: Builder) -> Value:
    assert like.dtype is not None
    return new.constant(np.array(number, like.dtype.numpy()), "number")


def _in_heads(value: Value, is_joint: bool, written: Written, new: Builder) -> Value:
    """Insert an axis for the heads into a value of rank 3 that has none; return any other value unchanged."""
    extents = value.shape
    if extents is None or len(extents) != 3 or not (is_joint or written.is_flat):
        return value
    if written.is_flat or extents[0] == 1:
        return new.node("Unsqueeze", value, ints(new, 1))
    count = written.extents[1]
    assert isinstance(count, int)
    if isinstance(extents[1], int) and isinstance(extents[2], int):
        return new.node("Reshape", value, ints(new, -1, count, extents[1], extents[2]))
    target = new.node("Concat", ints(new, -1, count), new.node("Shape", value, start=1), axis=0)
    return new.node("Reshape", value, target)


def _of_windows(value: Value, windows: int, written: Written, read: Operands, new: Builder) -> tuple[Value, Dims]:
    """Convert a bias of scores [batch, windows, ...] to one of scores [batch * windows, ...]; also return its dims."""
    extents = value.shape
    new.require(extents is not None, "the mask is not known to fit the scores")
    assert extents is not None
    if len(extents) < 4:
        return value, extents
    last = [extent for extent in extents[-3:] if isinstance(extent, int)]
    fits = len(last) == 3 and extents[-4] in (1, windows) and (len(extents) == 4 or extents[0] == 1)
    new.require(fits, "the mask of windows is not known to be the same for the whole batch")
    if extents[-4] == 1:
        return new.node("Reshape", value, ints(new, 1, *last)), (1, *last)
    queries = read.inputs[0]
    assert queries is not None
    rows = new.node("Shape", queries, start=0, end=1)
    batch = new.node("Div", rows, ints(new, windows))
    every = new.node("Expand", value, new.node("Concat", batch, ints(new, windows, 1, 1, 1), axis=0))
    return new.node("Reshape", every, ints(new, -1, *last)), (written.extents[0], *last)


def _extents(value: Value, is_joint: bool, written: Written, new: Builder) -> Dims:
    """Return the dims of a value with an axis for the heads, as `_in_heads` returns it."""
    extents = value.shape
    new.require(extents is not None, "the mask is not known to fit the scores")
    assert extents is not None
    if len(extents) != 3 or not (is_joint or written.is_flat):
        return extents
    if written.is_flat or extents[0] == 1:
        return (extents[0], 1, *extents[1:])
    batch, count = written.extents[:2]
    assert isinstance(count, int)
    new.require(times(extents[0], count, batch), "the mask is not known to fit the scores")
    return (batch, count, *extents[1:])


def require_fit(extents: Dims, written: Written, new: Builder) -> Dims:
    """Return the dims of a bias or factor; require each dim but the last to be 1 or the dim of the scores."""
    pairs = zip(reversed(extents[:-1]), reversed(written.extents[:3]))
    fits = len(extents) <= 4 and all(broadcasts_to(extent, want) for extent, want in pairs)
    new.require(fits, "the mask is not known to fit the scores")
    return extents


def _whole(bias: Value, parts: Sequence[Dims], written: Written, read: Operands, new: Builder) -> Value:
    """Expand a bias to rank 4 with a row for each query and a column for each key."""
    missing = 4 - max(map(len, parts))
    if missing:
        bias = new.node("Unsqueeze", bias, ints(new, *range(missing)))
    rows = any(len(part) > 1 and part[-2] == written.extents[2] for part in parts)
    total = written.keys_dim
    if rows and total is not None and any(part and part[-1] == total for part in parts):
        return bias
    queries = read.inputs[0]
    assert queries is not None
    return expanded(bias, 4, new.node("Shape", queries, start=1, end=2), total_keys(read, new), new)


def total_keys(read: Operands, new: Builder) -> Value:
    """Return the number of keys, those of earlier runs included."""
    keys = read.inputs[1]
    assert keys is not None
    length = new.node("Shape", keys, start=read.keys_axis, end=read.keys_axis + 1)
    return length if read.past is None else new.node("Add", length, new.node("Shape", read.past[0], start=2, end=3))
