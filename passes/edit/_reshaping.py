"""Reshapes whose targets contain the size of a freed dim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from surgery import Builder, Node, Refusal, Value

from ._old_sizes import Sizes, dim_of, element, extent, product


def reshape(node: Node, sizes: Sizes, new: Builder) -> None:
    """Replace the old size in a target with 0 (copy) or -1, and other dims that were -1 with 0 or numbers."""
    data, result = node.required_input(0), node.outputs[0]
    target = node.input(1)
    wanted = target.elements if target is not None else tuple(node.attr("shape") or ())
    if wanted is None:
        return
    was, old = sizes.old(data), sizes.old(result)
    keeps_zero = bool(node.attr("allowzero", 0)) and 0 in wanted
    copied = [not keeps_zero and same for same in map(is_same, old, [*was, *[None] * len(old)])]
    found: list[int | str | Value] = list(wanted)
    split = _split_again(data, wanted, result, sizes)
    if split is None:
        held = {_place(data, axis, result, sizes): axis for axis in sizes.missing(data, wanted)}
        _adapt(found, held, copied, data, result, sizes, new)
    else:
        for place in (axis for axis in sizes.axes(split) if axis < len(found)):
            found[place] = extent(split, place, new)
    if found == list(wanted):
        return
    if target is None:
        new.require(all(isinstance(item, int) for item in found), "the target is an attribute")
        new.set_attribute(node, "shape", found)
        return
    parts = [0 if isinstance(item, str) and copied[place] else item for place, item in enumerate(found)]
    new.set_input(node, 1, target_of(target, parts, new))
    if node.attr("allowzero", 0) and not keeps_zero:
        new.set_attribute(node, "allowzero", 0)


def _adapt(
    found: list[int | str | Value],
    held: Mapping[int, int],
    copied: Sequence[bool],
    data: Value,
    result: Value,
    sizes: Sizes,
    new: Builder,
) -> None:
    """Infer or copy the dims that hold a freed dim, given its axis in the operand, or compute all but one of them."""
    old, inferred = sizes.old(result), [place for place, item in enumerate(found) if item == -1]
    for place, axis in held.items():
        if found[place] not in (0, -1):
            found[place] = 0 if place == axis and copied[place] else -1
    for place in inferred:
        if place not in held and found.count(-1) > 1:
            found[place] = 0 if copied[place] else product(old[place : place + 1], result)
    for place, axis in held.items():
        if found[place] == -1 and found.count(-1) > 1 and sizes.is_alone(data, axis, old[place]):
            found[place] = extent(data, axis, new)
    if found.count(-1) > 1:
        raise Refusal("more than one dim of the target would have to be inferred")


def _split_again(data: Value, wanted: Sequence[int | str], result: Value, sizes: Sizes) -> Value | None:
    """Return the tensor to whose dims a target splits rows again that a Reshape has merged, such as batch and length.

    Which rows belong to which dim is shown by that Reshape alone, as one of the old sizes may be 1. None if nothing is
    split; refuse if it is not shown.
    """
    rank = len(data.shape or ())
    for axis in sizes.missing(data, wanted):
        if len(sizes.names(dim_of(data, axis))) < 2:
            continue
        was, old = sizes.old(data), sizes.old(result)
        origin, count = _merged(data) if axis == 0 else (None, 0)
        if origin is not None and list(old[:count]) == list(sizes.old(origin)[:count]) and len(old) > count:
            return origin
        if len(old) > axis and all(map(is_same, was[: axis + 1], old[: axis + 1])) and len(old) <= rank:
            return None
        raise Refusal(f"it splits dim {axis} of {data.name}, which is {dim_of(data, axis)}")
    return None


def _merged(data: Value) -> tuple[Value | None, int]:
    """Return the tensor whose first dims a Reshape merged into the rows of a value, and their number, if known."""
    rows = (data.shape or (None,))[0]
    while (node := data.producer) is not None:
        source = node.required_input(0) if node.inputs else data
        shape, rest = source.shape or (), (data.shape or ())[1:]
        if node.op == "Reshape":
            counts = [
                count for count in range(2, len(shape)) if _elements(shape[count:]) == _elements(rest) is not None
            ]
            return (source, counts[0]) if counts else (None, 0)
        carries = node.is_unary or node.op in ("Gemm", "MatMul") or node.is_broadcasting
        if not carries or node.attr("transA", 0) or len(shape) != 1 + len(rest) or shape[0] != rows:
            break
        data = source
    return None, 0


def _elements(dims: Sequence[int | str | None]) -> int | None:
    numbers = [dim for dim in dims if isinstance(dim, int)]
    return prod(numbers) if len(numbers) == len(dims) else None


def is_same(one: int | str | None, other: int | str | None) -> bool:
    """Return whether two dims are known and the same."""
    return one is not None and one == other


def target_of(old: Value, parts: Sequence[int | str | Value], new: Builder) -> Value:
    """Return a target of numbers and computed extents; names stand for elements of the old target."""
    numbers = [part for part in parts if isinstance(part, int)]
    if len(numbers) == len(parts):
        return new.constant(np.array(numbers, np.int64), old.name)
    made = [
        new.constant(np.array([part], np.int64), old.name)
        if isinstance(part, int)
        else element(old, place, new)
        if isinstance(part, str)
        else part
        for place, part in enumerate(parts)
    ]
    return new.node("Concat", *made, axis=0)


def _place(data: Value, axis: int, result: Value, sizes: Sizes) -> int:
    """Find the dim of the result that contains a freed axis, by the number of elements between its positions."""
    was, old = sizes.old(data), sizes.old(result)
    if len(old) == 1:
        return 0
    if len(old) > axis and all(map(is_same, was[: axis + 1], old[: axis + 1])):
        return axis
    size, step = sizes.extent(data, axis)
    fitting = []
    for place, dim in enumerate(old):
        inner = product(old[place + 1 :], result)
        if isinstance(dim, int) and inner <= step and inner * dim >= step * size and step % max(inner, 1) == 0:
            fitting.append((inner * dim != step * size or inner != step, place != axis, place))
    if not fitting:
        raise Refusal(f"no dim of the target {list(old)} holds it")
    return min(fitting)[-1]
