"""Masks that are added to attention scores, in the form that runtimes accept."""

import numpy as np

from surgery import Builder, Value


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


def for_all_queries(mask: Value, like: Value, queries: Value, axis: int, new: Builder) -> Value:
    """Repeat a mask of one row for each query; runtimes do not broadcast along that axis."""
    rank = like.rank or 2
    length = new.node("Shape", queries, start=axis, end=axis + 1)
    parts = [new.constant(np.ones(rank - 2, np.int64), "ones")] if rank > 2 else []
    shape = new.node("Concat", *parts, length, new.constant(np.ones(1, np.int64), "one"), axis=0)
    return new.node("Expand", mask, shape)


def fits(mask: Value, batch: object, count: int, queries: object, keys: object) -> bool:
    """Return whether a mask broadcasts to [batch, count, queries, keys]; it may have one row for all queries.

    A sum of masks has as many columns as one of them. Those of the others are then 1 or as many, although their dims
    may have names of their own: the probabilities are multiplied by as many values.
    """
    wanted = batch, count, queries, keys
    extents = mask.shape
    if extents is None or not 2 <= len(extents) <= 4 or not _broadcasts(extents[:-1], wanted):
        return False
    return _has_columns(mask, wanted)


Dims = tuple[object, ...]


def _broadcasts(leading: Dims, wanted: Dims) -> bool:
    """Return whether all dims but the last of a mask are 1 or as wanted."""
    pairs = zip(reversed(leading), reversed(wanted[:-1]))
    return all(extent == 1 or (extent is not None and extent == want) for extent, want in pairs)


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
