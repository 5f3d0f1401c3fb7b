"""Rotary position embeddings written out: what is rotated, by which cosines and sines, and their halves."""

from dataclasses import dataclass

import numpy as np

from surgery import Builder, Node, Value

from ._core import only_reader, scalar_factor

_STEPS = 8
"""How many nodes are followed from cos or sin to the Concat that repeats its halves."""


@dataclass(frozen=True)
class Rotation:
    """A tensor of heads, the factors, and the nodes that turn it."""

    data: Value
    cos: Value
    sin: Value
    nodes: frozenset[Node]

    @property
    def is_alone(self) -> bool:
        """Whether nothing else reads a value inside; the last node is the one that nothing inside reads."""
        made = {value for node in self.nodes for value in node.outputs}
        read = {value for node in self.nodes for value in node.inputs}
        return all(not value.is_output and set(value.consumers) <= self.nodes for value in made & read)


def rotation(add: Node) -> Rotation | None:
    """Read x * cos + rotate_half(x) * sin from its Add."""
    products = [operand.producer for operand in add.inputs if operand is not None]
    if len(products) != 2 or any(product is None or product.op != "Mul" for product in products):
        return None
    for plain, turned in (products, products[::-1]):
        assert plain is not None and turned is not None
        for place in (0, 1):
            half_turn = _half_turn(turned.required_input(place))
            if half_turn is not None and half_turn[0] in plain.inputs:
                data, nodes = half_turn
                cos = plain.required_input(0 if plain.input(1) == data else 1)
                inside = frozenset({add, plain, turned, *nodes})
                return Rotation(data, cos, turned.required_input(1 - place), inside)
    return None


def _half_turn(value: Value) -> tuple[Value, list[Node]] | None:
    """Return x when a value is Concat(-x2, x1), the halves of x along the last axis, and the nodes that make it."""
    concat = value.producer
    if concat is None or concat.op != "Concat" or len(concat.inputs) != 2 or value.rank is None:
        return None
    negated, low = concat.required_input(0).producer, concat.required_input(1)
    if negated is None or negated.op != "Neg" or concat.attr("axis") not in (-1, value.rank - 1):
        return None
    high = negated.required_input(0)
    first, second = low.producer, high.producer
    if first is None or second is None or first.input(0) is None or first.input(0) != second.input(0):
        return None
    data = first.required_input(0)
    if data.shape is None or not isinstance(data.shape[-1], int) or data.shape[-1] % 2:
        return None
    size, rank = data.shape[-1], len(data.shape)
    if last_range(low, rank, size) != (0, size // 2) or last_range(high, rank, size) != (size // 2, size):
        return None
    return data, [concat, negated, first, second]


def last_range(part: Value, rank: int, size: int) -> tuple[int, int] | None:
    """Return the part of the last dim that a Split or a Slice gives out."""
    node = part.producer
    if node is not None and node.op == "Split":
        widths = [None if value.shape is None else value.shape[-1] for value in node.outputs]
        known = [width for width in widths if isinstance(width, int)]
        place = part.output_index or 0
        if node.attr("axis", 0) % rank != rank - 1 or len(known) != len(widths):
            return None
        return sum(known[:place]), sum(known[: place + 1])
    if node is None or node.op != "Slice":
        return None
    bounds = [None if (value := node.input(place)) is None else value.scalar for place in (1, 2, 3, 4)]
    start, end, axis, step = bounds
    if not isinstance(start, int) or not isinstance(end, int) or axis not in (-1, rank - 1):
        return None
    if (node.input(4) is not None and step != 1) or end < 0 or start < 0:
        return None
    return start, min(end, size)


def fits(factors: Value, shape: tuple[int | str | None, ...]) -> bool:
    """Return whether cos or sin is [batch or 1, 1, sequence, size]."""
    extents = factors.shape
    if extents is None or len(extents) != 4 or None in (*extents, *shape):
        return False
    return extents[0] in (1, shape[0]) and extents[1] == 1 and extents[2:] == shape[2:]


def repeats(value: Value) -> bool:
    """Return whether the two halves along the last axis are surely the same."""
    for _ in range(_STEPS):
        if value.is_constant:
            array = value.constant
            assert array is not None
            low, high = np.split(array, 2, axis=-1)
            return bool((low == high).all())
        producer = value.producer
        factor = scalar_factor(producer)
        if producer is None:
            return False
        if producer.op == "Concat":
            last = producer.attr("axis") in (-1, (value.rank or 0) - 1)
            return last and len(producer.inputs) == 2 and producer.input(0) == producer.input(1)
        if factor is not None:
            value = factor[0]
        elif producer.op in ("Cast", "Cos", "Sin") or (producer.op == "Unsqueeze" and (value.rank or 0) == 4):
            value = producer.required_input(0)
        else:
            return False
    return False


def half(value: Value, new: Builder) -> Value:
    """Compute one half of a value that `repeats`, from one half of what it is computed from.

    An axis that an Unsqueeze adds in front of the last is left out.
    """
    array, producer = value.constant, value.producer
    if array is not None:
        return new.constant(np.ascontiguousarray(np.split(array, 2, axis=-1)[0]), "half")
    assert producer is not None
    if producer.op == "Concat":
        return producer.required_input(0)
    if producer.op == "Unsqueeze":
        return half(producer.required_input(0), new)
    factor = scalar_factor(producer)
    if factor is None:
        inner = half(producer.required_input(0), new)
        return new.node(producer.op, inner, attributes=dict(producer.attributes))
    inputs = [half(operand, new) if operand == factor[0] else operand for operand in producer.inputs if operand]
    return new.node(producer.op, *inputs)


@dataclass(frozen=True)
class Partial:
    """A rotation of the first columns of each head: of `data`, `width` columns; `end` is the whole turned."""

    data: Value
    width: int
    end: Value
    nodes: frozenset[Node]


def partial(found: Rotation, turned: Value) -> Partial | None:
    """Read the Concat that puts the columns of a head that are not turned after those that are."""
    concat, cut = only_reader(turned), found.data.producer
    if concat is None or concat.op != "Concat" or len(concat.inputs) != 2 or concat.input(0) != turned or cut is None:
        return None
    whole, rest = cut.input(0), concat.required_input(1)
    if whole is None or whole.shape is None or rest.producer is None or rest.producer.input(0) != whole:
        return None
    rank, size, width = len(whole.shape), whole.shape[-1], (found.data.shape or (None,))[-1]
    if not isinstance(size, int) or not isinstance(width, int) or concat.attr("axis") not in (-1, rank - 1):
        return None
    if last_range(found.data, rank, size) != (0, width) or last_range(rest, rank, size) != (width, size):
        return None
    return Partial(whole, width, concat.outputs[0], frozenset({concat, cut, rest.producer}))
