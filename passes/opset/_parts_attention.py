"""Attention and rotary embeddings in smaller operators."""

from __future__ import annotations

import math

import numpy as np

from surgery import Refusal, Value

from . import _types
from ._calls import Call
from ._lowering import Lowering, Result, part
from ._parts_bodies import expand


@part("RotaryEmbedding")
def _rotary_embedding(call: Call, place: Lowering) -> Result:
    """Rotate each pair of elements by its angle: (a, b) becomes (a cos - b sin, a sin + b cos) (RotaryEmbedding 23)."""
    x, cos, sin, positions = call.first(4)
    assert x is not None and cos is not None and sin is not None
    heads = call.attr("num_heads") or 0
    rank, width = place.rank(x), _width(x, heads, place)
    turned = call.attr("rotary_embedding_dim") or width
    if turned is None:
        raise Refusal("the size of a head is not known")
    flat = rank == 3
    place.require(rank == 4 or heads, "RotaryEmbedding of three dims has no num_heads")
    split = _by_head(x, heads, flat, place)
    # The angles are by place and half a head; they get an axis of size 1 for the heads.
    axis = place.integers([1], "head")
    angles = [value if positions is None else place.node("Gather", value, positions, axis=0) for value in (cos, sin)]
    c, s = (place.node("Unsqueeze", value, axis) for value in angles)
    inner = split if turned == width else _part_of(split, 0, turned, 1, place)
    a, b = _pairs(inner, turned, bool(call.attr("interleaved")), place)
    real = place.node("Sub", place.node("Mul", c, a), place.node("Mul", s, b))
    imaginary = place.node("Add", place.node("Mul", s, a), place.node("Mul", c, b))
    made = _together(real, imaginary, turned, bool(call.attr("interleaved")), place)
    if turned != width:
        made = place.node("Concat", made, _part_of(split, turned, np.iinfo(np.int64).max, 1, place), axis=-1)
    return _joined(made, place) if flat else made


def _width(x: Value, heads: int, place: Lowering) -> int | None:
    """Return the size of a head."""
    last = place.width(x)
    if last is None:
        return None
    return last // heads if heads and place.rank(x) == 3 else last


def _pairs(x: Value, width: int, interleaved: bool, place: Lowering) -> tuple[Value, Value]:
    """Return the first and the second elements of all pairs, which are adjacent or half the width apart."""
    if interleaved:
        return _part_of(x, 0, width, 2, place), _part_of(x, 1, width, 2, place)
    return _part_of(x, 0, width // 2, 1, place), _part_of(x, width // 2, width, 1, place)


def _part_of(x: Value, start: int, end: int, step: int, place: Lowering) -> Value:
    numbers = ((start, "start"), (end, "end"), (-1, "last"), (step, "step"))
    return place.node("Slice", x, *(place.integers([number], name) for number, name in numbers))


def _together(real: Value, imaginary: Value, width: int, interleaved: bool, place: Lowering) -> Value:
    if not interleaved:
        return place.node("Concat", real, imaginary, axis=-1)
    last = place.integers([-1], "last")
    pairs = place.node("Concat", *(place.node("Unsqueeze", part_, last) for part_ in (real, imaginary)), axis=-1)
    return place.node("Reshape", pairs, place.integers([0, 0, 0, width], "flat"))


@part("Attention")
def _attention(call: Call, place: Lowering) -> Result:
    """Compute Softmax(Q·Kᵀ·scale + mask)·V per head (Attention 23); a call with other inputs is expanded by its schema.

    A row with all keys masked gives zeros, as the text of the operator specifies.
    """
    reads_masked = call.is_read(3) and call.attr("qk_matmul_output_mode") == 2 and call.attr("is_causal")
    place.require(
        not reads_masked, "ONNX Runtime uses the lowest number for a masked score, but the specification uses -inf"
    )
    if not _is_plain(call) or _width(call.input(0), call.attr("q_num_heads") or 0, place) is None:
        return expand(call, place)
    q, k, v, mask = call.first(4)
    assert q is not None and k is not None and v is not None
    flat = place.rank(q) == 3
    heads: int | None = call.attr("q_num_heads") or _heads(q)
    groups: int | None = call.attr("kv_num_heads") or _heads(k)
    width = _width(q, heads or 0, place)
    if heads is None or groups is None or width is None:
        return expand(call, place)
    scale = call.attr("scale") or 1 / math.sqrt(width)
    query, key, value = (_by_head(x, count, flat, place) for x, count in ((q, heads), (k, groups), (v, groups)))
    key, value = (repeated(x, heads // groups, groups, place) for x in (key, value))
    scores = place.node("MatMul", query, place.node("Transpose", key, perm=[0, 1, 3, 2]))
    scores = place.node("Mul", scores, place.number(scale, q, "scale"))
    weights = _weights(scores, mask, q, place)
    made = place.node("MatMul", weights, value)
    return _joined(made, place) if flat else made


def _is_plain(call: Call) -> bool:
    """Return whether a call has only queries, keys, values and a mask, in one precision."""
    extras = any(value is not None for value in call.inputs[4:]) or any(call.is_read(index) for index in (1, 2, 3))
    windows = any((call.attr(name, -1)) != -1 for name in ("left_window_size", "right_window_size"))
    special = call.attr("is_causal") or call.attr("softcap") or call.attr("softmax_precision")
    return not (extras or windows or special)


def _heads(x: Value) -> int | None:
    shape = x.shape
    return shape[1] if shape is not None and len(shape) == 4 and isinstance(shape[1], int) else None


def _by_head(x: Value, heads: int, flat: bool, place: Lowering) -> Value:
    if not flat:
        return x
    split = place.node("Reshape", x, place.integers([0, 0, heads, -1], "by_head"))
    return place.node("Transpose", split, perm=[0, 2, 1, 3])


def _joined(x: Value, place: Lowering) -> Value:
    """Join the heads along the last axis."""
    turned = place.node("Transpose", x, perm=[0, 2, 1, 3])
    return place.node("Reshape", turned, place.integers([0, 0, -1], "flat"))


def repeated(x: Value, times: int, groups: int, place: Lowering) -> Value:
    """Repeat each head of keys or values for the query heads that share it."""
    if times == 1:
        return x
    return place.node("Gather", x, place.integers(np.repeat(np.arange(groups), times).tolist(), "heads"), axis=1)


def _weights(scores: Value, mask: Value | None, q: Value, place: Lowering) -> Value:
    if mask is None:
        return place.node("Softmax", scores, axis=-1)
    low = place.number(-math.inf, q, "masked")
    if _types.element(place.known_kind(mask)) == "bool":
        scores = place.node("Where", mask, scores, low)
    else:
        scores = place.node("Add", scores, place.cast(mask, place.known_kind(q)))
    top = place.node("ReduceMax", scores, place.integers([-1], "last"))
    is_masked = place.node(
        "Equal", place.cast(top, "tensor(float)"), place.constant(np.array(-np.inf, np.float32), "low")
    )
    return place.node("Where", is_masked, place.number(0, q, "zero"), place.node("Softmax", scores, axis=-1))
