"""Embeddings: table rows selected by ids, and facts about computed ids."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from surgery import Builder, Node, Value

Dim = int | str | None

_INTEGERS = ("INT32", "INT64")
_CARRYING = ("Cast", "Expand", "Identity", "Reshape", "Unsqueeze")
"""Operators that keep the numbers of their first input if it holds a single number or a single row."""
_CHOOSING = (*_CARRYING, "Gather", "GatherElements", "Slice", "Squeeze", "Transpose")
"""Operators that select elements of their first input."""


@dataclass(frozen=True)
class Lookup:
    """The rows of a table that ids select."""

    table: Value
    ids: Value


def lookup(value: Value, hidden: Dim, scope: object) -> Lookup | None:
    """Read the Gather of a value with one reader; None unless it selects rows of length `hidden`."""
    node = value.producer
    if node is None or node.op != "Gather" or node.scope is not scope or node.attr("axis", 0) != 0:
        return None
    if value.is_output or value.reads != 1:
        return None
    table, ids = node.required_input(0), node.required_input(1)
    dims = table.static_shape
    if dims is None or len(dims) != 2 or dims[1] != hidden or ids.dtype is None or ids.dtype.name not in _INTEGERS:
        return None
    return Lookup(table, ids)


def counts(ids: Value, length: Dim) -> bool:
    """Return whether ids are 0, 1, ... `length` - 1 for each row."""
    dims = ids.shape
    if length is None or dims is None or not 1 <= len(dims) <= 2:
        return False
    array = ids.constant
    if array is not None:
        return ids.shape == (*dims[:-1], length) and bool((array == np.arange(array.shape[-1])).all())
    node = ids.producer
    rule = None if node is None else _COUNTING.get(node.op)
    return node is not None and rule is not None and rule(node, length)


def _carries(node: Node, length: Dim) -> bool:
    """Step over a node that repeats a single row, or adds a leading dim to it."""
    before, after = node.required_input(0), node.outputs[0].shape
    dims = before.shape
    last = dims is not None and after is not None and bool(dims) and dims[-1] == after[-1]
    one_row = dims is not None and (len(dims) == 1 or (len(dims) == 2 and (dims[0] == 1 or dims == after)))
    return last and one_row and counts(before, length)


def _range(node: Node, length: Dim) -> bool:
    start, limit, step = (node.required_input(position) for position in range(3))
    return start.scalar == 0 and step.scalar == 1 and limit.elements == (length,)


def _slice(node: Node, length: Dim) -> bool:
    """Return whether a Slice takes the first `length` elements of a constant row that counts up.

    If the row is too short, its lookup does not match the other lookups. A row of a single element is excluded, because
    it would match them by broadcasting.
    """
    row, (start, end, axes, step) = node.required_input(0), (node.input(position) for position in range(1, 5))
    array = row.constant
    if array is None or start is None or end is None or axes is None or array.ndim not in (1, 2) or array.size < 2:
        return False
    last = axes.elements in ((-1,), (array.ndim - 1,))
    whole = array.ndim == 1 or array.shape[0] == 1
    starts = start.elements == (0,) and (step is None or step.elements == (1,))
    counting = bool((array == np.arange(array.shape[-1])).all())
    return last and whole and starts and counting and end.elements == (length,)


_COUNTING: dict[str, Callable[[Node, Dim], bool]] = {
    **dict.fromkeys(_CARRYING, _carries),
    "Range": _range,
    "Slice": _slice,
}


def is_zero(ids: Value) -> bool:
    """Return whether all ids are known to be 0, because they are selected from zeros."""
    array, node = ids.constant, ids.producer
    if array is not None:
        return not array.any()
    if node is None:
        return False
    if node.op == "ConstantOfShape":
        filled = node.attr("value")
        return filled is None or not filled.numpy().any()
    return node.op in _CHOOSING and is_zero(node.required_input(0))


def as_int32(ids: Value, new: Builder) -> Value:
    """Return ids of rank 2 as int32."""
    if ids.rank == 1:
        before = ids
        ids = new.node("Unsqueeze", before, new.constant(np.array([0], np.int64), "axes"))
        return new.node("Cast", ids, to=6) if before.dtype is not None and before.dtype.name != "INT32" else ids
    if ids.dtype is not None and ids.dtype.name == "INT32":
        return ids
    cast = ids.producer
    narrow = cast.required_input(0) if cast is not None and cast.op == "Cast" else None
    if narrow is not None and narrow.dtype is not None and narrow.dtype.name == "INT32":
        return narrow
    return new.node("Cast", ids, to=6)
