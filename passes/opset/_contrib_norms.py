"""Normalizations of ONNX Runtime, with the operators fused into them, as ONNX operators.

Source: docs/ContribOperators.md, and the kernels `skip_layer_norm.cc`, `layer_norm_impl.cc`, `embed_layer_norm.cc`.
For float16 the kernels compute in float32, including the sum before a normalization.
"""

from __future__ import annotations

from surgery import Value

from . import _forms
from ._calls import Call
from ._contrib import dims_of, extent, sum_of, unsqueezed, widened
from ._lowering import Lowering, Result, part

_STATISTICS = "the statistics of a normalization are read"


@part("com.microsoft::SkipLayerNormalization")
def _skip_layer_normalization(call: Call, place: Lowering) -> Result:
    """Compute the LayerNormalization of the sum of input, skip and bias, which is the last output."""
    place.require(not (call.is_read(1) or call.is_read(2)), _STATISTICS)
    x, skip, scale, beta, bias = (widened(value, place) for value in call.first(5))
    total = sum_of(place, x, skip, bias)
    made = place.node("LayerNormalization", total, scale, beta, axis=-1, epsilon=_epsilon(call))
    return _with_sum(call, made, total, place)


@part("com.microsoft::SkipSimplifiedLayerNormalization")
def _skip_simplified_layer_normalization(call: Call, place: Lowering) -> Result:
    """Compute the RMSNormalization of the sum of input, skip and bias, which is the last output."""
    place.require(not (call.is_read(1) or call.is_read(2)), _STATISTICS)
    x, skip, scale, bias = (widened(value, place) for value in call.first(4))
    total = sum_of(place, x, skip, bias)
    made = place.node("RMSNormalization", total, scale, axis=-1, epsilon=_epsilon(call))
    return _with_sum(call, made, total, place)


def _epsilon(call: Call) -> float:
    return float(call.attr("epsilon", 1e-12))


def _with_sum(call: Call, made: Value, total: Value, place: Lowering) -> list[Value]:
    kind = place.known_kind(call.input(0))
    narrow = place.cast(made, kind)
    return [narrow, narrow, narrow, place.cast(total, kind)] if call.is_read(3) else [narrow]


@part("SimplifiedLayerNormalization")
def _simplified_layer_normalization(call: Call, place: Lowering) -> Result:
    """Compute the RMSNormalization of ONNX, which is newer; the statistic is one over the root."""
    x, axis = call.input(0), int(call.attr("axis", -1))
    epsilon, stash = float(call.attr("epsilon", 1e-5)), int(call.attr("stash_type", 1))
    made = place.node("RMSNormalization", x, call.input(1), axis=axis, epsilon=epsilon, stash_type=stash)
    if not call.is_read(1):
        return made
    wide = place.cast(x, _forms.type_name(stash))
    axes = place.integers(list(range(axis, 0) if axis < 0 else range(axis, place.rank(x))), "axes")
    square = place.node("ReduceMean", place.node("Mul", wide, wide), axes)
    root = place.node("Sqrt", place.node("Add", square, place.number(epsilon, square, "epsilon")))
    return [made, place.node("Reciprocal", root)]


@part("com.microsoft::BranchwiseRMSNorm")
def _branchwise_rms_norm(call: Call, place: Lowering) -> Result:
    """Compute RMSNormalization over the last axis, which must be a single branch."""
    scale, branches = call.find(1), int(call.attr("num_branches", 0))
    place.require(branches <= 1, "a last axis holds several branches")
    place.require(
        scale is not None and scale.rank == 1, "the branches have separate factors, or the factors are unknown"
    )
    x, factors = widened(call.input(0), place), widened(scale, place)
    width = place.width(call.input(0))
    place.require(
        width is not None and scale is not None and scale.shape == (width,), "the factors are not of a branch"
    )
    made = place.node("RMSNormalization", x, factors, axis=-1, epsilon=float(call.attr("epsilon", 1e-5)))
    return place.cast(made, place.known_kind(call.input(0)))


@part("com.microsoft::EmbedLayerNormalization")
def _embed_layer_normalization(call: Call, place: Lowering) -> Result:
    """Compute the LayerNormalization of the sum of the rows of words, positions and segments; count the mask."""
    ids, segments, words, positions, kinds, scale, beta, mask, places = call.first(9)
    assert ids is not None and words is not None and positions is not None and scale is not None
    if places is None:
        bounds = (place.integers([0], "start"), extent(ids, 1, place), place.integers([0], "axes"))
        rows = place.node("Slice", positions, *bounds)
    else:
        rows = place.node("Gather", positions, places, axis=0)
    kind = None if segments is None or kinds is None else place.node("Gather", kinds, segments, axis=0)
    total = sum_of(place, place.node("Gather", words, ids, axis=0), rows, kind)
    wide = (widened(value, place) for value in (total, scale, beta))
    normal = place.node("LayerNormalization", *wide, axis=-1, epsilon=_epsilon(call))
    made = place.cast(normal, place.known_kind(words))
    return [made, _words(call, ids, mask, place), total] if call.outputs > 1 else made


def _words(call: Call, ids: Value, mask: Value | None, place: Lowering) -> Value:
    """Count the ones in each row of the mask; return zeros without a mask."""
    if not call.is_read(1):
        return ids
    axes = place.integers([1], "axes")
    if mask is None:
        nothing = place.node("Sub", ids, ids)
        return place.node("ReduceSum", nothing, axes, keepdims=0)
    ones = place.node("Equal", mask, place.number(1, mask, "one"))
    return place.node("ReduceSum", place.cast(ones, "tensor(int32)"), axes, keepdims=0)


@part("com.microsoft::GroupNorm", "com.microsoft::SkipGroupNorm")
def _group_norm(call: Call, place: Lowering) -> Result:
    """Compute the GroupNormalization of the sum of the inputs, with the channels moved to the second axis and back."""
    x, scale, bias, skip, more = call.first(5)
    assert x is not None and scale is not None and bias is not None
    kind = place.known_kind(x)
    if skip is not None and len(dims_of(skip)) == 2:
        skip = unsqueezed(skip, [1, 2], place)
    wide_skip, wide_more = (widened(value, place) for value in (skip, more))
    total = place.note(sum_of(place, widened(x, place), wide_skip, wide_more), len(dims_of(x)), None)
    channels_last = bool(call.attr("channels_last", 1))
    place.require(channels_last or more is None, "the bias is along the channels, which are not the last axis")
    first = place.node("Transpose", total, perm=[0, 3, 1, 2]) if channels_last else total
    wide = place.known_kind(total)
    made = place.node(
        "GroupNormalization",
        first,
        *(place.cast(value, wide) for value in (scale, bias)),
        num_groups=int(call.attr("groups", 1)),
        epsilon=float(call.attr("epsilon", 1e-5)),
    )
    if call.attr("activation", 0):
        made = place.node("Swish", made)
    made = place.node("Transpose", made, perm=[0, 2, 3, 1]) if channels_last else made
    return [place.cast(made, kind), place.cast(total, kind)] if call.is_read(1) else place.cast(made, kind)
