"""The simplest form of the shape that a Reshape or an Expand reads."""

from collections.abc import Iterator

from surgery import Node, Refusal, Value

COPY, INFER = 0, -1
"""Elements of a Reshape's shape that are not extents."""

_RESHAPES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})

Extent = int | str
"""A number, or a symbolic expression."""


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
        here = producer.input(0) if producer is not None and producer.op in _RESHAPES else None


def reshape_target(node: Node, source: Value | None = None) -> list[Extent]:
    """Return the shape of a Reshape with 0 and -1 as far as possible; the remaining dynamic dims are symbolic.

    It is for a Reshape without allowzero, of `source` if it is given.
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
    if any(dim in (0, None) if item == COPY else item == 0 for item, dim in zip(target, before)):
        raise Refusal("the result may be empty, so -1 would be ambiguous")
    place = _place_to_infer(target, moved)
    if INFER in target and place != target.index(INFER):
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
        if INFER in target:
            return target.index(INFER)
        numbers = [index for index, item in enumerate(target) if isinstance(item, int) and item != COPY]
        if numbers:
            return numbers[-1]
    return moved[0]


def expand_target(node: Node) -> list[Extent]:
    """Return the shape of an Expand with 1 for each extent that does not change; the rest may be symbolic."""
    wanted, data = known_elements(node.required_input(1)), node.required_input(0).shape
    if data is None:
        raise Refusal("the rank of the input is not known")
    aligned = [*[None] * len(wanted), *data][-len(wanted) :] if wanted else []
    return [1 if item == dim else item for item, dim in zip(wanted, aligned)]
