"""Blocks of operators that few models have: signals, grids, regions, losses, attention of late opsets, odd ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from random_graphs.blocks import axis_of, block, cast, unsqueeze
from random_graphs.blocks_networks import F32, batch_norm, image, rows
from random_graphs.trace import Trace, Unfit, Value


def extents(x: Value, axes: list[int]) -> list[int]:
    """Return the smallest extents of axes in both runs."""
    return [min(run.shape[axis] for run in x.runs) for axis in axes]


def whole(t: Trace, number: int) -> Value:
    return t.constant(np.array(number, np.int64), fixed=True)


# Signals


@block()
def signal(t: Trace) -> Value:
    """Window a signal, or take its spectrum."""
    form = t.choose(["window", "dft", "stft", "mel"])
    if form == "window":
        count = whole(t, t.among(2, 5))
        op = t.choose(["HannWindow", "HammingWindow", "BlackmanWindow"])
        return t.op(op, count, periodic=t.choose([None, 0, 1]))
    if form == "mel":
        numbers = [whole(t, number) for number in (3, 8, 100)]
        ends = [t.constant(np.array(number, np.float32), fixed=True) for number in (5.0, 45.0)]
        return t.op("MelWeightMatrix", *numbers, *ends)
    x = t.float_value(rank=(2, 3), dtype=F32)
    if form == "dft":
        x = unsqueeze(t, x, [x.rank])
        axis = 1 if t.opset < 20 or t.chance(0.6) else -2
        old = {"axis": axis} if t.opset < 20 else {}
        inputs = [] if t.opset < 20 else [None, whole(t, axis)]
        return t.op("DFT", x, *inputs, onesided=t.choose([None, 1]), **old)
    x = t.float_value(rank=2, dtype=F32)
    length = t.choose([2, 3, 4])
    window = t.drawn([length], F32) if t.chance(0.7) else None
    return t.op("STFT", x, whole(t, t.among(1, 2)), window, whole(t, length), onesided=t.choose([None, 1, 0]))


# Images and regions


@block()
def grid(t: Trace) -> Value:
    """Sample an image at a grid, given or affine."""
    x = image(t)
    if t.chance(0.4) and x.dims[0]:
        theta = t.drawn([x.dims[0], 2, 3], F32)
        size = t.ints(x.dims[0], x.dims[1] or 1, t.among(1, 4), t.among(1, 4))
        points = t.op("AffineGrid", theta, size, align_corners=t.among(0, 1))
    else:
        drawn = t.drawn([x.dims[0] or 1, t.among(1, 3), t.among(1, 3), 2], F32)
        points = t.op("Tanh", drawn)
    if t.chance(0.2):
        return points
    mode = t.choose(["bilinear", "nearest", "bicubic"] if t.opset < 20 else ["linear", "nearest", "cubic"])
    padding = t.choose(["zeros", "border", "reflection"])
    return t.op("GridSample", x, points, mode=mode, padding_mode=padding, align_corners=t.among(0, 1))


@block()
def regions_of_image(t: Trace) -> Value:
    x = image(t)
    if not x.is_static:
        raise Unfit  # an image without pixels, at another size, takes the runtime down
    boxes = np.array([[0, 0, 2, 2], [1, 0, 3, 2]], np.float32)
    if t.chance(0.3):
        with_batch = t.constant(np.concatenate([np.zeros([2, 1], np.float32), boxes], 1))
        return t.op("MaxRoiPool", x, with_batch, pooled_shape=[1, t.among(1, 2)])
    mode = t.choose(["avg", "max"])
    own = {"mode": mode, "output_height": t.among(1, 2), "sampling_ratio": 2 if mode == "avg" else 1}
    return t.op("RoiAlign", x, t.constant(boxes), t.constant(np.zeros(2, np.int64)), **own)


@block()
def suppression(t: Trace) -> Value:
    """Keep the best boxes; where the scores come from the graph, their number follows from data."""
    count = t.among(2, 4)
    boxes = t.constant(t.rng.uniform(0, 1, [1, count, 4]), np.float32)
    scores = t.constant(t.rng.uniform(0, 1, [1, 1, count]), np.float32)
    if t.chance(0.5):
        x = t.float_value(rank=3, dtype=F32)
        scores = t.op("Sigmoid", t.op("Add", t.op("ReduceMax", x, keepdims=1), scores))
    limits = [t.constant(np.array([number], np.float32), fixed=True) for number in (0.5, 0.1)]
    kept = t.op("NonMaxSuppression", boxes, scores, t.ints(2), *limits, center_point_box=t.choose([None, 1]))
    return t.op("Gather", kept, whole(t, 2), axis=1) if t.chance(0.5) else kept


@block()
def deformed(t: Trace) -> Value:
    x = image(t)
    height, width = x.dims[2], x.dims[3]
    if not x.dims[0] or not height or not width:
        raise Unfit
    weight = t.drawn([t.among(1, 3), x.dims[1], 1, 1], F32)
    offset = t.drawn([x.dims[0], 2, height, width], F32, character="normal")
    bias = t.drawn([weight.dims[0]], F32) if t.chance(0.5) else None
    mask = t.drawn([x.dims[0], 1, height, width], F32) if t.chance(0.5) else None
    return t.op("DeformConv", x, weight, offset, bias, mask)


@block()
def cropped(t: Trace) -> Value:
    form = t.choose(["CenterCropPad", "Col2Im", "MaxUnpool", "Det", "GlobalLpPool"])
    if form == "CenterCropPad":
        x = t.float_value(rank=(1, 4))
        axis = axis_of(t, x)
        return t.op(form, x, t.ints(t.among(1, 4)), axes=[axis])
    if form == "Det":
        x = t.pick(lambda v: v.dtype == F32 and v.rank >= 2 and v.dims[-1] == v.dims[-2])
        return t.op(form, x)
    if form == "Col2Im":
        x = t.pick(lambda v: v.dtype == F32 and v.rank == 3 and v.dims[2] == 4 and bool(v.dims[1]))
        return t.op(form, x, t.ints(2, 2), t.ints(1, 1))
    x = image(t)
    if form == "MaxUnpool":
        values, places = t.op("MaxPool", x, n=2, kernel_shape=[2, 2], strides=[2, 2])
        return t.op(form, values, places, kernel_shape=[2, 2], strides=[2, 2])
    return t.op("GlobalLpPool", x, p=t.choose([None, 1, 3]))


@block(2)
def other_ranks(t: Trace) -> Value:
    """Convolve or pool along one axis, or three, with a norm and an activation after it."""
    x = t.pick(lambda v: v.dtype == F32 and v.rank in (3, 5) and bool(v.dims[1]) and not v.is_empty)
    if x.rank == 3 and t.chance(0.3):
        x = unsqueeze(t, x, [3, 4])
    axes = x.rank - 2
    kernel = [t.choose([1, 1, 2, 3]) for _ in range(axes)]
    form = t.choose(["Conv", "Conv", "ConvTranspose", "pool"])
    if form == "pool":
        op = t.choose(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"])
        own: dict[str, Any] = {} if op[0] == "G" else {"kernel_shape": kernel, "pads": [1] * 2 * axes}
        if op == "LpPool" or max(kernel) == 1:
            own.pop("pads", None)
        return t.op(op, x, **own)
    out = t.among(1, 3)
    sides = [x.dims[1] or 1, out] if form == "ConvTranspose" else [out, x.dims[1] or 1]
    weight = t.drawn([*sides, *kernel], F32)
    bias = [t.drawn([out], F32)] if t.chance(0.5) else []
    y = t.op(form, x, weight, *bias, pads=[1] * 2 * axes if t.chance(0.4) else None)
    y = batch_norm(t, y) if t.chance(0.4) else y
    y = t.op("Mul", y, t.drawn([out, *[1] * axes], F32)) if t.chance(0.3) else y
    return t.op(t.choose(["Relu", "Tanh", "LeakyRelu"]), y) if t.chance(0.5) else y


# Losses, and what late opsets have


@block(0.5)
def loss(t: Trace) -> Value:
    x = t.float_value(rank=2, dtype=F32)
    if not x.dims[0] or not x.dims[1]:
        raise Unfit
    labels = t.constant(t.rng.integers(0, x.dims[1], [x.dims[0]]), np.int64)
    weights = [t.drawn([x.dims[1]], F32, character="positive")] if t.chance(0.3) else []
    how = t.choose(["mean", "sum", "none"])
    if t.chance(0.5):
        return t.op("NegativeLogLikelihoodLoss", t.op("LogSoftmax", x, axis=1), labels, *weights, reduction=how)
    made = t.op("SoftmaxCrossEntropyLoss", x, labels, *weights, n=t.choose([1, 2]), reduction=how)
    return made[0] if isinstance(made, list) else made


@block(2)
def late(t: Trace) -> Value:
    """Add an operator of opset 23 or later."""
    form = t.choose(["RMSNormalization", "Swish", "CumProd", "RotaryEmbedding", "TensorScatter", "Attention"])
    if form == "RMSNormalization":
        x = rows(t)
        return t.op(form, x, t.drawn([x.dims[-1]], x.dtype), axis=t.choose([None, -1]), epsilon=t.choose([None, 0.1]))
    if form == "Swish":
        return t.op(form, t.float_value(), alpha=t.choose([None, 1.702, 1.0]))
    if form == "CumProd":
        x = t.float_value(rank=(1, 4))
        return t.op(form, x, whole(t, axis_of(t, x)), exclusive=t.among(0, 1))
    x = t.pick(lambda v: v.dtype == F32 and v.rank == 4 and bool(v.dims[3]) and not v.is_empty)
    if form == "RotaryEmbedding":
        half = (x.dims[3] or 0) // 2
        if half * 2 != x.dims[3]:
            raise Unfit  # the runtime takes it, and leaves elements unwritten
        tables = [t.drawn([8, half], F32) for _ in range(2)]
        places = t.constant(t.rng.integers(0, 8, [x.dims[0] or 1, x.dims[2] or 1]), np.int64)
        return t.op(form, x, *tables, places, interleaved=t.choose([None, 1]))
    if form == "TensorScatter":
        update = t.drawn([x.dims[0] or 1, x.dims[1] or 1, 1, x.dims[3]], F32)
        return t.op(form, x, update, axis=t.choose([None, -2]), mode=t.choose([None, "linear", "circular"]))
    mask = None
    if t.chance(0.4):
        mask = t.constant(t.rng.random([x.dims[2] or 1, x.dims[2] or 1]) < 0.8)
    own = {"is_causal": t.choose([None, 1]), "scale": t.choose([None, 0.3]), "softcap": t.choose([None, None, 2.0])}
    return t.op("Attention", x, x, t.op("Neg", x) if t.chance(0.5) else x, mask, **own)


# Whole numbers, quantized layers of the older form, optionals and texts


@block()
def whole_numbers(t: Trace) -> Value:
    """Reduce, sort or sum up integers."""
    x = t.pick(lambda v: v.dtype in (np.dtype(np.int64), np.dtype(np.int32)) and v.rank >= 1 and not v.is_empty)
    form = t.choose(["ReduceMax", "ReduceMin", "ArgMax", "TopK", "CumSum", "Max", "Min", "Abs", "Sign", "Mean"])
    axis = axis_of(t, x)
    if form in ("ReduceMax", "ReduceMin"):
        return t.op(form, x, keepdims=t.among(0, 1))
    if form == "ArgMax":
        return t.op(form, x, axis=axis, keepdims=t.among(0, 1))
    if form == "TopK":
        return t.op(form, x, t.ints(1), n=2, axis=axis)[t.among(0, 1)]
    if form == "CumSum":
        return t.op(form, x, whole(t, axis))
    if form == "Mean":
        return t.op("Div", cast(t, t.op("ReduceMax", x, keepdims=0), np.float32), t.scalar(3, F32))
    return t.op(form, x, *([t.scalar(2, x)] if form in ("Max", "Min") else []))


@block()
def quantized_integers(t: Trace) -> Value:
    """Convolve integers: ConvInteger, or QLinearConv with its bias."""
    x = image(t)
    scale, zero = t.constant(np.array(0.05, np.float32)), t.constant(np.array(t.among(0, 128), np.uint8))
    q = t.op("QuantizeLinear", x, scale, zero)
    out = t.among(1, 3)
    weight = t.constant(t.rng.integers(0, 256, [out, x.dims[1], 1, t.among(1, 2)]), np.uint8)
    if t.chance(0.4):
        return cast(t, t.op("ConvInteger", q, weight, zero, t.constant(np.array(t.choose([0, 120]), np.uint8))), F32)
    of_weight = [t.constant(np.array(0.02, np.float32)), t.constant(np.array(128, np.uint8))]
    bias = [t.constant(t.rng.integers(-100, 100, [out]), np.int32)] if t.chance(0.5) else []
    y = t.op("QLinearConv", q, scale, zero, weight, *of_weight, scale, zero, *bias)
    return t.op("DequantizeLinear", y, scale, zero)


@block()
def narrow_weights(t: Trace) -> Value:
    """Multiply by weights of 4 bits, float8 or bfloat16, which are made wide first."""
    x = t.pick(lambda v: v.dtype == F32 and v.rank in (2, 3) and bool(v.dims[-1]))
    width, out = x.dims[-1] or 1, t.among(1, 4)
    kinds = [TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.INT4, TensorProto.UINT4, TensorProto.INT16]
    kind = t.choose(kinds)
    name, wide = t.fresh("narrow"), t.fresh("wide")
    floating = kind in (TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN)
    numbers = t.rng.standard_normal([width, out]) if floating else t.rng.integers(0, 8, [width, out])
    tensor = helper.make_tensor(name, kind, [width, out], numbers.flatten().tolist())
    if kind == TensorProto.BFLOAT16:
        node = helper.make_node("Cast", [name], [wide], to=TensorProto.FLOAT)
    else:
        scales = t.drawn([out] if t.chance(0.5) else [], F32, character="positive")
        node = helper.make_node("DequantizeLinear", [name, scales.name], [wide], axis=1)
    return t.op("MatMul", x, t.add(node, tensor))


@block()
def optional_value(t: Trace) -> Value:
    """Wrap a value in an optional and take it out, or ask whether there is one."""
    x = t.pick(lambda v: v.dtype == F32)
    if t.opset >= 18 and t.chance(0.4):
        return t.op(t.choose(["OptionalGetElement", "OptionalHasElement"]), x)
    parts = t.op("SequenceInsert", t.op("SequenceConstruct", x, x), t.op("Neg", x), whole(t, t.among(0, 2)))
    if t.chance(0.4):
        parts = t.op("SequenceErase", parts, whole(t, t.among(-1, 1)))
    return t.op("SequenceAt", parts, whole(t, t.among(0, 1)))


@block(0.5)
def texts(t: Trace) -> Value:
    """Compare or join texts that stand for numbers."""
    x = t.pick(lambda v: v.dtype in (np.dtype(np.int64), np.dtype(np.int32)) and v.rank >= 1 and not v.is_empty)
    name = t.fresh("text")
    as_text = t.add(helper.make_node("Cast", [x.name], [name], to=TensorProto.STRING))
    form = t.choose(["back", "join", "match", "equal"])
    if form == "join":
        as_text = t.op("StringConcat", as_text, t.constant(np.array(["7"], object)))
    if form == "match":
        return t.op("RegexFullMatch", as_text, pattern="[0-3]+")
    if form == "equal":
        return t.op("Equal", as_text, t.constant(np.array(["1"], object)))
    return cast(t, as_text, t.choose([np.int64, np.float32]))
