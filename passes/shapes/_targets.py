"""The simplest form of the shape that a Reshape or an Expand reads."""

from collections.abc import Iterator, Sequence

import numpy as np

from surgery import RESHAPES, Builder, Node, Refusal, Value

COPY, INFER = 0, -1
"""Elements of a Reshape's shape that are not extents."""

MOVED = "more than one dim moves to another position, or one next to dims that may be 0"
"""Why a shape must be computed."""


Extent = int | str
"""A number, or a symbolic expression."""

Dim = Extent | None
"""An extent, or None if it is not known."""


def known_elements(value: Value) -> tuple[Extent, ...]:
    """Return the elements of a shape; refuse if they are not known."""
    if value.elements is None:
        raise Refusal("the elements of the shape are not known")
    return value.elements


def reshaped(value: Value) -> Iterator[Value]:
    """Yield a value, and the values upstream that have the same elements in the same order, in other shapes."""
    here: Value | None = value
    while here is not None:
        yield here
        producer = here.producer
        here = producer.input(0) if producer is not None and producer.op in RESHAPES else None


def reshape_target(node: Node, source: Value | None = None) -> list[Extent]:
    """Return the shape of a Reshape with 0 and -1 as far as possible; the remaining dynamic dims are symbolic.

    It is for a Reshape without allowzero, of `source` if it is given. A -1 next to an extent that may be 0 would make
    it reject an empty batch or sequence, so there is none unless the model has one there itself.
    """
    wanted, made = known_elements(node.required_input(1)), node.outputs[0].shape
    if COPY in wanted and (node.attr("allowzero") or source is not None):
        raise Refusal("an extent of 0 is requested")
    data = (source or node.required_input(0)).shape
    before = [*(data or ()), *[None] * len(wanted)][: len(wanted)]
    target = [COPY if isinstance(item, str) and item == dim else item for item, dim in zip(wanted, before)]
    moved = [index for index, item in enumerate(target) if isinstance(item, str)]
    if not moved:
        return target
    if INFER not in target:
        if len(moved) > 1 or _may_be_empty(target, before, moved[0]):
            # Without allowzero, a computed extent of 0 would copy another extent.
            return list(wanted) if node.attr("allowzero") else target
        target[moved[0]] = INFER
        return target
    if any(dim in (0, None) if item == COPY else item == 0 for item, dim in zip(target, before)):
        raise Refusal("the result may be empty, so -1 would be ambiguous")
    place = _place_to_infer(target, moved)
    if place != target.index(INFER):
        given = target.index(INFER)
        after = made[given] if made is not None and len(made) == len(target) else None
        known = COPY if after is not None and after == before[given] else after
        if not isinstance(known, int):
            return target
        target[given] = known
    target[place] = INFER
    return target


def _place_to_infer(target: list[Extent], moved: list[int]) -> int:
    """Choose the element for -1: a dynamic one, unless several are adjacent, which one Shape can provide together."""
    if len(moved) > 1 and moved[-1] - moved[0] == len(moved) - 1:
        return target.index(INFER)
    return moved[0]


def _may_be_empty(target: Sequence[Extent], before: Sequence[Dim], place: int) -> bool:
    """Return whether an extent other than that at a place may be 0 in some run; 0 copies one of `before`."""
    others = [dim if item == COPY else item for item, dim in zip(target, before)]
    return any(not isinstance(dim, int) or dim <= 0 for index, dim in enumerate(others) if index != place)


def restated(source: Value, result: Sequence[Dim], opset: int, new: Builder) -> Value | None:
    """Give the elements of a tensor another shape without computing it; return None if that takes a computed shape.

    A Reshape copies extents, and infers one only next to extents that are never 0. Axes of extent 1 are inserted or
    removed by Unsqueeze or Squeeze, and the dims on either side of an axis are joined by Flatten, whatever is empty.
    """
    shape = source.shape
    if shape is None or None in result or 0 in shape or 0 in result:
        return None
    before = [*shape, *[None] * len(result)][: len(result)]
    target = [COPY if isinstance(item, str) and item == dim else item for item, dim in zip(result, before)]
    moved = [index for index, item in enumerate(target) if isinstance(item, str)]
    if len(moved) == 1 and not _may_be_empty([COPY if item is None else item for item in target], before, moved[0]):
        target[moved[0]] = INFER
        moved = []
    if not moved:
        numbers = [item for item in target if isinstance(item, int)]
        return new.node("Reshape", source, new.constant(np.array(numbers, np.int64), name="shape"))
    for op, less, more in (("Unsqueeze", shape, result), ("Squeeze", result, shape)):
        axes = _ones(less, more)
        if axes is not None:
            return _along(op, source, axes, opset, new)
    if len(result) == 2 and len(shape) > 2 and result[0] == shape[0]:
        return new.node("Flatten", source, axis=1)
    if len(result) == 2 and len(shape) > 2 and result[1] == shape[-1]:
        return new.node("Flatten", source, axis=len(shape) - 1)
    return None


def _ones(less: Sequence[Dim], more: Sequence[Dim]) -> list[int] | None:
    """Return the axes of extent 1 that `more` has in addition to `less`; None if they differ in any other way."""
    axes: list[int] = []
    for axis, dim in enumerate(more):
        place = axis - len(axes)
        if place < len(less) and less[place] == dim and dim is not None:
            continue
        if dim != 1:
            return None
        axes.append(axis)
    return axes if axes and len(more) - len(axes) == len(less) else None


def _along(op: str, source: Value, axes: Sequence[int], opset: int, new: Builder) -> Value:
    if opset < 13:
        return new.node(op, source, axes=list(axes))
    return new.node(op, source, new.constant(np.array(axes, np.int64), name="axes"))


def expand_target(node: Node) -> list[Extent]:
    """Return the shape of an Expand with 1 for each extent that does not change; the rest may be symbolic."""
    wanted, data = known_elements(node.required_input(1)), node.required_input(0).shape
    if data is None:
        raise Refusal("the rank of the input is not known")
    aligned = [*[None] * len(wanted), *data][-len(wanted) :] if wanted else []
    return [1 if item == dim else item for item, dim in zip(wanted, aligned)]
