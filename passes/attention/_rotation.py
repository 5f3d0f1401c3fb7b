"""Written-out rotary position embeddings: the rotated tensor, the cosines and sines, and their halves."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from surgery import Builder, Graph, Node, Value

from ._core import only_reader, scalar_factor
from ._linear import Array
from ._neighbours import neighbours_repeat, neighbours_turned, single, takes_each_second
from ._shared import split

_STEPS = 8
"""Maximum number of nodes followed from cos or sin back to the Concat that repeats its halves."""


Dims = tuple[int | str | None, ...]


@dataclass(frozen=True)
class Rotation:
    """A tensor of heads, its factors `cos` and `sin`, the nodes that rotate it, and their result `end`.

    If `is_halved`, the factors have half as many columns as are rotated. With a `width`, only the first `width` columns
    of each head are rotated. With `pieces`, the heads are these two adjacent outputs of a Split of `data`. If
    `is_interleaved`, pairs are neighbours instead of columns of the two halves. With `cuts`, pairs are neighbours of
    `data`, cut out as these two values, whose results become halves. `before` are columns that a Concat puts in front.
    """

    data: Value
    cos: Value
    sin: Value
    nodes: frozenset[Node]
    end: Value
    is_halved: bool = False
    width: int | None = None
    pieces: tuple[Value, Value] | None = None
    is_interleaved: bool = False
    cuts: tuple[Value, Value] | None = None
    before: Value | None = None

    @property
    def shape(self) -> Dims | None:
        """The dims of the heads."""
        shape = self.data.shape
        if shape is None or not self.pieces:
            return shape
        return (*shape[:-1], sum(_width(piece) for piece in self.pieces))

    @property
    def angles_shape(self) -> Dims:
        """The dims of a cos or sin that differs for each batch element and head."""
        *outer, size = self.shape or (None,)
        assert isinstance(size, int)
        turned = size if self.width is None else self.width
        return (*outer, turned // 2 if self.is_halved else turned)

    @property
    def heads_axis(self) -> int:
        """The axis of the heads: 1, or 2 if cos and sin are laid out for [batch, sequence, heads, size]."""
        shape = self.angles_shape
        return 2 if not fits(self.cos, shape, 1) and fits(self.cos, shape, 2) else 1

    @property
    def is_alone(self) -> bool:
        """Whether no other node reads an inner value, which is one that nodes of the rotation both produce and read."""
        made = {value for node in self.nodes for value in node.outputs}
        read = {value for node in self.nodes for value in node.inputs}
        return all(not value.is_output and set(value.consumers) <= self.nodes for value in made & read)

    def whole(self, turned: Value, new: Builder) -> Value:
        """Return the value that replaces `end`, given the rotated heads."""
        return turned if self.before is None else new.node("Concat", self.before, turned, axis=-1)


def rotations(graph: Graph) -> Iterator[tuple[Node, Rotation]]:
    """Yield all rotations of a graph, with the node that each is read from."""
    for node in graph.nodes("Add", "Concat"):
        found = None if node.is_removed else rotation(node) if node.op == "Add" else halves(node)
        if found is not None:
            yield node, found


def rotation(add: Node) -> Rotation | None:
    """Read x * cos + rotate_half(x) * sin from its Add; or with neighbours as the pairs that are rotated."""
    products = [operand.producer for operand in add.inputs if operand is not None]
    if len(products) != 2 or any(product is None or product.op != "Mul" for product in products):
        return None
    for plain, turned in (products, products[::-1]):
        assert plain is not None and turned is not None
        for place in (0, 1):
            turn = turned.required_input(place)
            half_turn, pairs = _half_turn(turn), neighbours_turned(turn)
            found = half_turn or pairs
            if found is not None and found[0] in plain.inputs:
                data, nodes = found
                cos = plain.required_input(0 if plain.input(1) == data else 1)
                inside = frozenset({add, plain, turned, *nodes})
                sin, interleaved = turned.required_input(1 - place), half_turn is None
                return Rotation(data, cos, sin, inside, add.outputs[0], is_interleaved=interleaved)
    return None


def halves(concat: Node) -> Rotation | None:
    """Read the Concat of x1 * cos - x2 * sin and x2 * cos + x1 * sin, where x1 and x2 are the rotated halves."""
    rank = concat.outputs[0].rank
    if rank is None or concat.attr("axis") not in (-1, rank - 1) or len(concat.inputs) not in (2, 3):
        return None
    places = (0, 1) if _is_difference(concat.required_input(0)) else (len(concat.inputs) - 2, len(concat.inputs) - 1)
    difference, total = (concat.required_input(place).producer for place in places)
    if difference is None or total is None or (difference.op, total.op) != ("Sub", "Add"):
        return None
    inside = [concat, difference, total]
    products = [value.producer for node in inside[1:] for value in node.inputs if value is not None]
    if len(products) != 4 or any(node is None or node.op != "Mul" for node in products):
        return None
    real, imaginary, *others = [node for node in products if node is not None]
    for low, cos in _orders(real):
        for high, sin in _orders(imaginary):
            crossed = {frozenset((high, cos)), frozenset((low, sin))}
            if {frozenset(node.inputs) for node in others} == crossed:
                found = _of_halves(low, high, (cos, sin), frozenset({*inside, real, imaginary, *others}), concat)
                if found is not None:
                    return found
    return None


def _is_difference(value: Value) -> bool:
    return value.producer is not None and value.producer.op == "Sub"


def _orders(product: Node) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
    first, second = product.required_input(0), product.required_input(1)
    return (first, second), (second, first)


def _of_halves(
    low: Value, high: Value, factors: tuple[Value, Value], inside: frozenset[Node], concat: Node
) -> Rotation | None:
    """Return the rotation of two halves that are cut from one tensor."""
    first, second = low.producer, high.producer
    data = None if first is None else first.input(0)
    if first is None or second is None or data is None or second.input(0) != data or data.shape is None:
        return None
    rank, size = len(data.shape), data.shape[-1]
    if not isinstance(size, int):
        return None
    follows = not _is_difference(concat.required_input(0))
    if takes_each_second(first, 0, rank) and takes_each_second(second, 1, rank) and size % 2 == 0:
        if len(concat.inputs) == 3 and not follows:
            return None
        before = concat.required_input(0) if follows else None
        return Rotation(data, *factors, inside, concat.outputs[0], is_halved=True, cuts=(low, high), before=before)
    if follows:
        return None
    bounds = last_range(low, rank, size), last_range(high, rank, size)
    width = 0 if bounds[1] is None else bounds[1][1]
    if width < 2 or bounds != ((0, width // 2), (width // 2, width)) or width % 2:
        return None
    found = Rotation(data, *factors, inside | {first, second}, concat.outputs[0], is_halved=True, width=width)
    if len(concat.inputs) == 3:
        return _with_rest(found, concat.required_input(2))
    after = only_reader(found.end)
    if after is not None and after.op == "Concat" and len(after.inputs) == 2 and after.input(0) == found.end:
        whole = _with_rest(found, after.required_input(1)) if after.attr("axis") in (-1, rank - 1) else None
        if whole is not None:
            return replace(whole, nodes=whole.nodes | {after}, end=after.outputs[0])
    return replace(found, width=None) if width == size else None


def gathered(found: Rotation, opset: int, new: Builder) -> Value:
    """Return the heads to rotate, if necessary from a new Split that keeps their two pieces together.

    Neighbours that become halves are put into two halves.
    """
    if found.cuts is not None:
        return new.node("Concat", *found.cuts, axis=-1)
    node = None if found.pieces is None else found.pieces[0].producer
    if node is None or found.pieces is None:
        return found.data
    first, widths = found.pieces[0].output_index or 0, [_width(value) for value in node.outputs]
    joined = [*widths[:first], sum(widths[first : first + 2]), *widths[first + 2 :]]
    parts = split(found.data, len(found.shape or ()) - 1, joined, new, opset)
    others = [*node.outputs[:first], *node.outputs[first + 2 :]]
    for old, value in zip(others, [*parts[:first], *parts[first + 1 :]]):
        if old.is_used:
            new.replace(old, value)
    return parts[first]


def _width(value: Value) -> int:
    """Return the last dim, which must be known."""
    last = (value.shape or (None,))[-1]
    assert isinstance(last, int)
    return last


def _with_rest(found: Rotation, rest: Value) -> Rotation | None:
    """Extend a rotation to whole heads if `rest` holds the unrotated columns of the same heads; otherwise None."""
    assert found.width is not None
    cut, data = rest.producer, found.data
    whole = None if cut is None else cut.input(0)
    if cut is None or whole is None or whole.shape is None or not isinstance(whole.shape[-1], int):
        return None
    rank, size, nodes = len(whole.shape), whole.shape[-1], found.nodes | {cut}
    stays = last_range(rest, rank, size)
    if data != whole:
        inner = data.producer
        if inner is None or inner.input(0) != whole or stays is None:
            return None
        bounds = last_range(data, rank, size)
        if inner == cut and len(cut.outputs) > 2 and bounds == (stays[0] - found.width, stays[0]):
            return replace(found, data=whole, nodes=nodes, pieces=(data, rest))
        if bounds != (0, found.width):
            return None
        nodes |= {inner}
    return replace(found, data=whole, nodes=nodes) if stays == (found.width, size) else None


def _half_turn(value: Value) -> tuple[Value, list[Node]] | None:
    """Return x and the nodes in between if a value is Concat(-x2, x1), x1 and x2 being the halves of x; else None."""
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
    """Return the range of the last dim that a Split or Slice outputs; None if unknown."""
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


def fits(factors: Value, shape: Dims, axis: int) -> bool:
    """Return whether cos or sin has the dims of the heads with 1 at their `axis`, and may have 1 for the batch."""
    extents = full_shape(factors)
    if len(extents) != 4 or len(shape) != 4 or None in (*extents, *shape):
        return False
    wanted = (*shape[:axis], 1, *shape[axis + 1 :])
    return extents[0] in (1, shape[0]) and extents[1:] == wanted[1:]


def full_shape(factors: Value) -> Dims:
    """Return the dims of cos or sin with 1 in front of them up to rank 4; empty if unknown."""
    extents = factors.shape
    return () if extents is None else (*(1,) * (4 - len(extents)), *extents)


def repeats(value: Value, *, interleaved: bool = False) -> bool:
    """Return whether the two halves along the last axis, or all neighbours, are known to be the same."""
    for _ in range(_STEPS):
        if value.is_constant:
            array = value.constant
            assert array is not None
            low, high = _parts(array, interleaved=interleaved)
            return bool((low == high).all())
        producer = value.producer
        factor = scalar_factor(producer)
        if producer is None:
            return False
        if interleaved and producer.op == "Reshape":
            return neighbours_repeat(producer)
        if producer.op == "Concat":
            last = not interleaved and producer.attr("axis") in (-1, (value.rank or 0) - 1)
            return last and len(producer.inputs) == 2 and producer.input(0) == producer.input(1)
        if factor is not None:
            value = factor[0]
        elif producer.op in ("Cast", "Cos", "Sin") or (producer.op == "Unsqueeze" and (value.rank or 0) == 4):
            value = producer.required_input(0)
        else:
            return False
    return False


def half(value: Value, new: Builder, *, interleaved: bool = False) -> Value:
    """Compute one half of a value that `repeats` from one half of its inputs.

    An axis that an Unsqueeze adds before the last axis is left out.
    """
    array, producer = value.constant, value.producer
    if array is not None:
        return new.constant(np.ascontiguousarray(_parts(array, interleaved=interleaved)[0]), "half")
    assert producer is not None
    if interleaved and producer.op == "Reshape":
        return single(producer, new)
    if producer.op == "Concat":
        return producer.required_input(0)
    if producer.op == "Unsqueeze":
        return half(producer.required_input(0), new, interleaved=interleaved)
    factor = scalar_factor(producer)
    if factor is None:
        inner = half(producer.required_input(0), new, interleaved=interleaved)
        return new.node(producer.op, inner, attributes=dict(producer.attributes))
    inputs = [
        half(operand, new, interleaved=interleaved) if operand == factor[0] else operand
        for operand in producer.inputs
        if operand
    ]
    return new.node(producer.op, *inputs)


def _parts(array: Array, *, interleaved: bool) -> tuple[Array, Array]:
    """Return the two halves along the last axis, or the elements at even and at odd places."""
    if interleaved:
        return array[..., ::2], array[..., 1::2]
    low, high = np.split(array, 2, axis=-1)
    return low, high


def widened(found: Rotation) -> Rotation:
    """Extend a rotation to whole heads if a Concat appends the unrotated columns; otherwise return it unchanged."""
    concat, size = only_reader(found.end), (found.data.shape or (None,))[-1]
    if found.is_halved or concat is None or concat.op != "Concat" or len(concat.inputs) != 2:
        return found
    rank = found.data.rank
    if concat.input(0) != found.end or rank is None or concat.attr("axis") not in (-1, rank - 1):
        return found
    assert isinstance(size, int)
    whole = _with_rest(replace(found, width=size), concat.required_input(1))
    if whole is None or whole.data == found.data:
        return found
    return replace(whole, nodes=whole.nodes | {concat}, end=concat.outputs[0])
