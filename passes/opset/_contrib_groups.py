"""GroupQueryAttention and RotaryEmbedding of ONNX Runtime as ONNX operators.

Source: docs/ContribOperators.md, the kernels `group_query_attention.cc`, `gqa_attention_base.h` and
`rotary_embedding.cc`, and runs of them. A sequence has `seqlens_k` + 1 positions. They are all new in a prompt, where
the number of new positions is the length of the longest sequence; otherwise the new ones follow those of the cache. A
query sees the keys up to its own position, within the window, and none past the end of its sequence; a query that sees
no key gives zeros. Present has room for the longest sequence, or as much as past if that is more, and zeros in unused
places. For float16 the kernel computes products and weights in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from surgery import Refusal, Value, is_finite, sum_of_dims

from ._calls import Call
from ._contrib import (
    UNKNOWN_HEAD,
    Dim,
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
    widened,
)
from ._lowering import Lowering, Result, part
from ._parts_attention import repeated

_INT64 = "tensor(int64)"


@dataclass(frozen=True)
class _Lengths:
    """Numbers of positions, as int64 tensors.

    Shape [1]: the number of new positions, and of those of the longest sequence. Shape [batch, 1]: the number of
    positions of each sequence, and the number known before, None if there were none. `is_prompt` is whether all
    positions are new; it is not needed with `counts`, [batch, 1], the number of new positions without padding. If
    `is_uniform`, every sequence consists of all past and all new positions, and `before` is [1].
    """

    new: Value
    longest: Value
    totals: Value
    before: Value | None
    is_prompt: Value | None
    counts: Value | None = None
    is_uniform: bool = False


@part("com.microsoft::GroupQueryAttention")
def _group_query_attention(call: Call, place: Lowering) -> Result:
    """Multiply V by the softmax of capped Q·Kᵀ·scale + bias over visible keys; query heads share key heads."""
    _require_plain(call, place)
    heads, groups = int(call.attr("num_heads")), int(call.attr("kv_num_heads"))
    query, key, value, size = _tensors(call, heads, groups, place)
    lengths = _lengths(call, place)
    if call.attr("do_rotary", 0):
        query, key = (_rotated(call, one, lengths, size, place) for one in (query, key))
    present = [_cached(call.find(index), new, lengths, place) for index, new in ((3, key), (4, value))]
    filled = lengths.is_uniform or call.find(3) is None
    keys, values = present if filled else (_filled(one, lengths, place) for one in present)
    keys, values = (repeated(one, heads // groups, groups, place) for one in (keys, values))
    wide = [widened(one, place) for one in (query, keys, values)]
    made = joined(_attended(call, wide, lengths, size, place), place, heads * size)
    return [place.cast(made, place.known_kind(call.input(0))), *present][: call.outputs]


def _require_plain(call: Call, place: Lowering) -> None:
    place.require(not call.is_read(3), "the scores of GroupQueryAttention are read")
    rotates = call.attr("do_rotary", 0) and call.find(9) is not None
    place.require(call.find(16) is None or not rotates, "positions are given in addition to query lengths")
    place.require(not call.attr("sliding_window_cache", 0), "the cache holds a window only")
    quantized = any(call.attr(f"{side}_quant_type", "NONE") != "NONE" for side in "kv")
    place.require(not quantized, "the cache is quantized")


def _tensors(call: Call, heads: int, groups: int, place: Lowering) -> tuple[Value, Value, Value, int]:
    """Return queries, keys and values by head, and the head size; queries and keys are normalized if required."""
    query, key, value = call.input(0), call.find(1), call.find(2)
    width = place.width(query)
    if width is None:
        raise Refusal(UNKNOWN_HEAD)
    size = width // (heads + 2 * groups if key is None else heads)
    tensors = [query, key, value]
    if key is None:
        tensors = [*split(query, [heads * size, groups * size, groups * size], -1, place)]
    counts = (heads, groups, groups)
    made = [by_head(one, count, place, size) for one, count in zip(tensors, counts) if one is not None]
    for index, weight in enumerate((call.find(14), call.find(15))):
        if weight is not None:
            epsilon = call.attr(f"{'qk'[index]}_norm_epsilon") or call.attr("qk_norm_epsilon", 1e-6)
            made[index] = place.node("RMSNormalization", made[index], weight, axis=-1, epsilon=float(epsilon))
    return made[0], made[1], made[2], size


def _lengths(call: Call, place: Lowering) -> _Lengths:
    """Compute the lengths; without a past all positions are new."""
    new, one = extent(call.input(0), 1, place), place.integers([1], "one")
    if _is_uniform(call):
        past = call.find(3)
        before = None if past is None else extent(past, 2, place)
        longest = new if before is None else place.node("Add", before, new)
        return _Lengths(new, longest, longest, before, None, is_uniform=True)
    totals = unsqueezed(place.node("Add", place.cast(call.input(5), _INT64), one), [1], place)
    if call.find(3) is None:
        return _Lengths(new, new, totals, None, None)
    longest = place.node("Reshape", place.cast(call.input(6), _INT64), place.integers([1], "shape"))
    if call.find(16) is not None:
        counts = unsqueezed(place.cast(call.input(16), _INT64), [1], place)
        return _Lengths(new, longest, totals, place.node("Sub", totals, counts), None, counts)
    is_prompt = place.node("Equal", longest, new)
    earlier = place.node("Sub", totals, new)
    before = place.node("Where", is_prompt, place.integers([0], "none"), earlier)
    return _Lengths(new, longest, totals, before, is_prompt)


def _is_uniform(call: Call) -> bool:
    """Return whether each sequence is known to consist of all positions of the past and all new ones."""
    past, new, wanted = call.find(3), dims_of(call.input(0))[1], call.find(16)
    before = 0 if past is None else dims_of(past, 4)[2]
    total = sum_of_dims(before, new)
    if total is None or total != sum_of_dims(_same(call.find(5)), 1):
        return False
    return (past is None or total == _same(call.find(6))) and (wanted is None or new == _same(wanted))


def _same(value: Value | None) -> Dim | None:
    """Return the number that all elements of an integer tensor are equal to; None if it is not known."""
    if value is None:
        return None
    if value.elements is None and value.producer is not None and value.producer.op == "Expand":
        value = value.producer.required_input(0)
    elements = set(value.elements or ())
    return elements.pop() if len(elements) == 1 else None


def _places(lengths: _Lengths, place: Lowering) -> Value:
    """Return the position of each query, by sequence and query, or by query alone if there is no past."""
    at = counted(None, lengths.new, place)
    return at if lengths.before is None else place.node("Add", lengths.before, at)


def _rotated(call: Call, value: Value, lengths: _Lengths, size: int, place: Lowering) -> Value:
    cos, sin, given = call.input(7), call.input(8), call.find(9)
    positions = _places(lengths, place) if given is None else _given(given, lengths, place)
    both = place.node("Concat", extent(call.input(0), 0, place), lengths.new, axis=0)
    positions = place.node("Expand", positions, both)
    width = place.width(cos)
    place.require(width is not None, "the rotated part of a head is unknown")
    place.note(value, 4, size)
    turned = {} if width is None or 2 * width == size else {"rotary_embedding_dim": 2 * width}
    interleaved = int(call.attr("rotary_interleaved", 0))
    return place.node("RotaryEmbedding", value, cos, sin, positions, interleaved=interleaved, **turned)


def _given(positions: Value, lengths: _Lengths, place: Lowering) -> Value:
    """Return given positions; for a prompt the kernel reads only the first one and counts up from there."""
    flat = place.node("Reshape", positions, place.integers([-1], "flat"))
    first = place.node("Slice", flat, place.integers([0], "start"), place.integers([1], "end"))
    counted_on = place.node("Add", first, counted(None, lengths.new, place))
    return counted_on if lengths.is_prompt is None else place.node("Where", lengths.is_prompt, counted_on, positions)


def _cached(past: Value | None, new: Value, lengths: _Lengths, place: Lowering) -> Value:
    """Append new keys to the known ones, sequence by sequence, followed by zeros."""
    if past is None or lengths.before is None:
        return new
    if lengths.is_uniform:
        return place.node("Concat", past, new, axis=2)
    room = extent(past, 2, place)
    at = counted(None, place.node("Max", lengths.longest, room), place)
    since = place.node("Sub", at, lengths.before)
    none = place.integers([0], "none")
    is_old = place.node("Less", since, none)
    is_new = place.node("And", place.node("Not", is_old), place.node("Less", since, lengths.counts or lengths.new))
    source = place.node("Where", is_new, place.node("Add", since, room), none)
    source = unsqueezed(place.node("Where", is_old, at, source), [1, 3], place)
    like = place.node("Concat", *_extents(past, at, place), axis=0)
    found = place.node(
        "GatherElements", place.node("Concat", past, new, axis=2), place.node("Expand", source, like), axis=2
    )
    held = unsqueezed(place.node("Or", is_old, is_new), [1, 3], place)
    return place.node("Where", held, found, place.number(0, new, "zero"))


def _extents(past: Value, at: Value, place: Lowering) -> list[Value]:
    first, second, last = (extent(past, axis, place) for axis in (0, 1, 3))
    return [first, second, place.node("Shape", at), last]


def _filled(present: Value, lengths: _Lengths, place: Lowering) -> Value:
    """Cut off the unused room after the longest sequence."""
    start, axis = place.integers([0], "start"), place.integers([2], "axis")
    return place.node("Slice", present, start, lengths.longest, axis)


def _attended(call: Call, tensors: list[Value | None], lengths: _Lengths, size: int, place: Lowering) -> Value:
    query, keys, values = tensors
    assert query is not None and keys is not None and values is not None
    scores = products(query, keys, scale_of(call, size), place)
    cap, bias = float(call.attr("softcap", 0.0)), widened(call.find(10), place)
    if cap:
        limit = place.number(cap, scores, "cap")
        scores = place.node("Mul", place.node("Tanh", place.node("Div", scores, limit)), limit)
    low = place.number(-math.inf, scores, "masked")
    if lengths.is_uniform:
        scores = sum_of(place, scores, _mask(call, bias, lengths, low, place))
    else:
        scores = place.node("Where", _seen(call, lengths, place), sum_of(place, scores, bias), low)
    sink = widened(call.find(11), place)
    if sink is not None or call.attr("smooth_softmax", 0) == 1:
        return place.node("MatMul", _with_sink(scores, sink, place), values)
    weights = place.node("Softmax", scores, axis=-1)
    if _may_see_none(call, bias, lengths):
        nothing = place.node("Equal", place.node("ReduceMax", scores, place.integers([-1], "last")), low)
        weights = place.node("Where", nothing, place.number(0, scores, "zero"), weights)
    return place.node("MatMul", weights, values)


def _may_see_none(call: Call, bias: Value | None, lengths: _Lengths) -> bool:
    """Return whether all keys of a query may be hidden; in uniform lengths each query sees its own position."""
    if bias is not None and not (lengths.is_uniform and is_finite(call.input(10))):
        return True
    return not lengths.is_uniform and int(call.attr("local_window_size", -1)) > 0


def _mask(call: Call, bias: Value | None, lengths: _Lengths, low: Value, place: Lowering) -> Value | None:
    """Return the tensor added to the scores if all sequences have the same length, the same for all layers."""
    if not call.attr("causal", 1):
        return bias
    shown = place.number(0, low, "shown") if bias is None else bias
    return place.node("Where", _seen(call, lengths, place), shown, low)


def _seen(call: Call, lengths: _Lengths, place: Lowering) -> Value:
    """Return which keys a query sees, by sequence, head, query and key; by query and key if lengths are uniform."""
    at = counted(None, lengths.longest, place)
    if lengths.is_uniform:
        own = unsqueezed(_places(lengths, place), [-1], place)
        return _in_window(call, place.node("LessOrEqual", at, own), at, own, place)
    seen = unsqueezed(place.node("Less", at, lengths.totals), [1, 2], place)
    if not call.attr("causal", 1):
        return seen
    places = _places(lengths, place)
    own = unsqueezed(places, [-1] if lengths.before is None else [1, 3], place)
    return _in_window(call, place.node("And", seen, place.node("LessOrEqual", at, own)), at, own, place)


def _in_window(call: Call, seen: Value, at: Value, own: Value, place: Lowering) -> Value:
    """Hide keys that are at least the window width back."""
    window = int(call.attr("local_window_size", -1))
    if window > 0:
        end = place.node("Add", at, place.integers([window], "window"))
        seen = place.node("And", seen, place.node("Less", own, end))
    return seen


def _with_sink(scores: Value, sink: Value | None, place: Lowering) -> Value:
    """Return the softmax with one additional score, per head or 0, that takes a part of the weights."""
    shape = place.node("Shape", scores)
    pick = partial(place.node, "Slice", shape, place.integers([0], "start"))
    rows = place.node("Concat", pick(place.integers([-1], "end")), place.integers([1], "one"), axis=0)
    zero = place.number(0, scores, "zero")
    column = zero if sink is None else unsqueezed(sink, [1, 2], place)
    weights = place.node("Softmax", place.node("Concat", scores, place.node("Expand", column, rows), axis=-1), axis=-1)
    bounds = (place.integers([number], name) for number, name in ((0, "start"), (-1, "end"), (-1, "last")))
    return place.node("Slice", weights, *bounds)


@part("com.microsoft::RotaryEmbedding")
def _rotary_embedding(call: Call, place: Lowering) -> Result:
    """Compute the RotaryEmbedding of ONNX; a single position is that of the first element, counted up for the rest."""
    x, positions, cos, sin = (call.input(index) for index in range(4))
    place.require(not call.attr("is_packed_batching", 0), "sequences are packed into a batch")
    place.require(call.attr("scale", 1.0) == 1, "ONNX Runtime ignores a scale attribute of RotaryEmbedding")
    rank, half = len(dims_of(x)), place.width(cos)
    turned, heads = int(call.attr("rotary_embedding_dim", 0)), int(call.attr("num_heads", 0))
    if rank == 3 and not heads:
        width = place.width(x)
        if half is None or width is None:
            raise Refusal(UNKNOWN_HEAD)
        heads = width // (2 * half)
    given = {"num_heads": heads if rank == 3 else None, "rotary_embedding_dim": turned or None}
    interleaved = int(call.attr("interleaved", 0))
    angles = _angles(x, positions, cos, sin, place)
    return place.node("RotaryEmbedding", x, *angles, interleaved=interleaved, **given)


def _angles(x: Value, positions: Value, cos: Value, sin: Value, place: Lowering) -> tuple[Value, ...]:
    """Return cosines and sines, and the positions to look them up, if needed."""
    one_start = len(dims_of(positions)) == 1
    wanted = _first_rows(x, positions, cos, sin, place) if one_start else _all_rows(positions, cos, sin, place)
    if wanted is not None:
        return place.node("Reshape", cos, wanted), place.node("Reshape", sin, wanted)
    if one_start:
        length = extent(x, -2, place)
        offsets = place.node("Add", positions, counted(None, length, place))
        positions = place.node("Expand", offsets, place.node("Concat", extent(x, 0, place), length, axis=0))
    return cos, sin, positions


def _first_rows(x: Value, positions: Value, cos: Value, sin: Value, place: Lowering) -> Value | None:
    """Return the shape of tables whose rows match the positions in order, if all sequences begin with the first row.

    Since opset 23 RotaryEmbedding needs the angles of each sequence.
    """
    length = dims_of(x)[-2]
    rows = {dims_of(table)[0] for table in (cos, sin)}
    if place.target >= _ROTARY or positions.scalar != 0 or length is None or rows != {length}:
        return None
    return place.node("Concat", place.integers([1], "one"), place.node("Shape", cos), axis=0)


_ROTARY = 23
"""The opset of RotaryEmbedding."""


def _all_rows(positions: Value, cos: Value, sin: Value, place: Lowering) -> Value | None:
    """Return the shape of the tables by sequence and position, if the positions number all rows in order."""
    reshape = positions.producer
    if reshape is None or reshape.op != "Reshape":
        return None
    count, wanted = reshape.required_input(0), reshape.required_input(1)
    numbers = count.producer
    if numbers is None or numbers.op != "Range" or numbers.required_input(0).scalar != 0:
        return None
    rows, extents = dims_of(count)[0], wanted.elements
    is_each = numbers.required_input(2).scalar == 1 and rows is not None
    if not is_each or {dims_of(table)[0] for table in (cos, sin)} != {rows} or not extents or 0 in extents:
        return None
    return place.node("Concat", wanted, extent(cos, 1, place), axis=0)
