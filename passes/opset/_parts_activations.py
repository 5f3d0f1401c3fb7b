"""Activations, comparisons and reductions in smaller operators."""

from __future__ import annotations

import math

import numpy as np

from surgery import Refusal, Value

from . import _types
from ._calls import Call
from ._lower_inputs import clip_by_bounds
from ._lowering import Lowering, Result, part


@part("Gelu")
def _gelu(call: Call, place: Lowering) -> Result:
    """Compute x/2 · (1 + erf(x/√2)), or tanh(√(2/π) (x + 0.044715 x³)) instead of erf (text of Gelu 20)."""
    x = call.input(0)
    one, half = place.number(1, x, "one"), place.number(0.5, x, "half")
    if call.attr("approximate") == "tanh":
        cube = place.node("Mul", place.node("Mul", x, x), x)
        sum_ = place.node("Add", x, place.node("Mul", place.number(0.044715, x, "cubic"), cube))
        curve = place.node("Tanh", place.node("Mul", place.number(math.sqrt(2 / math.pi), x, "root"), sum_))
    else:
        curve = place.node("Erf", place.node("Mul", x, place.number(math.sqrt(0.5), x, "root")))
    return place.node("Mul", place.node("Mul", x, half), place.node("Add", curve, one))


@part("HardSwish")
def _hard_swish(call: Call, place: Lowering) -> Result:
    """Compute x · max(0, min(1, x/6 + 1/2)) (text of HardSwish 14)."""
    return place.node("Mul", call.input(0), place.node("HardSigmoid", call.input(0), alpha=1 / 6, beta=0.5))


@part("HardSigmoid")
def _hard_sigmoid(call: Call, place: Lowering) -> Result:
    """Compute max(0, min(1, alpha · x + beta)) (text of HardSigmoid 6)."""
    x = call.input(0)
    scaled = place.node("Mul", x, place.number(call.attr("alpha"), x, "alpha"))
    line = place.node("Add", scaled, place.number(call.attr("beta"), x, "beta"))
    return place.node("Clip", line, place.number(0, x, "zero"), place.number(1, x, "one"))


@part("Swish")
def _swish(call: Call, place: Lowering) -> Result:
    """Compute x · sigmoid(alpha · x) (text of Swish 24)."""
    x, alpha = call.input(0), call.attr("alpha")
    scaled = x if alpha == 1 else place.node("Mul", x, place.number(alpha, x, "alpha"))
    return place.node("Mul", x, place.node("Sigmoid", scaled))


@part("Mish")
def _mish(call: Call, place: Lowering) -> Result:
    """Compute x · tanh(softplus(x)) (text of Mish 18)."""
    x = call.input(0)
    return place.node("Mul", x, place.node("Tanh", place.node("Softplus", x)))


@part("Softplus")
def _softplus(call: Call, place: Lowering) -> Result:
    """Compute max(x, 0) + log(1 + exp(-|x|)), which equals log(1 + exp(x)) and does not overflow."""
    x = call.input(0)
    decay = place.node("Exp", place.node("Neg", place.node("Abs", x)))
    log = place.node("Log", place.node("Add", decay, place.number(1, x, "one")))
    return place.node("Add", place.node("Relu", x), log)


@part("Celu")
def _celu(call: Call, place: Lowering) -> Result:
    """Compute alpha · elu(x / alpha): x above zero, alpha · (exp(x / alpha) - 1) below (text of Celu 12)."""
    x, alpha = call.input(0), call.attr("alpha")
    if alpha == 1:
        return place.node("Elu", x)
    factor = place.number(alpha, x, "alpha")
    return place.node("Mul", place.node("Elu", place.node("Div", x, factor)), factor)


@part("PRelu")
def _prelu(call: Call, place: Lowering) -> Result:
    """Compute x · slope where x is below zero, and x elsewhere, also for NaN and an infinite slope."""
    x, slope = call.input(0), call.input(1)
    is_below = place.node("Less", x, place.number(0, x, "zero"))
    return place.node("Where", is_below, place.node("Mul", x, slope), x)


@part("Clip")
def _clip(call: Call, place: Lowering) -> Result:
    return clip_by_bounds(call, place)


@part("Relu")
def _relu(call: Call, place: Lowering) -> Result:
    return place.node("Max", call.input(0), place.number(0, call.input(0), "zero"))


_WHOLE = {
    **dict.fromkeys(("int8", "uint8", "int16", "uint16", "int32"), "tensor(int32)"),
    **dict.fromkeys(("uint32", "int64"), "tensor(int64)"),
}
"""For each integer type, a type that holds all its numbers and has comparisons in early opsets."""


