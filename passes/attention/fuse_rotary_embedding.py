"""Rotary position embeddings written out, as one operator."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass, is_computed

from ._core import Side, heads, scalar_factor


@graph_pass("fuse-rotary-embedding", parity=Parity.CLOSE)
def fuse_rotary_embedding(graph: Graph) -> None:
    """Fuse x * cos + rotate_half(x) * sin into RotaryEmbedding, from opset 23.

    Right because the operator turns the pair (x1, x2) of the halves of each head into (x1 cos - x2 sin,
    x2 cos + x1 sin), which is the sum written out when the two halves of cos, and of sin, are the same: they must
    come from a Concat of one value with itself, or be constant. The operator reads one half of them, for each
    element of the batch. A head that a Reshape and a Transpose cut out of a flat tensor is turned before it is cut.

    Example:
        <ir_version: 11, opset_import: ["" : 23]>
        g (float[B,2,S,4] x, float[B,S,2] angles) => (float[B,2,S,4] y)
        <int64[1] zero = {0}, int64[1] half = {2}, int64[1] end = {4}, int64[1] last = {3}, int64[1] one = {1}>
        {
            twice = Concat<axis = -1>(angles, angles)
            c = Cos(twice)
            s = Sin(twice)
            cos = Unsqueeze(c, one)
            sin = Unsqueeze(s, one)
            x1 = Slice(x, zero, half, last)
            x2 = Slice(x, half, end, last)
            n = Neg(x2)
            r = Concat<axis = -1>(n, x1)
            a = Mul(x, cos)
            b = Mul(r, sin)
            y = Add(a, b)
        }
    """
    prepared: dict[Any, dict[Value, Value]] = defaultdict(dict)
    for node in graph.nodes("Add"):
        found = _rotation(node) if node.opset >= 23 else None
        if found is None:
            continue
        caches, ready = prepared[node.scope], dict[Value, Value]()
        with graph.site(node) as new:
            ready = _fuse(found, node, caches, new)
        if node.is_removed:
            caches |= ready


@dataclass(frozen=True)
class Rotation:
    """A tensor of heads, the factors, and the nodes that turn it."""

    data: Value
    cos: Value
    sin: Value
    nodes: frozenset[Node]


def _rotation(add: Node) -> Rotation | None:
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
    if _range(first, low, rank, size) != (0, size // 2) or _range(second, high, rank, size) != (size // 2, size):
        return None
    return data, [concat, negated, first, second]


def _range(node: Node, part: Value, rank: int, size: int) -> tuple[int, int] | None:
    """Return the part of the last dim that a Split or a Slice gives out."""
    if node.op == "Split":
        widths = [None if value.shape is None else value.shape[-1] for value in node.outputs]
        known = [width for width in widths if isinstance(width, int)]
        place = part.output_index or 0
        if node.attr("axis", 0) % rank != rank - 1 or len(known) != len(widths):
            return None
        return sum(known[:place]), sum(known[: place + 1])
    if node.op != "Slice":
        return None
    bounds = [None if (value := node.input(place)) is None else value.scalar for place in (1, 2, 3, 4)]
    start, end, axis, step = bounds
    if not isinstance(start, int) or not isinstance(end, int) or axis not in (-1, rank - 1):
        return None
    if (node.input(4) is not None and step != 1) or end < 0 or start < 0:
        return None
    return start, min(end, size)


def _fuse(found: Rotation, add: Node, caches: dict[Value, Value], new: Builder) -> dict[Value, Value]:
    shape, dtype = found.data.shape, found.data.dtype
    new.require(shape is not None and len(shape) == 4, "the rotated tensor is not of rank 4")
    assert shape is not None
    new.require(is_computed("RotaryEmbedding", dtype), "no runtime has the operator for this type")
    inner = [value for node in found.nodes - {add} for value in node.outputs]
    alone = all(not value.is_output and set(value.consumers) <= found.nodes for value in inner)
    new.require(alone, "a value inside the rotation is read elsewhere too")
    ready = {}
    for factors in (found.cos, found.sin):
        new.require(_fits(factors, shape), "cos or sin is not known to fit the heads")
        new.require(_repeats(factors), "the halves of cos or sin are not known to be the same")
        ready[factors] = caches.get(factors) or _cache(factors, found.data, new)
    new.replace(add.outputs[0], _rotated(found, ready[found.cos], ready[found.sin], new))
    return ready


def _fits(factors: Value, shape: tuple[int | str | None, ...]) -> bool:
    """Return whether cos or sin is [batch or 1, 1, sequence, size]."""
    extents = factors.shape
    if extents is None or len(extents) != 4 or None in (*extents, *shape):
        return False
    return extents[0] in (1, shape[0]) and extents[1] == 1 and extents[2:] == shape[2:]


def _repeats(value: Value) -> bool:
    """Return whether the two halves along the last axis are surely the same."""
    for _ in range(8):
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


def _cache(factors: Value, data: Value, new: Builder) -> Value:
    """Return one half of cos or sin as [batch, sequence, size / 2]."""
    extents, shape = factors.shape, data.shape
    assert extents is not None and shape is not None and isinstance(shape[-1], int)
    unsqueeze = factors.producer
    is_lifted = unsqueeze is not None and unsqueeze.op == "Unsqueeze" and _axes(unsqueeze) == (1,)
    plain = unsqueeze.required_input(0) if unsqueeze is not None and is_lifted else None
    if plain is None:
        plain = new.node("Squeeze", factors, _ints(new, 1))
    half = new.node("Slice", plain, _ints(new, 0), _ints(new, shape[-1] // 2), _ints(new, 2))
    if extents[0] == shape[0]:
        return half
    cut = heads(Side(data))
    batch = new.node("Shape", data if cut is None else cut.flat, start=0, end=1)
    return new.node("Expand", half, new.node("Concat", batch, _ints(new, 1, 1), axis=0))


def _axes(unsqueeze: Node) -> tuple[int | str, ...] | None:
    axes = unsqueeze.input(1)
    return None if axes is None or not axes.is_constant else axes.elements


def _ints(new: Builder, *items: int) -> Value:
    return new.constant(np.array(items, np.int64), "ints")


def _rotated(found: Rotation, cos: Value, sin: Value, new: Builder) -> Value:
    cut, turn = heads(Side(found.data)), found.data.producer
    if cut is None or turn is None or not set(found.data.consumers) <= found.nodes or found.data.is_output:
        return new.node("RotaryEmbedding", found.data, cos, sin)
    reshape = turn.required_input(0).producer
    assert reshape is not None
    flat = new.node("RotaryEmbedding", cut.flat, cos, sin, num_heads=cut.count)
    again = new.node("Reshape", flat, reshape.required_input(1), attributes=dict(reshape.attributes))
    return new.node("Transpose", again, perm=[0, 2, 1, 3])
