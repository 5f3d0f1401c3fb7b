"""Extents that operators of com.microsoft require to be equal.

Source: the input checks of ONNX Runtime's kernels (`multihead_attention_helper.h`, `group_query_attention_helper.h`,
`attention_base.h`, `embed_layer_norm_helper.cc`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from surgery.model.shapes.declarations import Extent

if TYPE_CHECKING:
    import onnx_ir as ir

Pair = tuple[Extent, Extent]
Dims = list[Extent]
Shapes = Sequence[Dims | None]
Rule = Callable[[Shapes], Iterator[Pair]]


def contrib_pairs(node: ir.Node, shapes: Shapes, elements: Callable[[int], Dims | None]) -> Iterator[Pair]:
    """Yield the pairs of extents that must be equal; one of them is a sum where lengths add up.

    `elements` returns the elements of a small input, if they are extents.
    """
    if node.op_type == "GroupQueryAttention":
        yield from _lengths(shapes, elements(6))
    rule = _RULES.get(node.op_type)
    if rule is not None:
        yield from rule(shapes)


def _dims(shapes: Shapes, index: int, *ranks: int) -> Dims | None:
    """Return the dims of an input if it is present and has one of the ranks."""
    found = shapes[index] if index < len(shapes) else None
    return found if found is not None and len(found) in ranks else None


def _multi_head_attention(shapes: Shapes) -> Iterator[Pair]:
    query, key, value = _dims(shapes, 0, 3, 5), _dims(shapes, 1, 3, 4, 5), _dims(shapes, 2, 3, 4)
    if query is None:
        return
    for other in (key, value):
        if other is not None:
            yield query[0], other[0]
    if key is not None and value is not None:
        yield _length(key), _length(value)
    past = _dims(shapes, 6, 4)
    yield from _pasts(query, past, _dims(shapes, 7, 4))
    if len(shapes) <= 8 or shapes[8] is None:
        new = query[1] if key is None else _length(key)
        yield from _scores(query, _sum(past, new), _dims(shapes, 4, 1, 2, 3), _dims(shapes, 5, 4))


def _length(dims: Dims) -> Extent:
    return dims[2] if len(dims) == 4 else dims[1]


def _sum(past: Dims | None, new: Extent) -> Extent:
    return new if past is None else f"({past[-2]}) + ({new})"


def _pasts(query: Dims, key: Dims | None, value: Dims | None) -> Iterator[Pair]:
    for past in (key, value):
        if past is not None:
            yield query[0], past[0]
    if key is not None and value is not None:
        yield key[2], value[2]


def _scores(query: Dims, total: Extent, mask: Dims | None, bias: Dims | None) -> Iterator[Pair]:
    """Yield the pairs for a mask of batch, optionally query, and key, and for a bias that ends with query and key."""
    if mask is not None and len(mask) > 1:
        yield mask[0], query[0]
        yield mask[-1], total
        if len(mask) == 3:
            yield mask[1], query[1]
    if bias is not None:
        yield bias[2], query[1]
        yield bias[3], total


def _attention(shapes: Shapes) -> Iterator[Pair]:
    data, past = _dims(shapes, 0, 3), _dims(shapes, 4, 5)
    if data is None:
        return
    if past is not None:
        yield data[0], past[1]
    if len(shapes) <= 6 or shapes[6] is None:
        yield from _scores(data, _sum(past, data[1]), _dims(shapes, 3, 2, 3), _dims(shapes, 5, 4))


def _decoder_attention(shapes: Shapes) -> Iterator[Pair]:
    query, key, value = _dims(shapes, 0, 3), _dims(shapes, 1, 3, 4), _dims(shapes, 2, 3, 4)
    if query is None:
        return
    for other in (key, value):
        if other is not None:
            yield query[0], other[0]
    if key is not None and value is not None:
        yield _length(key), _length(value)
    yield from _pasts(query, _dims(shapes, 5, 4), _dims(shapes, 6, 4))


def _group_query_attention(shapes: Shapes) -> Iterator[Pair]:
    query = _dims(shapes, 0, 3)
    if query is None:
        return
    for index in (1, 2):
        other = _dims(shapes, index, 3)
        if other is not None:
            yield from zip(query[:2], other[:2])
    yield from _pasts(query, _dims(shapes, 3, 4), _dims(shapes, 4, 4))
    lengths = _dims(shapes, 5, 1)
    if lengths is not None:
        yield lengths[0], query[0]
    places = _dims(shapes, 9, 2)
    if places is not None:
        yield from zip(places, query[:2])


def _lengths(shapes: Shapes, total: Dims | None) -> Iterator[Pair]:
    """Yield the total length and the sum of the past and the new positions."""
    query, past = _dims(shapes, 0, 3), _dims(shapes, 3, 4)
    if query is not None and total:
        yield total[0], _sum(past, query[1])


def _embeddings(shapes: Shapes) -> Iterator[Pair]:
    """Yield the pairs for words, segments and mask, of one shape, and for positions, which may be one row for all."""
    ids = _dims(shapes, 0, 2)
    for index in (1, 7):
        other = _dims(shapes, index, 2)
        if ids is not None and other is not None:
            yield from zip(ids, other)
    places = _dims(shapes, 8, 2)
    if ids is not None and places is not None:
        yield ids[1], places[1]


def _rotary(shapes: Shapes) -> Iterator[Pair]:
    """Yield the pairs for positions of batch and place, unless they are one offset."""
    data, places = _dims(shapes, 0, 3, 4), _dims(shapes, 1, 2)
    if data is not None and places is not None:
        yield data[0], places[0]
        yield data[-2], places[1]


def _equal(*places: int) -> Rule:
    """Return the rule that the dims of inputs agree, from the last one backwards."""

    def rule(shapes: Shapes) -> Iterator[Pair]:
        found = [shapes[place] for place in places if place < len(shapes)]
        known = [dims for dims in found if dims is not None]
        for other in known[1:]:
            yield from zip(reversed(known[0]), reversed(other))

    return rule


_RULES: dict[str, Rule] = {
    "Attention": _attention,
    "BiasAdd": _equal(0, 1, 2),
    "BiasGelu": _equal(0, 1),
    "DecoderMaskedMultiHeadAttention": _decoder_attention,
    "EmbedLayerNormalization": _embeddings,
    "FastGelu": _equal(0, 1),
    "GroupQueryAttention": _group_query_attention,
    "MultiHeadAttention": _multi_head_attention,
    "QLinearAdd": _equal(0, 3),
    "QLinearMul": _equal(0, 3),
    "QLinearWhere": _equal(0, 1, 4),
    "RotaryEmbedding": _rotary,
    "SkipGroupNorm": _equal(0, 3),
    "SkipLayerNormalization": _equal(0, 1),
    "SkipSimplifiedLayerNormalization": _equal(0, 1),
}
