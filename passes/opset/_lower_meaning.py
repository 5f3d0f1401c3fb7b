"""Rules for operators whose names, defaults, attribute values or meaning changed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from surgery import Refusal, Value

from . import _forms, _types
from ._calls import Call
from ._lowering import Lowering, Result, rule

_FLOAT8 = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0")


@rule("Softmax", "LogSoftmax", "Hardmax", since=13)
def _softmax_13(call: Call, place: Lowering) -> Result:
    """Transpose the axis to the end, where "all axes from this one on" means that axis alone."""
    axis, data = call.attr("axis"), call.input(0)
    shape = data.shape
    is_last = axis == -1 or (shape is not None and axis % len(shape) == len(shape) - 1)
    if is_last or (shape is not None and all(dim == 1 for dim in shape[axis % len(shape) + 1 :])):
        call.attributes["axis"] = axis
        return None
    rank = place.rank(data)
    perm = list(range(rank))
    perm[axis % rank], perm[-1] = rank - 1, axis % rank
    turned = place.node(call.op, place.node("Transpose", data, perm=perm), axis=-1)
    return place.node("Transpose", turned, perm=perm)


@rule("Cast", "CastLike", since=24)
def _cast_24(call: Call, place: Lowering) -> Result:
    """Remove `round_mode` except for the one type to which it applies."""
    if call.op == "CastLike" or _types.element(_forms.type_name(int(call.attr("to")))) != "float8e8m0":
        call.attributes.pop("round_mode", None)
    return place.keep(call)


@rule("Cast", since=19)
def _cast_19(call: Call, place: Lowering) -> Result:
    """Remove `saturate` except for 8-bit floats, the only types to which it applies."""
    if _types.element(_forms.type_name(int(call.attr("to")))) not in _FLOAT8:
        call.attributes.pop("saturate", None)
    return place.keep(call)


@rule("CastLike", since=15)
def _cast_like_15(call: Call, place: Lowering) -> Result:
    return place.node("Identity", place.cast(call.input(0), place.known_kind(call.input(1))))


@rule("Shape", since=15)
def _shape_15(call: Call, place: Lowering) -> Result:
    """Slice the shape, with bounds beyond it clipped; Gather is preferred, because runtimes optimize it better."""
    start, end = call.take("start", 0), call.take("end")
    if start == 0 and end is None:
        return None
    whole, rank = place.node("Shape", call.input(0)), call.input(0).rank
    if rank is not None:
        return place.node("Gather", whole, place.integers(range(rank)[start:end], "dims"), axis=0)
    last = np.iinfo(np.int64).max if end is None else end
    bounds = (place.integers([bound], name) for bound, name in ((start, "start"), (last, "end"), (0, "axis")))
    return place.node("Slice", whole, *bounds)


@rule("Reshape", since=14)
def _reshape_14(call: Call, place: Lowering) -> Result:
    """Remove `allowzero`, and refuse a shape with 0, which always copied a dim.

    A symbolic dim is assumed not to be zero: with an empty tensor a Reshape to computed dims may fail.
    """
    if call.take("allowzero", 0):
        dims = call.input(1).elements
        place.require(dims is not None and 0 not in dims, "Reshape to a dim of zero came with opset 14")
    return None


@rule("RNN", "LSTM", "GRU", since=14)
def _recurrent_14(call: Call, place: Lowering) -> Result:
    """Transpose the input and all states if the batch comes first."""
    if not call.take("layout", 0):
        return None
    inputs = list(call.inputs)
    for index in (0, 5, 6):
        if index < len(inputs) and (value := inputs[index]) is not None:
            inputs[index] = place.node("Transpose", value, perm=[1, 0, 2])
    attributes = {name: call.attr(name) for name in call.attributes}
    made = place.nodes(call.op, *inputs, outputs=call.outputs, **attributes)
    perms = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
    return [place.node("Transpose", value, perm=perm) for value, perm in zip(made, perms)]


@rule("BatchNormalization", since=14)
def _batch_normalization_14(call: Call, place: Lowering) -> Result:
    place.require(not call.take("training_mode", 0), "BatchNormalization is in training mode")
    place.require(not any(call.is_read(index) for index in (1, 2)), "BatchNormalization outputs its statistics")
    call.outputs = 1
    return None


@rule("BatchNormalization", since=15)
def _batch_normalization_15(call: Call, place: Lowering) -> Result:
    """Cast scale and statistics of another type: they used to have the type of the input."""
    kinds = [place.known_kind(call.input(index)) for index in range(5)]
    for index in range(1, 5):
        if kinds[index] != kinds[0]:
            place.require(_types.element(kinds[index]) in ("float", "double"), "scale or mean has another type")
            place.require(not call.attr("training_mode"), "BatchNormalization is in training mode")
            wide = [place.cast(call.input(other), kinds[index]) for other in range(5)]
            made = place.node("BatchNormalization", *wide, epsilon=call.attr("epsilon"))
            return place.cast(made, kinds[0])
    return None


@rule("RoiAlign", since=16)
def _roi_align_16(call: Call, place: Lowering) -> Result:
    mode = call.take("coordinate_transformation_mode")
    place.require(mode == "output_half_pixel", "RoiAlign shifts by half a pixel since opset 16")
    return None


@rule("AveragePool", "MaxPool", since=22)
def _pool_22(call: Call, place: Lowering) -> Result:
    """Refuse or avoid `ceil_mode` if a window starts in the padding at the end, which counts before opset 22."""
    if call.attr("ceil_mode") and call.attr("auto_pad") in ("NOTSET", "VALID"):
        axes = list(_windows(call, place))
        if not all(wanted in (None, up) for wanted, _, up in axes):
            is_even = all(wanted == down for wanted, down, _ in axes)
            place.require(
                is_even, f"a window of {call.op} starts in the padding at the end, and counts before opset 22"
            )
            call.attributes["ceil_mode"] = 0
    return place.keep(call)


def _windows(call: Call, place: Lowering) -> Iterator[tuple[int | None, int, int]]:
    """Count the windows along each axis: in opset 22, None for all, and with the division rounded down and up."""
    sizes = call.attr("kernel_shape")
    rank = len(sizes)
    pads = (call.attr("pads") or [0] * 2 * rank) if call.attr("auto_pad") == "NOTSET" else [0] * 2 * rank
    strides, dilations = (call.attr(name) or [1] * rank for name in ("strides", "dilations"))
    extents = (call.input(0).shape or (None,) * (rank + 2))[2:]
    for axis, (size, stride, dilation, extent) in enumerate(zip(sizes, strides, dilations, extents)):
        reach = (size - 1) * dilation + 1
        if not isinstance(extent, int):
            # The last window starts less than a stride after the last complete window.
            none_outside = pads[rank + axis] + stride <= reach
            place.require(none_outside, f"windows of {call.op} may start in the padding at the end")
            yield None, 0, 0
            continue
        room = extent + pads[axis] + pads[rank + axis] - reach
        down, up = room // stride + 1, -(-room // stride) + 1
        yield up - ((up - 1) * stride >= extent + pads[axis]), down, up


@rule("GridSample", since=20)
def _grid_sample_20(call: Call, place: Lowering) -> Result:
    names = {"linear": "bilinear", "cubic": "bicubic"}
    mode = call.attr("mode")
    call.attributes["mode"] = names.get(mode, mode)
    place.require(place.rank(call.input(0)) == 4, "GridSample of volumes came with opset 20")
    return None


@rule("GroupNormalization", since=21)
def _group_normalization_21(call: Call, place: Lowering) -> Result:
    """Decompose the operator: scale and bias were given per group."""
    from ._parts_norms import group_normalization

    return group_normalization(call, place)


@rule("ScatterElements", "ScatterND", since=18)
def _scatter_18(call: Call, place: Lowering) -> Result:
    kind = call.attr("reduction")
    place.require(kind not in ("max", "min"), f"reduction {kind} of {call.op} came with opset 18")
    return None


@rule("ScatterElements", since=11)
def _scatter_11(call: Call, place: Lowering) -> Result:
    axis = call.attr("axis")
    call.attributes["axis"] = axis if axis >= 0 else axis % place.rank(call.input(0))
    call.op, call.version = "Scatter", 9
    return None


@rule("Resize", since=19)
def _resize_19(call: Call, place: Lowering) -> Result:
    policy = call.attr("keep_aspect_ratio_policy")
    mode = call.attr("coordinate_transformation_mode")
    place.require(mode != "half_pixel_symmetric", "coordinates half_pixel_symmetric of Resize came with opset 19")
    place.require(policy == "stretch" or call.find(3) is not None, "Resize keeps a ratio without sizes")
    return None


@rule("Resize", since=18)
def _resize_18(call: Call, place: Lowering) -> Result:
    """Expand scales or sizes of some axes to all axes; the other axes keep their size."""
    place.require(not call.take("antialias", 0), "antialias of Resize came with opset 18")
    place.require(call.take("keep_aspect_ratio_policy") == "stretch", "a kept ratio of Resize came with opset 18")
    if "axes" not in call.attributes:
        return None
    data = call.input(0)
    rank = place.rank(data)
    axes = [axis % rank for axis in call.take("axes")]
    region, scales, sizes = call.find(1), call.find(2), call.find(3)
    call.inputs = [data, None, None, None]
    if region is not None and call.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        ones = [0.0] * rank + [1.0] * rank
        places = [*axes, *(axis + rank for axis in axes)]
        call.inputs[1] = _filled(place, place.constant(np.array(ones, _float_of(place, region)), "roi"), places, region)
    if scales is not None and not _is_empty(place, scales):
        call.inputs[2] = _filled(place, place.constant(np.ones(rank, dtype=np.float32), "scales"), axes, scales)
    if sizes is not None and not _is_empty(place, sizes):
        call.inputs[3] = _filled(place, place.node("Shape", data), axes, sizes)
    while call.inputs[-1] is None:
        call.inputs.pop()
    return None


def _float_of(place: Lowering, value: Value) -> type[np.generic]:
    found: type[np.generic] = _types.numpy_type(place.known_kind(value))
    return found


def _is_empty(place: Lowering, value: Value) -> bool:
    array = place.array(value)
    return value.size == 0 if array is None else array.size == 0


def _filled(place: Lowering, whole: Value, places: list[int], part: Value) -> Value:
    """Return `whole` with the elements of `part` at these places."""
    base, given = place.array(whole), place.array(part)
    if base is not None and given is not None:
        made = base.copy()
        made[places] = given
        return place.constant(made, part.name or "filled")
    return place.node("ScatterElements", whole, place.integers(places, "places"), part, axis=0)


@rule("Resize", since=13)
def _resize_13(call: Call, place: Lowering) -> Result:
    """Replace omitted inputs with empty ones."""
    data, region, scales, sizes = call.first(4)
    empty = place.constant(np.zeros(0, dtype=np.float32), "none")
    call.inputs = [data, region or empty, scales or empty, sizes]
    if sizes is None:
        call.inputs.pop()
    return None


@rule("Resize", since=11)
def _resize_11(call: Call, place: Lowering) -> Result:
    """Remove coordinate and rounding modes, and refuse others than the old ones.

    Coordinates were divided by the scale; "nearest" meant rounding down to enlarge and up to shrink.
    """
    factors = place.array(call.find(2))
    if factors is None or factors.size == 0:
        raise Refusal("Resize to computed scales or to sizes came with opset 11")
    asymmetric = call.take("coordinate_transformation_mode") == "asymmetric"
    nearest, mode = call.take("nearest_mode"), call.attr("mode")
    shrinks = bool(np.any(factors < 1))
    place.require(not (shrinks and np.any(factors > 1)), "Resize shrinks one axis and enlarges another")
    whole = bool(np.all(factors == np.floor(factors)))
    # An element of the result that coincides with an input element is the same with any rounding.
    rounds = {"floor"} if not shrinks else {"ceil"}
    same = asymmetric and (mode == "linear" or (mode == "nearest" and nearest in rounds))
    place.require(same or (whole and np.all(factors == 1)), "Resize maps coordinates differently before opset 11")
    for name in ("cubic_coeff_a", "exclude_outside", "extrapolation_value"):
        call.attributes.pop(name, None)
    call.inputs = [call.input(0), call.input(2)]
    return None


@rule("Resize", since=10)
def _resize_10(call: Call, place: Lowering) -> Result:
    factors = place.fixed(call, 1)
    place.require(bool(np.all(factors >= 1)), "a Resize that shrinks came with opset 10")
    call.op, call.version = "Upsample", 9
    return None


@rule("MeanVarianceNormalization", since=13)
def _mean_variance_normalization_13(call: Call, place: Lowering) -> Result:
    call.attributes["axes"] = call.attr("axes", [0, 2, 3])
    return None


@rule("ArgMax", "ArgMin", since=12)
def _arg_max_12(call: Call, place: Lowering) -> Result:
    """Find the last of equal elements as the first one in the reversed data."""
    if not call.take("select_last_index", 0):
        return None
    data, axis = call.input(0), call.attr("axis")
    bounds = (("start", [-1]), ("end", [np.iinfo(np.int64).min]), ("axis", [axis]), ("step", [-1]))
    reversed_ = place.node("Slice", data, *(place.integers(numbers, name) for name, numbers in bounds))
    found = place.node(call.op, reversed_, axis=axis, keepdims=call.attr("keepdims"))
    extent = place.node("Gather", place.node("Shape", data), place.constant(np.array(axis), "axis"))
    last = place.node("Sub", extent, place.constant(np.array(1), "one"))
    return place.node("Sub", last, found)


@rule("Pow", since=12)
def _pow_12(call: Call, place: Lowering) -> Result:
    """Cast the exponent to the type of the base, which used to be required."""
    kind = place.known_kind(call.input(0))
    if place.known_kind(call.input(1)) != kind:
        place.require(_types.element(kind) in ("float", "double"), "Pow of these types came with opset 12")
        call.inputs[1] = place.cast(call.input(1), kind)
    return None


@rule("IsInf", since=20)
def _is_inf_20(call: Call, place: Lowering) -> Result:
    return place.keep(call)


@rule("DepthToSpace", since=11)
def _depth_to_space_11(call: Call, place: Lowering) -> Result:
    place.require(call.take("mode") == "DCR", "mode CRD of DepthToSpace came with opset 11")
    return None
