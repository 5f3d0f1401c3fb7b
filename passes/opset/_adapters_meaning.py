"""Adapters for operators whose names, defaults or meaning changed, from opset 10 on."""

from __future__ import annotations

import numpy as np

from surgery import Refusal, Value

from ._forms import type_number
from ._shared import Draft, adapter


@adapter("Softmax", "LogSoftmax", "Hardmax", to=13)
def _softmax_13(draft: Draft) -> None:
    """Flatten the axes from `axis` on, which were treated as one; now only that axis is used."""
    axis, data = draft.attr("axis", 1), draft.input(0)
    draft.set("axis", axis)
    shape = data.shape
    if axis == -1 or (shape is not None and axis < len(shape) and all(dim == 1 for dim in shape[axis:][1:])):
        return
    draft.set("axis", -1)
    draft.set_input(0, draft.new.node("Flatten", data, axis=axis))
    draft.wrap(lambda value: _reshape_like(draft, value, data))


def _reshape_like(draft: Draft, value: Value, model: Value) -> Value:
    """Reshape a value to the shape of another one."""
    if model.static_shape is not None and 0 not in model.static_shape:
        return draft.new.node("Reshape", value, draft.integers(model.static_shape, "shape"))
    # The shape is computed at run time and may contain 0, which means "copy the dim" without `allowzero`.
    attributes = {"allowzero": 1} if draft.target >= 14 else {}
    return draft.new.node("Reshape", value, draft.new.node("Shape", model), attributes=attributes)


@adapter("Scatter", to=11)
def _scatter_11(draft: Draft) -> None:
    draft.op = "ScatterElements"


@adapter("Upsample", to=10)
def _upsample_10(draft: Draft) -> None:
    """Rename to Resize, which computes the same in opset 10."""
    draft.op = "Resize"


@adapter("Resize", to=11)
def _resize_11(draft: Draft) -> None:
    """Set the coordinate and rounding modes, and split a Resize that may shrink some axes and enlarge others.

    Coordinates were divided by the scale; "nearest" rounded down to enlarge and up to shrink, separately for each axis.
    The text of opset 10 does not specify this, but its test data (a Resize by 0.6 takes element 2 for 1 / 0.6) and
    ONNX Runtime do. Now one rounding applies to all axes, so axes that shrink are resized before those that grow,
    unless all scales are known and go the same way. Any rounding gives the same for an axis that keeps its extent.
    """
    # Up to opset 12 the region cannot be omitted.
    region = draft.constant(np.zeros(0, dtype=np.float32), "roi") if draft.target < 13 else None
    scales, nearest = draft.input(1), draft.attr("mode", "nearest") == "nearest"
    draft.set("coordinate_transformation_mode", "asymmetric")
    if nearest:
        factors = np.ones(1) if draft.node.op == "Upsample" else scales.constant
        shrinks = factors is None or bool(np.any(factors < 1))
        if shrinks and (factors is None or np.any(factors > 1)):
            smaller, scales = _limited(draft, scales, "Min"), _limited(draft, scales, "Max")
            how = {"coordinate_transformation_mode": "asymmetric", "mode": "nearest", "nearest_mode": "ceil"}
            draft.set_input(0, draft.new.node("Resize", draft.input(0), region, smaller, attributes=how))
            shrinks = False
        draft.set("nearest_mode", "ceil" if shrinks else "floor")
    draft.inputs = [draft.input(0), region, scales]


def _limited(draft: Draft, scales: Value, op: str) -> Value:
    """Return the scales that shrink ("Min") or enlarge ("Max"), and 1 for the other axes."""
    factors, one = scales.constant, np.ones((), dtype=np.float32)
    if factors is None:
        return draft.new.node(op, scales, draft.constant(one, "one"))
    return draft.constant(np.minimum(factors, one) if op == "Min" else np.maximum(factors, one), "scales")


@adapter("Resize", to=13)
def _resize_13(draft: Draft) -> None:
    """Omit empty inputs, and replace the coordinate mode tf_half_pixel_for_nn, which was removed."""
    if draft.attr("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        # Coordinates were half a pixel larger: rounding down there is rounding to nearest with halves up here, and
        # rounding to nearest with halves down there is rounding up here.
        rounding = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}
        mode = draft.attr("nearest_mode", "round_prefer_floor") if draft.attr("mode", "nearest") == "nearest" else ""
        draft.require(mode in rounding, "the coordinate mode tf_half_pixel_for_nn was removed")
        draft.set("coordinate_transformation_mode", "half_pixel")
        draft.set("nearest_mode", rounding[mode])
    for index, value in enumerate(draft.inputs):
        if index in (1, 2) and value is not None and value.tensor is not None and value.tensor.size == 0:
            draft.set_input(index, None)


@adapter("RoiAlign", to=16)
def _roi_align_16(draft: Draft) -> None:
    """Set the old coordinate mode; the new default shifts coordinates by half a pixel."""
    draft.set("coordinate_transformation_mode", "output_half_pixel")


@adapter("GridSample", to=20)
def _grid_sample_20(draft: Draft) -> None:
    names = {"bilinear": "linear", "bicubic": "cubic"}
    mode = draft.take("mode", "bilinear")
    draft.set("mode", names.get(mode, mode))


@adapter("QuantizeLinear", to=19)
def _quantize_linear_19(draft: Draft) -> None:
    """Refuse inputs other than float: input and scale must now have one type; before, int32 had a float scale."""
    kind = draft.kind(draft.input(0))
    draft.require(kind is not None, "the type of the input is not known")
    draft.require(kind == "tensor(float)", "QuantizeLinear of int32 with a float scale was removed")


@adapter("GroupNormalization", to=21)
def _group_normalization_21(draft: Draft) -> None:
    """Expand scale and bias from groups to channels, and compute statistics in the type of the input, as before."""
    data, groups = draft.input(0), draft.attr("num_groups")
    kind = draft.kind(data)
    if kind is None:
        raise Refusal("the type of the input is not known")
    channels = data.shape[1] if data.shape is not None and len(data.shape) > 1 else None
    each = channels // groups if isinstance(channels, int) else None
    repeats: Value | None = None
    for index in (1, 2):
        given = draft.input(index)
        held = given.constant
        if held is not None and each is not None:
            draft.set_input(index, draft.constant(np.repeat(held, each), f"{given.name}_per_channel"))
            continue
        repeats = repeats or _repeats(draft, data, groups, each)
        wide = draft.new.node("Expand", draft.unsqueeze(given, [1]), repeats)
        draft.set_input(index, draft.new.node("Reshape", wide, draft.integers([-1], "flat")))
    draft.set("stash_type", type_number(kind))


def _repeats(draft: Draft, data: Value, groups: int, each: int | None) -> Value:
    """Return the shape [1, channels per group]."""
    if each is not None:
        return draft.integers([1, each], "repeats")
    channels = draft.new.node("Shape", data, start=1, end=2)
    each_computed = draft.new.node("Div", channels, draft.integers([groups], "groups"))
    return draft.new.node("Concat", draft.integers([1], "one"), each_computed, axis=0)


@adapter("MeanVarianceNormalization", to=13)
def _mean_variance_normalization_13(draft: Draft) -> None:
    """Add the default axes: the operator is now a function whose body reads them and has no default."""
    draft.set("axes", draft.attr("axes", [0, 2, 3]))
