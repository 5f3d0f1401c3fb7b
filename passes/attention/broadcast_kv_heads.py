"""Keys and values repeated for each query of a group."""

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._core import Core, Repetition, flat_behind, keeps, repetition
from ._shared import Masks, ints, rewrite_cores


@graph_pass("broadcast-kv-heads", parity=Parity.CLOSE)
def broadcast_kv_heads(graph: Graph) -> None:
    """Broadcast keys and values to grouped queries instead of copying them.

    Right because query head h reads head h // G of keys and values when each of those is repeated G times in a row.
    With query heads as [groups, G] and key and value heads as [groups, 1], MatMul pairs them in the same way. The mask
    gets the additional axis once for all layers; it must be the same for all heads. OpenVINO fuses the attention only
    with repeated keys and values, so the target `openvino` keeps them.

    Example:
        g (float[B,4,S,2] q, float[B,2,S,2] k, float[B,2,S,2] v) => (float[B,S,8] y)
        <int64[1] two = {2}, int64[5] twice = {1, 1, 2, 1, 1}, int64[4] all = {0, 4, -1, 2}, int64[3] flat = {0, 0, 8}>
        {
            k1 = Unsqueeze(k, two)
            k2 = Expand(k1, twice)
            k3 = Reshape(k2, all)
            v1 = Unsqueeze(v, two)
            v2 = Expand(v1, twice)
            v3 = Reshape(v2, all)
            kt = Transpose<perm = [0, 1, 3, 2]>(k3)
            s = MatMul(q, kt)
            p = Softmax(s)
            c = MatMul(p, v3)
            t = Transpose<perm = [0, 2, 1, 3]>(c)
            y = Reshape(t, flat)
        }
    """
    rewrite_cores(graph, 13, _broadcast)


def _broadcast(softmax: Node, found: Core, masks: Masks, new: Builder) -> Masks:
    if found.keys.perm or repetition(found.keys.value) is None:
        return {}
    repeated = new.target.prefers.get("grouped_heads") == "repeated"
    new.require(not repeated, "the target prefers keys and values that are repeated")
    new.require(softmax.attr("axis") in (-1, 3), "Softmax is not along the keys")
    keys, values = repetition(found.keys.value), repetition(found.values)
    new.require(keys is not None and values is not None, "keys and values are repeated differently")
    assert keys is not None and values is not None
    new.require((keys.count, keys.times) == (values.count, values.times), "keys and values are repeated differently")
    extents = found.queries.shape
    whole = extents is not None and len(extents) == 4 and extents[1] == keys.count * keys.times
    new.require(whole and isinstance(extents[3], int), "the heads of the queries are not known")  # type: ignore[index]
    join = flat_behind(found.context)
    flat = None if join is None or not keeps(join, 2) else join.outputs[0].shape
    whole = flat is not None and len(flat) == 3 and isinstance(flat[2], int)
    new.require(whole, "the heads are not put side by side after the values")
    assert extents is not None and join is not None and flat is not None
    queries = _grouped(softmax, found, keys, new)
    scores = new.node("MatMul", queries, new.node("Transpose", keys.apart, perm=[0, 1, 2, 4, 3]))
    if found.scale != 1:
        scores = new.node("Mul", scores, _number(found.scale, found.queries, new))
    ready: Masks = {}
    if found.mask is not None:
        ready = {found.mask: masks.get(found.mask) or _mask(found.mask, new)}
        scores = new.node("Add", scores, ready[found.mask])
    probabilities = new.node("Softmax", scores, axis=-1)
    if found.guarded:
        zero = _number(0, found.queries, new, "zero")
        probabilities = new.node("Where", new.node("IsNaN", probabilities), zero, probabilities)
    context = new.node("MatMul", probabilities, values.apart)
    rows = new.node("Transpose", context, perm=[0, 3, 1, 2, 4])
    target = new.constant(np.array([0, 0, flat[2]], np.int64), "flat")
    new.replace(join.outputs[0], new.node("Reshape", rows, target))
    return ready


def _grouped(softmax: Node, found: Core, keys: Repetition, new: Builder) -> Value:
    """Return the queries [batch, heads, sequence, size] as [batch, count, times, sequence, size].

    A -1 for the sequence next to an empty batch would be rejected, so it is only used if the batch is not empty, or if
    the Reshape that repeats the keys has one as well.
    """
    queries, extents = found.queries, found.queries.shape
    assert extents is not None and isinstance(extents[3], int)
    repeats = found.keys.value.producer
    given = repeats.required_input(1).elements if repeats is not None and repeats.op == "Reshape" else None
    is_fixed = isinstance(extents[0], int) or isinstance(extents[2], int)
    if is_fixed or softmax.opset < 15 or -1 in (given or (-1,)):
        sequence = extents[2] if isinstance(extents[2], int) else -1
        return new.node("Reshape", queries, ints(new, 0, keys.count, keys.times, sequence, extents[3]))
    batch, length = (new.node("Shape", queries, start=axis, end=axis + 1) for axis in (0, 2))
    heads, size = ints(new, keys.count, keys.times), ints(new, extents[3])
    groups = new.node("Concat", batch, heads, length, size, axis=0)
    return new.node("Reshape", queries, groups, allowzero=1)


def _number(number: float, like: Value, new: Builder, name: str = "scale") -> Value:
    assert like.dtype is not None
    return new.constant(np.array(number, like.dtype.numpy()), name)


def _mask(mask: Value, new: Builder) -> Value:
    """Add an axis to a mask that has one for the heads, along which it must be the same."""
    extents = mask.shape
    new.require(extents is not None and len(extents) <= 4, "the rank of the mask is not known")
    assert extents is not None
    if len(extents) < 3:
        return mask
    new.require(extents[-3] == 1, "the mask differs between heads")
    if len(extents) == 3:
        return mask
    return new.node("Unsqueeze", mask, new.constant(np.array([1], np.int64), "axes"))
