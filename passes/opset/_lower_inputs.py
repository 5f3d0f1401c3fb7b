"""Rules for inputs that used to be attributes, and for attributes that did not exist."""

from __future__ import annotations

import math

import numpy as np

from surgery import Value

from ._calls import Call
from ._lowering import Lowering, Result, rule

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")


def _takes_axes(call: Call, place: Lowering) -> Result:
    """Move the axes to an attribute; no axes mean all axes, or no reduction with `noop_with_empty_axes`."""
    axes = call.find(1)
    held = [] if axes is None else place.integers_in(call, 1)
    does_nothing = bool(call.take("noop_with_empty_axes", 0))
    if not held and does_nothing:
        # The text says the same of reductions that first transform each element, but not every runtime does.
        place.require(call.op in ("ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceMean"), _NOTHING)
        return place.node("Identity", call.input(0))
    if held:
        call.attributes["axes"] = held
    del call.inputs[1:]
    return None


_NOTHING = "a reduction over no axes came with opset 18"

rule(*(f"Reduce{name}" for name in _REDUCTIONS), since=18)(_takes_axes)
rule("ReduceSum", "Squeeze", since=13)(_takes_axes)


@rule("Unsqueeze", since=13)
def _unsqueeze(call: Call, place: Lowering) -> Result:
    call.attributes["axes"] = place.integers_in(call, 1)
    del call.inputs[1:]
    return None


@rule("Split", since=18)
def _split_18(call: Call, place: Lowering) -> Result:
    """Add lengths if the last part is shorter; without lengths the parts used to be equal."""
    if "num_outputs" not in call.attributes:
        return None
    count, shape, axis = call.take("num_outputs"), call.input(0).shape, call.attr("axis")
    extent = None if shape is None else shape[axis]
    if not isinstance(extent, int):
        call.inputs = [call.input(0), _lengths(call.input(0), axis, count, place)]
        return None
    part = math.ceil(extent / count)
    lengths = [part] * (count - 1) + [extent - part * (count - 1)]
    place.require(lengths[-1] >= 0, "Split has more parts than elements")
    call.inputs = [call.input(0), place.integers(lengths, "split")] if part * count != extent else call.inputs[:1]
    return None


def _lengths(data: Value, axis: int, count: int, place: Lowering) -> Value:
    """Compute the lengths of parts, the last of which may be shorter."""
    place.require(place.target >= 13, "the extent that Split divides is not known")
    extent = place.node("Gather", place.node("Shape", data), place.integers([axis], "axis"), axis=0)
    rounded = place.node("Add", extent, place.integers([count - 1], "less_one"))
    part = place.node("Div", rounded, place.integers([count], "parts"))
    others = place.node("Mul", part, place.integers([count - 1], "less_one"))
    return place.node("Concat", *[part] * (count - 1), place.node("Sub", extent, others), axis=0)


@rule("Split", since=13)
def _split_13(call: Call, place: Lowering) -> Result:
    lengths = call.find(1)
    if lengths is not None:
        call.attributes["split"] = place.integers_in(call, 1)
    del call.inputs[1:]
    return None


@rule("Dropout", since=12)
def _dropout_12(call: Call, place: Lowering) -> Result:
    """Remove training inputs, and compute a mask that is read: it was unspecified outside training and is now true."""
    mode = call.find(2)
    training = mode is not None and (place.array(mode) is None or bool(place.fixed(call, 2).any()))
    place.require(not training, "Dropout is in training mode")
    if call.is_read(1):
        data = call.input(0)
        shape = place.node("Shape", data)
        trues = place.node("ConstantOfShape", shape, value=np.array([True]))
        return [place.node("Identity", data), trues]
    ratio = place.array(call.find(1))
    if ratio is not None:
        call.attributes["ratio"] = float(ratio.reshape(-1)[0])
    call.attributes.pop("seed", None)
    del call.inputs[1:]
    call.outputs = 1
    return None


@rule("Dropout", since=10)
def _dropout_10(call: Call, place: Lowering) -> Result:
    place.require(not call.is_read(1), "the mask of Dropout is read, and its meaning changed")
    call.outputs = 1
    return None


@rule("Scan", since=11)
def _scan_11(call: Call, place: Lowering) -> Result:
    axes = [*(call.attr("scan_input_axes") or []), *(call.attr("scan_output_axes") or [])]
    place.require(all(axis >= 0 for axis in axes), "Scan has a negative axis")
    return None


@rule("Clip", since=11)
def _clip_11(call: Call, place: Lowering) -> Result:
    """Move the bounds to attributes; use Max and Min if they are computed or the type is not float."""
    bounds = call.first(3)[1:]
    if place.kind(call.input(0)) != "tensor(float)" or any(b is not None and place.array(b) is None for b in bounds):
        return clip_by_bounds(call, place)
    for index, bound in enumerate(bounds, 1):
        if bound is not None:
            call.attributes[("min", "max")[index - 1]] = float(place.fixed(call, index).reshape(-1)[0])
    del call.inputs[1:]
    return None


def clip_by_bounds(call: Call, place: Lowering) -> Value:
    """Clip with Max and Min; like Clip, they give the upper bound if the lower bound is above it."""
    data, lower, upper = call.first(3)
    found = call.input(0)
    if lower is not None:
        found = place.node("Max", found, lower)
    if upper is not None:
        found = place.node("Min", found, upper)
    return place.node("Identity", found) if found == data else found


