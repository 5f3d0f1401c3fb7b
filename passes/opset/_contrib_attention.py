"""The attention of ONNX Runtime with as many key heads as query heads, as ONNX operators.

Source: docs/ContribOperators.md, the kernels `multihead_attention.cc`, `attention.cc` and `attention_cpu_base.h`, and
runs of them. The kernels add the bias and a mask to the scaled products. The mask is `mask_filter_value`, by default
-10000, for a masked key, so a row with all keys masked weights them by their products alone. With `unidirectional`, it
is the lowest float32 for a key after the query, regardless of the rest of the mask. The last query sees all keys, even
if there are more keys than queries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from surgery import Refusal, Value

from ._calls import Call
from ._contrib import (
    LOWEST,
    UNKNOWN_HEAD,
    by_head,
    counted,
    dims_of,
    extent,
    joined,
    products,
    scale_of,
    split,
    sum_of,
    unsqueezed,
    weighted,
)
from ._lowering import Lowering, Result, part

_SHARED = "past and present share a buffer"


@part("com.microsoft::MultiHeadAttention")
def _multi_head_attention(call: Call, place: Lowering) -> Result:
    """Compute Softmax(Q·Kᵀ·scale + bias + mask)·V per head; keys and values come alone, packed, or by head."""
    place.require(call.find(8) is None and call.find(9) is None, _SHARED)
    heads = int(call.attr("num_heads"))
    query, key, value, size = _by_heads(call, heads, call.find(3), place)
    past = (call.find(6), call.find(7))
    return _attend(call, place, (query, key, value), past, (call.find(4), call.find(5)), size)[: call.outputs]


@part("com.microsoft::DecoderMaskedMultiHeadAttention")
def _decoder_attention(call: Call, place: Lowering) -> Result:
    """Compute MultiHeadAttention of one new position, with another input order; the past may be a larger buffer."""
    place.require(call.find(9) is None, "the keys of several beams share a cache")
    query, key, value, size = _by_heads(call, int(call.attr("num_heads")), call.find(10), place)
    past, added = (call.find(5), call.find(6)), (call.find(3), call.find(4))
    if not call.attr("past_present_share_buffer", 0) or past[0] is None or past[1] is None:
        return _attend(call, place, (query, key, value), past, added, size)[: call.outputs]
    length = place.node("Reshape", place.cast(call.input(7), "tensor(int64)"), place.integers([1], "shape"))
    end = place.node("Add", length, place.integers([1], "one"))
    held = [_written(old, new, length, place) for old, new in zip(past, (key, value)) if old is not None]
    bounds = (place.integers([0], "start"), end, place.integers([2], "axis"))
    keys, values = (place.node("Slice", buffer, *bounds) for buffer in held)
    made = _attend(call, place, (query, keys, values), (None, None), added, size)
    return [made[0], *held, made[3]][: call.outputs]


def _written(buffer: Value, new: Value, at: Value, place: Lowering) -> Value:
    """Write one position into a buffer."""
    is_there = place.node("Equal", counted(None, extent(buffer, 2, place), place), at)
    return place.node("Where", unsqueezed(is_there, [1], place), new, buffer)


def _by_heads(call: Call, heads: int, bias: Value | None, place: Lowering) -> tuple[Value, Value, Value, int]:
    """Return queries, keys and values as [batch, heads, place, size], and the size of a head of the queries."""
    query, key, value = call.input(0), call.find(1), call.find(2)
    rank = len(dims_of(query))
    if rank == 5:
        place.require(bias is None, "a bias is added to packed queries, keys and values")
        packed = _unpacked(query, 3, place)
        return packed[0], packed[1], packed[2], _int(place.width(query))
    width = _int(place.width(query))
    if key is None:
        parts = split(query, [width // 3] * 3, -1, place)
        size = width // 3 // heads
        made = [by_head(part_, heads, place, size) for part_ in _biased(parts, bias, [width // 3] * 3, place)]
        return made[0], made[1], made[2], size
    size = width // heads
    key_rank = len(dims_of(key))
    if key_rank != 3 or value is None:
        first = _biased([query], bias, [width], place)[0] if key_rank == 4 and bias is not None else query
        pair = _unpacked(key, 2, place) if key_rank == 5 else (key, value)
        place.require(pair[1] is not None and (bias is None or key_rank == 4), "a bias is added to packed keys")
        assert pair[1] is not None
        return by_head(first, heads, place, size), pair[0], pair[1], size
    last = place.width(value)
    widths = [width, width, last] if bias is not None else []
    query, key, value = _biased([query, key, value], bias, [_int(number) for number in widths], place)
    return by_head(query, heads, place, size), by_head(key, heads, place, size), by_head(value, heads, place), size


def _int(width: int | None) -> int:
    if width is None:
        raise Refusal(UNKNOWN_HEAD)
    return width


def _unpacked(packed: Value, count: int, place: Lowering) -> list[Value]:
    """Split [batch, place, heads, count, size] into `count` tensors [batch, heads, place, size]."""
    three = place.integers([3], "axes")
    parts = split(packed, [1] * count, 3, place)
    return [place.node("Transpose", place.node("Squeeze", one, three), perm=[0, 2, 1, 3]) for one in parts]


def _biased(values: Sequence[Value], bias: Value | None, widths: Sequence[int], place: Lowering) -> list[Value]:
    """Add the matching part of the bias of the projections to each tensor."""
    if bias is None:
        return list(values)
    if len(values) == 1:
        bounds = (place.integers([number], name) for number, name in ((0, "start"), (widths[0], "end"), (0, "axes")))
        return [place.node("Add", values[0], place.node("Slice", bias, *bounds))]
    parts = split(bias, widths, 0, place)
    return [place.node("Add", value, part_) for value, part_ in zip(values, parts)]


def _attend(
    call: Call,
    place: Lowering,
    tensors: tuple[Value, Value, Value],
    past: tuple[Value | None, Value | None],
    added: tuple[Value | None, Value | None],
    size: int,
) -> list[Value]:
    """Attend to past and new keys; return the outputs: the result, keys and values so far, and the scores."""
    query, key, value = tensors
    keys, values = (
        new if old is None else place.node("Concat", old, new, axis=2) for old, new in zip(past, (key, value))
    )
    mask, bias = added
    scores = sum_of(place, products(query, keys, scale_of(call, size), place), bias)
    if mask is not None or call.attr("unidirectional", 0):
        scores = place.node("Add", scores, _mask(call, mask, (query, keys), past[0], place))
    made = joined(weighted(scores, values, place), place)
    return [made, keys, values, scores]


def _mask(call: Call, mask: Value | None, tensors: tuple[Value, Value], past: Value | None, place: Lowering) -> Value:
    """Return the mask that is added to the scores, broadcastable to batch, head, query and key."""
    data, (query, keys) = call.input(0), tensors
    low = place.number(float(call.attr("mask_filter_value", -10000.0)), query, "masked")
    zero = place.number(0, query, "zero")
    found = None if mask is None else place.node("Where", _kept(mask, data, keys, place), zero, low)
    if not call.attr("unidirectional", 0):
        assert found is not None
        return found
    lowest = place.number(LOWEST, query, "after")
    return place.node("Where", _before(call, tensors, past, place), zero if found is None else found, lowest)


def _kept(mask: Value, data: Value, keys: Value, place: Lowering) -> Value:
    """Return which keys count: those with a mask number above 0, or those between starts and ends."""
    dims, batch = dims_of(mask), dims_of(data)[0]
    zero = place.number(0, mask, "zero")
    if len(dims) > 1:
        place.require(len(dims) < 4, "the mask has four dims")
        return unsqueezed(place.node("Greater", mask, zero), [1, 2] if len(dims) == 2 else [1], place)
    at = place.cast(counted(None, extent(keys, 2, place), place), place.known_kind(mask))
    ends, starts = mask, None
    if dims[0] != batch:
        place.require(
            isinstance(batch, int) and isinstance(dims[0], int), "the number of lengths in the mask is unknown"
        )
        assert isinstance(batch, int) and isinstance(dims[0], int)
        sizes = [batch, batch] if dims[0] == 2 * batch else [batch, dims[0] - batch]
        parts = split(mask, sizes, 0, place)
        ends, starts = parts[0], parts[1] if dims[0] == 2 * batch else None
    kept = place.node("Less", at, unsqueezed(ends, [1], place))
    if starts is not None:
        kept = place.node("And", kept, place.node("GreaterOrEqual", at, unsqueezed(starts, [1], place)))
    return unsqueezed(kept, [1, 2], place)


def _before(call: Call, tensors: tuple[Value, Value], past: Value | None, place: Lowering) -> Value:
    """Return which keys are not after a query, by query and key; the last query sees all keys."""
    query, keys = tensors
    data, key = call.input(0), call.find(1) if call.op.rpartition("::")[2] != "Attention" else None
    length = dims_of(data)[1]
    others = dims_of(key) if key is not None else None
    same = others is None or (len(others) != 4 and others[1] == length)
    old = 0 if past is None else None if past.shape is None else past.shape[2]
    if isinstance(length, int) and isinstance(old, int) and same:
        before = int(old)
        seen = np.arange(length + before)[None, :] <= np.arange(length)[:, None] + before
        return place.constant(seen, "before")
    start = None if past is None else extent(past, 2, place)
    count = extent(query, 2, place)
    rows = counted(start, count if start is None else place.node("Add", start, count), place)
    seen_by = place.node("LessOrEqual", counted(None, extent(keys, 2, place), place), unsqueezed(rows, [1], place))
    if same:
        return seen_by
    last = place.node("Sub", count, place.integers([1], "one"))
    end = last if start is None else place.node("Add", start, last)
    return place.node("Or", seen_by, unsqueezed(place.node("Equal", rows, end), [1], place))


@part("com.microsoft::Attention")
def _attention(call: Call, place: Lowering) -> Result:
    """Compute Q, K and V as one product with the input, then attend; past and present hold keys and values each."""
    place.require(not call.attr("past_present_share_buffer", 0) and call.find(6) is None, _SHARED)
    product = sum_of(place, place.node("MatMul", call.input(0), call.input(1)), call.find(2))
    return projected(call, product, (call.find(4), call.find(3), call.find(5)), place)


def projected(
    call: Call, product: Value, extras: tuple[Value | None, Value | None, Value | None], place: Lowering
) -> Result:
    """Attend with the result of the projection; `extras` are the past, the mask and the bias of the scores."""
    past, mask, bias = extras
    place.require(not call.attr("do_rotary", 0), "the angles of rotated queries and keys are not among the inputs")
    heads, width = int(call.attr("num_heads")), _int(place.width(call.input(1)))
    sizes = [int(number) for number in call.attr("qkv_hidden_sizes", [])] or [width // 3] * 3
    if mask is not None and _says_nothing(mask, call.input(0), past):
        mask = None
    parts = split(product, sizes, -1, place)
    query, key, value = (by_head(one, heads, place, size // heads) for one, size in zip(parts, sizes))
    old: tuple[Value | None, Value | None] = (None, None)
    if past is not None:
        pair = split(past, [1, 1], 0, place)
        first, second = (place.node("Squeeze", one, place.integers([0], "axes")) for one in pair)
        old = (first, second)
    made = _attend(call, place, (query, key, value), old, (mask, bias), sizes[0] // heads)
    if call.outputs < 2 or not call.is_read(1):
        return made[:1]
    return [made[0], place.node("Concat", *(unsqueezed(one, [0], place) for one in made[1:3]), axis=0)]


def _says_nothing(mask: Value, data: Value, past: Value | None) -> bool:
    """Return whether a mask is one column, which affects all keys equally, as if there were no mask."""
    dims = dims_of(mask)
    several = past is not None or dims_of(data)[1] != 1
    return len(dims) == 2 and dims[1] == 1 and several
