"""Normalizations in smaller operators."""

from __future__ import annotations

import numpy as np

from surgery import Value

from . import _forms
from ._calls import Call
from ._lowering import Lowering, Result, part


@part("LayerNormalization")
def _layer_normalization(call: Call, place: Lowering) -> Result:
    """Compute (x - mean) / √(variance + epsilon) · scale + bias over the axes since `axis` (LayerNormalization 17)."""
    x, scale, bias = call.first(3)
    assert x is not None and scale is not None
    kind = place.known_kind(x)
    wide = place.cast(x, _stash(call, kind))
    axes = _axes_from(call.attr("axis"), x, place)
    mean = place.node("ReduceMean", wide, axes)
    centred = place.node("Sub", wide, mean)
    variance = place.node("ReduceMean", place.node("Mul", centred, centred), axes)
    inverse = place.node("Reciprocal", _deviation(variance, call.attr("epsilon"), place))
    scaled = place.node("Mul", place.cast(place.node("Mul", centred, inverse), kind), scale)
    result = scaled if bias is None else place.node("Add", scaled, bias)
    return [result, mean, inverse]


@part("RMSNormalization")
def _rms_normalization(call: Call, place: Lowering) -> Result:
    """Compute x / √(mean of squares + epsilon) · scale (text of RMSNormalization 23)."""
    x, scale = call.input(0), call.input(1)
    kind = place.known_kind(x)
    wide = place.cast(x, _stash(call, kind))
    square = place.node("ReduceMean", place.node("Mul", wide, wide), _axes_from(call.attr("axis"), x, place))
    normal = place.node("Div", wide, _deviation(square, call.attr("epsilon"), place))
    return place.cast(place.node("Mul", place.cast(normal, kind), scale), place.known_kind(scale))


@part("GroupNormalization")
def group_normalization(call: Call, place: Lowering) -> Value:
    """Treat each group of channels as one channel of InstanceNormalization, and apply scale and bias after it.

    Scale and bias are given per channel, before opset 21 per group.
    """
    x, scale, bias = call.input(0), call.input(1), call.input(2)
    kind, groups, per_channel = place.known_kind(x), call.attr("num_groups"), call.version >= 21
    stash = _stash(call, kind) if per_channel else kind
    by_group = place.node("Reshape", place.cast(x, stash), place.integers([0, groups, -1], "by_group"))
    one, zero = (place.cast(place.constant(np.full(groups, n, np.float32), name), stash) for n, name in _UNIT)
    normal = place.node("InstanceNormalization", by_group, one, zero, epsilon=call.attr("epsilon"))
    normal, shape = place.cast(normal, kind), place.node("Shape", x)
    if per_channel:
        normal = place.node("Reshape", normal, shape)
    spread = place.integers([-1, *[1] * (place.rank(x) - 2 if per_channel else 1)], "spread")
    factor, offset = (place.node("Reshape", value, spread) for value in (scale, bias))
    made = place.node("Add", place.node("Mul", normal, factor), offset)
    return made if per_channel else place.node("Reshape", made, shape)


@part("InstanceNormalization")
def _instance_normalization(call: Call, place: Lowering) -> Result:
    """Compute (x - mean) / √(variance + epsilon) · scale + bias over the axes after the channels."""
    x, rank = call.input(0), place.rank(call.input(0))
    axes = place.integers(range(2, rank), "axes")
    centred = place.node("Sub", x, place.node("ReduceMean", x, axes))
    variance = place.node("ReduceMean", place.node("Mul", centred, centred), axes)
    normal = place.node("Div", centred, _deviation(variance, call.attr("epsilon"), place))
    spread = place.integers([-1, *[1] * (rank - 2)], "spread")
    factor, offset = (place.node("Reshape", call.input(index), spread) for index in (1, 2))
    return place.node("Add", place.node("Mul", normal, factor), offset)


_UNIT = ((1, "one"), (0, "zero"))


@part("MeanVarianceNormalization")
def _mean_variance_normalization(call: Call, place: Lowering) -> Result:
    """Compute (x - mean) / (√variance + 1e-9), the variance as the mean of the squares of x - mean."""
    x, axes = call.input(0), place.integers(call.attr("axes", [0, 2, 3]), "axes")
    mean = place.node("ReduceMean", x, axes)
    centred = place.node("Sub", x, mean)
    variance = place.node("ReduceMean", place.node("Mul", centred, centred), axes)
    deviation = place.node("Add", place.node("Sqrt", variance), place.number(1e-9, x, "epsilon"))
    return place.node("Div", centred, deviation)


def _deviation(variance: Value, epsilon: float, place: Lowering) -> Value:
    return place.node("Sqrt", place.node("Add", variance, place.number(epsilon, variance, "epsilon")))


def _stash(call: Call, kind: str) -> str:
    """Return the type in which statistics are computed: `stash_type`, or the type of the input if it is wider."""
    wanted = _forms.type_name(int(call.attr("stash_type")))
    return kind if kind == "tensor(double)" and wanted == "tensor(float)" else wanted


def _axes_from(axis: int, x: Value, place: Lowering) -> Value:
    """Return the axes from `axis` on; if it is counted from the end, the rank need not be known."""
    numbers = range(axis, 0) if axis < 0 else range(axis, place.rank(x))
    return place.integers(list(numbers), "axes")