@rule("Pad", since=18)
def _pad_18(call: Call, place: Lowering) -> Result:
    """Expand paddings of some axes to all axes."""
    axes = call.find(3)
    if axes is None:
        return None
    rank = place.rank(call.input(0))
    chosen = [axis % rank for axis in place.integers_in(call, 3)]
    given = place.array(call.input(1))
    if given is None:
        return _padded(call, _scattered(call.input(1), chosen, rank, place))
    pads = [0] * (2 * rank)
    for position, axis in enumerate(chosen):
        pads[axis], pads[axis + rank] = int(given[position]), int(given[position + len(chosen)])
    return _padded(call, place.integers(pads, "pads"))


def _padded(call: Call, pads: Value) -> Result:
    call.inputs = [call.input(0), pads, *([] if call.find(2) is None else [call.find(2)])]
    return None


def _scattered(pads: Value, axes: list[int], rank: int, place: Lowering) -> Value:
    """Expand computed paddings of some axes with zeros; each half of them is in the order of `axes`."""
    both = [axes.index(axis) if axis in axes else 2 * len(axes) for axis in range(rank)]
    both += [axes.index(axis) + len(axes) if axis in axes else 2 * len(axes) for axis in range(rank)]
    extended = place.node("Concat", pads, place.integers([0], "zero"), axis=0)
    return place.node("Gather", extended, place.integers(both, "places"), axis=0)


@rule("Pad", since=19)
def _pad_19(call: Call, place: Lowering) -> Result:
    place.require(call.attr("mode") != "wrap", "mode wrap of Pad came with opset 19")
    return None


@rule("Pad", since=11)
def _pad_11(call: Call, place: Lowering) -> Result:
    call.attributes["pads"] = place.integers_in(call, 1)
    fill = call.find(2)
    if fill is not None:
        call.attributes["value"] = float(place.fixed(call, 2).reshape(-1)[0])
    del call.inputs[1:]
    return None


@rule("Slice", since=10)
def _slice_10(call: Call, place: Lowering) -> Result:
    steps = call.find(4)
    place.require(steps is None or bool((place.fixed(call, 4) == 1).all()), "steps of Slice came with opset 10")
    for index, name in enumerate(("starts", "ends", "axes"), 1):
        value = call.find(index)
        if value is not None:
            call.attributes[name] = place.integers_in(call, index)
    del call.inputs[1:]
    return None


@rule("TopK", since=11)
def _top_k_11(call: Call, place: Lowering) -> Result:
    place.require(call.take("largest", 1), "TopK of the smallest came with opset 11")
    call.attributes.pop("sorted", None)
    _count_axes_from_start(call, place)
    return None


@rule("TopK", since=10)
def _top_k_10(call: Call, place: Lowering) -> Result:
    (call.attributes["k"],) = place.integers_in(call, 1)
    del call.inputs[1:]
    return None


@rule("DFT", since=20)
def _dft_20(call: Call, place: Lowering) -> Result:
    """Move the axis to an attribute; refuse a one-sided inverse, whose result was unspecified."""
    place.require(not (call.attr("inverse") and call.attr("onesided")), "an inverse DFT of one side came with opset 20")
    axis, data = call.find(2), call.input(0)
    number = -2 if axis is None else place.integers_in(call, 2)[0]
    call.attributes["axis"] = number % place.rank(data)
    del call.inputs[2:]
    return None


@rule("Gemm", since=11)
def _gemm_11(call: Call, place: Lowering) -> Result:
    if call.find(2) is None:
        zero = place.number(0, call.input(0), "zero")
        call.inputs = [*call.first(2), zero]
    return None


@rule("AveragePool", since=19)
@rule("LpPool", since=18)
@rule("MaxPool", since=10)
def _pool_dilations(call: Call, place: Lowering) -> Result:
    if all(dilation == 1 for dilation in call.attr("dilations") or [0]):
        del call.attributes["dilations"]
    return place.keep(call)


@rule("Constant", since=12)
def _constant_12(call: Call, place: Lowering) -> Result:
    """Convert number attributes to a tensor."""
    forms = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    for name, kind in forms.items():
        if name in call.attributes:
            call.attributes["value"] = np.array(call.take(name), dtype=kind)
            return None
    place.require("value" in call.attributes or "sparse_value" in call.attributes, "a constant of strings")
    return None


def _count_axes_from_start(call: Call, place: Lowering) -> None:
    """Replace negative axes, which were not allowed before opset 11."""
    for name in ("axis", "axes"):
        given = call.attr(name)
        if given is None or (name not in call.attributes and call.op == "OneHot"):
            continue
        numbers = given if isinstance(given, list | tuple) else [given]
        if all(number >= 0 for number in numbers):
            continue
        rank = place.rank(call.input(0)) + (len(numbers) if call.op == "Unsqueeze" else 0)
        rank += call.op == "OneHot"
        counted = [number % rank for number in numbers]
        call.attributes[name] = counted if name == "axes" else counted[0]


_COUNTED = (
    *("ArgMax", "ArgMin", "Compress", "Concat", "Flatten", "Gather", "Hardmax", "LogSoftmax", "OneHot", "Softmax"),
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"),
    *("ReduceProd", "ReduceSum", "ReduceSumSquare", "Split", "Squeeze", "Unsqueeze"),
)


@rule(*_COUNTED, since=11)
def _axes_11(call: Call, place: Lowering) -> Result:
    _count_axes_from_start(call, place)
    return None


@rule("Slice", since=11)
def _slice_11(call: Call, place: Lowering) -> Result:
    axes = call.find(3)
    if axes is not None:
        numbers = place.integers_in(call, 3)
        if any(number < 0 for number in numbers):
            rank = place.rank(call.input(0))
            call.inputs[3] = place.integers([number % rank for number in numbers], "axes")
    return None


@rule("Constant", since=11)
def _constant_11(call: Call, place: Lowering) -> Result:
    place.require("sparse_value" not in call.attributes, "a sparse constant came with opset 11")
    return None
