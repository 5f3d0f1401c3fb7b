"""Written-out rotary position embeddings fused into one operator."""

from collections import defaultdict
from typing import Any

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._core import Side, heads
from ._rotation import Rotation, fits, gathered, repeats, rotations
from ._shared import ints


@graph_pass("fuse-rotary-embedding", parity=Parity.CLOSE)
def fuse_rotary_embedding(graph: Graph) -> None:
    """Fuse x * cos + rotate_half(x) * sin into RotaryEmbedding, from opset 23.

    Right because the operator rotates the pair (x1, x2) of the halves of each head into (x1 cos - x2 sin,
    x2 cos + x1 sin). This is the written-out sum if the two halves of cos, and of sin, are the same: they must come
    from a Concat of one value with itself, or be constant. The pair may also be written as the Concat of a difference
    and a sum, where cos and sin hold one half only. Pairs of neighbours that share their cos and sin are rotated by the
    `interleaved` form; if their results become halves, a Concat puts the neighbours into halves first. The operator
    reads one half of cos and sin for each element of the batch. A head that a Reshape and a Transpose cut out of a flat
    tensor is rotated before it is cut.

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
    for node, found in rotations(graph):
        if node.opset < 23:
            continue
        caches, ready = prepared[node.scope], dict[Value, Value]()
        with graph.site(node) as new:
            ready = _fuse(found, node, caches, new)
        if node.is_removed:
            caches |= ready


def _fuse(found: Rotation, add: Node, caches: dict[Value, Value], new: Builder) -> dict[Value, Value]:
    shape, dtype = found.shape, found.data.dtype
    new.require(shape is not None and len(shape) == 4, "the rotated tensor is not of rank 4")
    assert shape is not None
    new.require(new.target.computes("RotaryEmbedding", dtype, add.opset), "no runtime has the operator for this type")
    new.require(found.is_alone, "a value inside the rotation is read elsewhere too")
    axis, ready = found.heads_axis, {}
    new.require(isinstance(shape[axis], int) or axis == 1, "the number of heads is not known")
    for factors in (found.cos, found.sin):
        new.require(fits(factors, found.angles_shape, axis), "cos or sin is not known to fit the heads")
        same = found.is_halved or repeats(factors, interleaved=found.is_interleaved)
        new.require(same, "the halves of cos or sin are not known to be the same")
        ready[factors] = caches.get(factors) or _cache(factors, found, new)
    new.replace(found.end, found.whole(_rotated(found, ready[found.cos], ready[found.sin], new), new))
    return ready


def _cache(factors: Value, found: Rotation, new: Builder) -> Value:
    """Return one half of cos or sin as [batch, sequence, size / 2]."""
    data, extents, shape = found.data, factors.shape, found.shape
    assert extents is not None and shape is not None and isinstance(shape[-1], int)
    unsqueeze = factors.producer
    is_lifted = unsqueeze is not None and unsqueeze.op == "Unsqueeze" and _axes(unsqueeze) == (found.heads_axis,)
    plain = unsqueeze.required_input(0) if unsqueeze is not None and is_lifted else None
    if plain is None and len(extents) < 4:
        plain = factors if len(extents) == 3 else new.node("Unsqueeze", factors, ints(new, 0))
    elif plain is None:
        plain = new.node("Squeeze", factors, ints(new, found.heads_axis))
    half = plain
    if not found.is_halved:
        size = found.angles_shape[-1]
        assert isinstance(size, int)
        end, step = (size, [ints(new, 2)]) if found.is_interleaved else (size // 2, [])
        half = new.node("Slice", plain, ints(new, 0), ints(new, end), ints(new, 2), *step)
    if extents[0] == shape[0] and len(extents) == 4:
        return half
    cut = heads(Side(data))
    batch = new.node("Shape", data if cut is None else cut.flat, start=0, end=1)
    return new.node("Expand", half, new.node("Concat", batch, ints(new, 1, 1), axis=0))


def _of_sequence(found: Rotation, cos: Value, sin: Value, attributes: dict[str, int | None], new: Builder) -> Value:
    """Rotate heads after the axis of the sequence, [batch, sequence, heads, size], as one flat tensor."""
    *_, count, size = found.shape or ()
    assert isinstance(count, int) and isinstance(size, int)
    rows = new.node("Reshape", gathered(found, 23, new), ints(new, 0, 0, count * size))
    flat = new.node("RotaryEmbedding", rows, cos, sin, attributes={**attributes, "num_heads": count})
    return new.node("Reshape", flat, ints(new, 0, 0, count, size))


def _axes(unsqueeze: Node) -> tuple[int | str, ...] | None:
    axes = unsqueeze.input(1)
    return None if axes is None or not axes.is_constant else axes.elements


def _rotated(found: Rotation, cos: Value, sin: Value, new: Builder) -> Value:
    cut, turn = heads(Side(found.data)), found.data.producer
    attributes = {"rotary_embedding_dim": found.width, "interleaved": 1 if found.is_interleaved else None}
    is_read = found.data.is_output or not set(found.data.consumers) <= found.nodes
    if found.heads_axis == 2:
        return _of_sequence(found, cos, sin, attributes, new)
    if cut is None or turn is None or is_read or found.pieces or found.cuts:
        count = (found.shape or ())[1] if found.width is not None else None
        data = gathered(found, 23, new)
        return new.node("RotaryEmbedding", data, cos, sin, attributes={**attributes, "num_heads": count})
    reshape = turn.required_input(0).producer
    assert reshape is not None
    flat = new.node("RotaryEmbedding", cut.flat, cos, sin, attributes={**attributes, "num_heads": cut.count})
    again = new.node("Reshape", flat, reshape.required_input(1), attributes=dict(reshape.attributes))
    return new.node("Transpose", again, perm=[0, 2, 1, 3])
