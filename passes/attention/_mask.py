"""Masks that are added to attention scores, in the form that runtimes accept."""

import math

import numpy as np

from surgery import Builder, Value, is_finite

from ._causal import hidden
from ._core import Core
from ._decoder import unrepeated
from ._shared import ints


def clamped(mask: Value, new: Builder) -> Value:
    """Raise the lowest number of the type, which runtimes treat as "masked", so that it counts as a number.

    A row whose scores all have the same very low number added is uniform after Softmax, but a masked row gives zeros.
    Half of the lowest number absorbs each score just as the lowest number does.
    """
    dtype = mask.dtype
    assert dtype is not None
    floor = np.array(np.finfo(dtype.numpy()).min / 2, dtype.numpy())
    node = mask.producer
    if node is not None and node.op == "Where" and all(_is_small(operand) for operand in node.inputs[1:]):
        branches = [np.array(operand.constant) for operand in node.inputs[1:] if operand is not None]
        if all((branch >= floor).all() for branch in branches):
            return mask
        constants = [new.constant(np.asarray(np.maximum(branch, floor)), "mask_value") for branch in branches]
        return new.node("Where", node.required_input(0), *constants)
    return new.node("Max", mask, new.constant(floor, "mask_floor"))


def _is_small(value: Value | None) -> bool:
    return value is not None and value.is_constant and value.size == 1


def hides_rows(found: Core, mask: Value) -> bool | None:
    """Return whether a mask may hide a whole row of scores by minus infinity; None if it may contain other infinities.

    A causal mask hides none, because each query sees at least itself.
    """
    if is_finite(mask):
        return False
    what = hidden(mask, _past(found))
    if what is None or what.low != -math.inf or not (what.bias is None or is_finite(what.bias)):
        return None
    if what.is_causal and not what.others:
        return False
    return True if what.bias is None else None


def is_shared(mask: Value) -> bool:
    """Return whether a mask is the same for all heads."""
    return (mask.rank or 0) < 3 or (mask.shape or ())[-3] == 1


def visible_rows(bias: Value, floor: float, like: Value, opset: int, new: Builder) -> Value:
    """Return for a bias [batch or 1, 1, queries, keys] whether each of its rows [..., 1] has a number above `floor`.

    `like` is a value of the same type.
    """
    dtype = like.dtype
    assert dtype is not None
    best = new.node("Squeeze", reduced("ReduceMax", bias, -1, 1, opset, new), ints(new, 1))
    return new.node("Greater", best, new.constant(np.array(floor, dtype.numpy()), "masked"))


def reduced(op: str, value: Value, axis: int, keepdims: int, opset: int, new: Builder) -> Value:
    """Reduce a value along one axis."""
    if opset < 18:
        return new.node(op, value, axes=[axis], keepdims=keepdims)
    return new.node(op, value, ints(new, axis), keepdims=keepdims)


def _past(found: Core) -> int | str:
    """Return the number of keys before those of this run, 0 if the keys are not known to have a past."""
    concat = None if found.keys.perm else unrepeated(found.keys.value)[0].producer
    if concat is None or concat.op != "Concat" or len(concat.inputs) != 2 or concat.attr("axis") not in (2, -2):
        return 0
    return (concat.required_input(0).shape or (None,) * 4)[2] or 0


def expanded(mask: Value, rank: int, rows: Value | None, columns: Value | None, new: Builder) -> Value:
    """Repeat a mask of one row for each query and one column for each key, where these numbers are given.

    Runtimes do not broadcast along these axes.
    """
    if rows is None and columns is None:
        return mask
    one = new.constant(np.ones(1, np.int64), "one")
    parts = [new.constant(np.ones(rank - 2, np.int64), "ones")] if rank > 2 else []
    shape = new.node("Concat", *parts, one if rows is None else rows, one if columns is None else columns, axis=0)
    return new.node("Expand", mask, shape)


def fits(mask: Value, found: Core) -> bool:
    """Return whether a mask broadcasts to the scores; it may have one row for all queries.

    If there are as many keys as values, its number of columns need not be known: it is 1 or the number of keys, because
    the probabilities are multiplied by as many values. See `has_columns`.
    """
    extents, wanted = mask.shape, _wanted(found)
    if extents is None or not 2 <= len(extents) <= 4 or not _broadcasts(extents[:-1], wanted):
        return False
    return has_columns(mask, found) or found.is_paired


def fits_rows(factor: Value, found: Core) -> bool:
    """Return whether a factor of the scores can be applied to the queries: it has a number for each row of scores."""
    extents = factor.shape or ()
    return extents[-1:] == (1,) and len(extents) <= 4 and _broadcasts(extents[:-1], _wanted(found))


def has_columns(mask: Value, found: Core) -> bool:
    """Return whether a mask is known to have a column for each key.

    A sum of masks has as many columns as one of them. Those of the others are then 1 or as many, although their dims
    may have names of their own.
    """
    return _has_columns(mask, _wanted(found))


Dims = tuple[object, ...]


def _wanted(found: Core) -> Dims:
    return (*(found.queries.shape or (None,) * 4)[:3], found.keys_dim)


def broadcasts_to(extent: object, wanted: object) -> bool:
    """Return whether a dim is 1 or as wanted, or the minimum of that and others, as of a Slice up to it.

    The minimum is at most as wanted. Because the dim is broadcast with the wanted one, it is equal to that or 1.
    """
    if extent is None or extent == 1 or extent == wanted:
        return extent is not None
    if not isinstance(extent, str) or not extent.startswith("Min(") or extent.find(")") < len(extent) - 1:
        return False
    return str(wanted) in [part.strip() for part in extent[4:-1].split(",")]


def _broadcasts(leading: Dims, wanted: Dims) -> bool:
    """Return whether all dims but the last of a mask are 1 or as wanted."""
    return all(broadcasts_to(extent, want) for extent, want in zip(reversed(leading), reversed(wanted[:-1])))


def _has_columns(mask: Value, wanted: Dims, depth: int = 4) -> bool:
    """Return whether a mask, or one of the values that it combines by broadcasting, has a column for each key."""
    extents, node = mask.shape, mask.producer
    if extents and extents[-1] is not None and extents[-1] == wanted[-1]:
        return True
    if node is None or not depth or not node.is_broadcasting:
        return False
    parts = [value for value in node.inputs if value is not None]
    fitting = all(part.shape is not None and _broadcasts(part.shape[:-1], wanted) for part in parts)
    return fitting and any(_has_columns(part, wanted, depth - 1) for part in parts)