@part("Max", "Min")
def _extremes(call: Call, place: Lowering) -> Result:
    """Compare operands one after another; only for integers, because Max and Min pass on NaN and this does not."""
    kind = place.known_kind(call.input(0))
    wide = _WHOLE.get(_types.element(kind))
    if wide is None:
        raise Refusal(f"{call.op} of opset {place.target} does not take {kind}")
    if wide != kind:
        cast = [place.cast(value, wide) for value in call.inputs if value is not None]
        return place.cast(place.node(call.op, *cast), kind)
    found = call.input(0)
    for other in (value for value in call.inputs[1:] if value is not None):
        is_kept = place.node("Greater" if call.op == "Max" else "Less", found, other)
        found = place.node("Where", is_kept, found, other)
    return place.node("Identity", found) if found == call.input(0) else found


@part("LessOrEqual", "GreaterOrEqual")
def _or_equal(call: Call, place: Lowering) -> Result:
    """Combine the strict comparison and Equal; negating the opposite would be wrong for NaN, where all are false."""
    strict = place.node(call.op.removesuffix("OrEqual"), *call.inputs)
    return place.node("Or", strict, place.node("Equal", *call.inputs))


@part("BitwiseNot")
def _bitwise_not(call: Call, place: Lowering) -> Result:
    """Compute -1 - x for signed types (two's complement), and the largest number minus x for unsigned types."""
    x = call.input(0)
    largest = -1 if not _types.element(place.known_kind(x)).startswith("u") else None
    if largest is None:
        largest = np.iinfo(_types.numpy_type(place.known_kind(x))).max
    return place.node("Sub", place.number(largest, x, "ones"), x)


@part("LogSoftmax")
def _log_softmax(call: Call, place: Lowering) -> Result:
    """Subtract the maximum from x, and then the logarithm of the sum of the exponentials."""
    place.require(call.version >= 13 or call.attr("axis") == -1, "LogSoftmax flattens several axes")
    x, axes = call.input(0), place.integers([call.attr("axis")], "axes")
    shifted = place.node("Sub", x, place.node("ReduceMax", x, axes))
    sum_ = place.node("ReduceSum", place.node("Exp", shifted), axes)
    return place.node("Sub", shifted, place.node("Log", sum_))


@part("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare")
def _reduction(call: Call, place: Lowering) -> Result:
    before, after = {
        "ReduceL1": ("Abs", None),
        "ReduceL2": ("Mul", "Sqrt"),
        "ReduceLogSum": (None, "Log"),
        "ReduceSumSquare": ("Mul", None),
    }[call.op]
    x = call.input(0)
    made = place.node("Mul", x, x) if before == "Mul" else place.node(before, x) if before else x
    summed = place.node("ReduceSum", made, _axes(call, place), **_how(call))
    return place.node(after, summed) if after else summed


@part("ReduceLogSumExp")
def _log_sum_exp(call: Call, place: Lowering) -> Result:
    """Subtract the maximum first, so that no exponential overflows, and add it to the logarithm."""
    x, axes = call.input(0), _axes(call, place)
    how = _how(call)
    place.require(not how.get("noop_with_empty_axes"), "a reduction over no axes takes a logarithm of an exponential")
    top = place.node("ReduceMax", x, axes)
    sum_ = place.node("ReduceSum", place.node("Exp", place.node("Sub", x, top)), axes, **how)
    kept = top if how["keepdims"] else place.node("ReduceMax", x, axes, keepdims=0)
    return place.node("Add", place.node("Log", sum_), kept)


def _axes(call: Call, place: Lowering) -> Value | None:
    given = call.attr("axes")
    return call.find(1) if given is None else place.integers(given, "axes")


def _how(call: Call) -> dict[str, int]:
    return {"keepdims": call.attr("keepdims"), "noop_with_empty_axes": call.attr("noop_with_empty_axes", 0)}


@part("Trilu")
def _trilu(call: Call, place: Lowering) -> Result:
    """Keep an element if its column minus its row is at least k (upper), or at most k."""
    x, offset = call.input(0), call.find(1)
    op = "GreaterOrEqual" if call.attr("upper") else "LessOrEqual"
    shape = x.shape
    diagonal = place.array(offset) if offset is not None else np.array(0)
    if shape is not None and diagonal is not None and all(isinstance(dim, int) for dim in shape[-2:]):
        difference = np.arange(int(str(shape[-1])))[None, :] - np.arange(int(str(shape[-2])))[:, None]
        edge = int(diagonal.reshape(-1)[0])
        mask = place.constant(difference >= edge if call.attr("upper") else difference <= edge, "triangle")
    else:
        mask = place.node(op, _differences(x, place), offset or place.constant(np.array(0), "diagonal"))
    return place.node("Where", mask, x, place.number(0, x, "zero"))


def _differences(x: Value, place: Lowering) -> Value:
    """Return the column minus the row for each place of the last two axes."""
    shape = place.node("Shape", x)
    zero, one = place.constant(np.array(0), "zero"), place.constant(np.array(1), "one")
    rows, columns = (
        place.node("Range", zero, place.node("Gather", shape, place.constant(np.array(axis), "axis")), one)
        for axis in (-2, -1)
    )
    return place.node("Sub", columns, place.node("Unsqueeze", rows, place.integers([1], "axes")))
