"""Blocks of layers: convolutions, matrix products, norms, recurrent layers, quantized ones."""

from __future__ import annotations

import numpy as np

from random_graphs.blocks import block, cast, unsqueeze
from random_graphs.trace import Trace, Unfit, Value

F32 = np.dtype(np.float32)


def image(t: Trace) -> Value:
    """Return a value [batch, channels, height, width] with known channels, made of another one if there is none."""
    try:
        return t.pick(lambda v: v.dtype == F32 and v.rank == 4 and bool(v.dims[1]) and not v.is_empty)
    except Unfit:
        x = t.float_value(rank=(2, 3), dtype=F32)
        x = unsqueeze(t, x, [0] if x.rank == 3 else [0, 1])
        if not x.dims[1] or x.is_empty:
            raise
        return x


def rows(t: Trace, rank: int | tuple[int, int] = (2, 4)) -> Value:
    low, high = (rank, rank) if isinstance(rank, int) else rank
    kinds = (F32, np.dtype(np.float64))
    return t.pick(lambda v: v.dtype in kinds and low <= v.rank <= high and bool(v.dims[-1]))


def conv(t: Trace, x: Value, *, bias: bool | None = None, plain: bool = False) -> Value:
    channels = x.dims[1]
    assert channels is not None
    groups = 1 if plain or channels == 1 or t.chance(0.7) else channels
    out = groups * t.among(1, 2) if groups > 1 else t.choose([1, 2, 3, 4])
    kernel = [t.choose([1, 1, 2, 3]) for _ in range(2)]
    weight = t.drawn([out, channels // groups, *kernel], x.dtype)
    own = {"pads": [t.among(0, 2) for _ in range(4)]} if t.chance(0.5) else {}
    if not own and t.chance(0.2):
        own = {"auto_pad": t.choose(["SAME_UPPER", "SAME_LOWER", "VALID"])}
    if t.chance(0.2):
        own["strides"] = [t.among(1, 2), t.among(1, 2)]
    if t.chance(0.1):
        own["dilations"] = [2, 1]
    with_bias = t.chance(0.5) if bias is None else bias
    inputs = [x, weight, *([t.drawn([out], x.dtype)] if with_bias else [])]
    return t.op("Conv", *inputs, group=groups if groups > 1 or t.chance(0.2) else None, **own)


def batch_norm(t: Trace, x: Value) -> Value:
    channels = x.dims[1]
    if not channels:
        raise Unfit
    scale, shift, mean = (t.drawn([channels], x.dtype) for _ in range(3))
    variance = t.constant(np.abs(t.rng.standard_normal(channels)) + (0 if t.chance(0.1) else 0.1), x.dtype)
    return t.op("BatchNormalization", x, scale, shift, mean, variance, epsilon=1e-3 if t.chance(0.3) else None)


@block(3)
def convolution(t: Trace) -> Value:
    """Convolve, with what is around a convolution: padding, a norm, scales, an activation."""
    x = image(t)
    if t.chance(0.2):
        x = t.op("Pad", x, t.ints(0, 0, t.among(0, 1), t.among(0, 1), 0, 0, t.among(0, 1), t.among(0, 1)))
    if t.chance(0.15):
        x = t.op(t.choose(["Mul", "Add"]), x, t.drawn([x.dims[1] or 1, 1, 1], x.dtype))
    y = conv(t, x)
    if t.chance(0.5):
        y = batch_norm(t, y)
    if t.chance(0.3):
        y = t.op(t.choose(["Mul", "Add", "Div"]), y, t.drawn(t.choose([[], [1, y.dims[1], 1, 1]]), y.dtype))
    if t.chance(0.5):
        y = t.op(t.choose(["Relu", "Sigmoid", "HardSigmoid", "LeakyRelu"]), y)
    return y


@block()
def norm_first(t: Trace) -> Value:
    return conv(t, t.op("Relu", batch_norm(t, image(t)))) if t.chance(0.5) else conv(t, batch_norm(t, image(t)))


@block()
def lone_norm(t: Trace) -> Value:
    x = t.pick(lambda v: v.is_float and v.dtype != np.float16 and v.rank >= 2 and bool(v.dims[1]))
    return batch_norm(t, x)


@block()
def transposed_convolution(t: Trace) -> Value:
    x = image(t)
    out = t.among(1, 3)
    weight = t.drawn([x.dims[1] or 1, out, t.among(1, 3), t.among(1, 3)], x.dtype)
    bias = [t.drawn([out], x.dtype)] if t.chance(0.5) else []
    y = t.op("ConvTranspose", x, weight, *bias, strides=t.choose([None, [2, 2], [1, 2]]))
    return batch_norm(t, y) if t.chance(0.5) else y


@block(2)
def pooled(t: Trace) -> Value:
    x = image(t)
    op = t.choose(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"])
    if op.startswith("Global"):
        y = t.op(op, x)
        return t.op(t.choose(["Flatten", "Identity"]), y) if t.chance(0.5) else y
    if t.chance(0.3):
        x = t.op("Pad", x, t.ints(0, 0, 1, 1, 0, 0, t.among(0, 1), 1))
    own = {"pads": [1, 1, 1, 0]} if t.chance(0.3) else {}
    if op == "AveragePool" and t.chance(0.5):
        own["count_include_pad"] = 1
    return t.op(op, x, kernel_shape=[2, 2], strides=t.choose([None, [2, 2]]), ceil_mode=t.choose([None, 1]), **own)


@block()
def resized(t: Trace) -> Value:
    x = image(t)
    scales = t.constant(np.array([1, 1, t.choose([1, 2]), t.choose([1, 2, 0.5])], np.float32), fixed=True)
    own = {"coordinate_transformation_mode": t.choose(["half_pixel", "asymmetric", "align_corners"])}
    mode = t.choose(["nearest", "linear", "nearest"])
    return t.op("Resize", x, t.constant(np.zeros(0, np.float32)) if t.opset < 13 else None, scales, mode=mode, **own)


@block()
def local_norm(t: Trace) -> Value:
    x = image(t)
    channels = x.dims[1]
    op = t.choose(["InstanceNormalization", "LRN", "GroupNormalization"])
    if op == "LRN":
        return t.op(op, x, size=3)
    scale, shift = t.drawn([channels], x.dtype), t.drawn([channels], x.dtype)
    return t.op(op, x, scale, shift, **({"num_groups": 1} if op[0] == "G" else {}))


@block(3)
def product(t: Trace) -> Value:
    """Multiply by a matrix; a bias, a scale, Reshapes or an activation around it."""
    x = rows(t)
    width, out = x.dims[-1], t.choose([1, 2, 3, 4, 6])
    weight = t.drawn([width, out], x.dtype)
    if t.chance(0.2):
        weight = t.op("Transpose", t.drawn([out, width], x.dtype), perm=[1, 0])
    y = t.op("MatMul", x, weight)
    for _ in range(t.among(0, 2)):
        op = t.choose(["Add", "Add", "Mul", "Sub", "Div"])
        other = t.drawn(t.choose([[out], [out], [], [1, out]]), x.dtype)
        y = t.op(op, *((y, other) if t.chance(0.7) else (other, y)))
    return t.op(t.choose(["Relu", "Sigmoid", "Tanh"]), y) if t.chance(0.3) else y


@block(2)
def parallel_products(t: Trace) -> Value:
    x = rows(t)
    parts = []
    for _ in range(t.among(2, 3)):
        out = t.choose([2, 4])
        y = t.op("MatMul", x, t.drawn([x.dims[-1], out], x.dtype))
        parts.append(t.op("Add", y, t.drawn([out], x.dtype)) if t.chance(0.7) else y)
    if t.chance(0.4):
        return t.op("Concat", *parts, axis=-1)
    return t.op("Add", parts[0], parts[1]) if parts[0].dims == parts[1].dims else parts[-1]


@block(2)
def gemm(t: Trace) -> Value:
    x = rows(t, 2)
    width, out = x.dims[1], t.choose([1, 2, 3, 5])
    turned = t.chance(0.4)
    weight = t.drawn([out, width] if turned else [width, out], x.dtype)
    bias = [t.drawn(t.choose([[out], [1, out], [1], []]), x.dtype)] if t.chance(0.7) else []
    own = {"alpha": 0.5} if t.chance(0.2) else {}
    if t.chance(0.2):
        own["beta"] = t.choose([0.5, 2.0, 0.0])
    y = t.op("Gemm", x, weight, *bias, transB=1 if turned else None, **own)
    if t.chance(0.3):
        y = t.op(t.choose(["Add", "Mul"]), y, t.drawn(t.choose([[out], []]), x.dtype))
    return y


@block(2)
def product_of_two(t: Trace) -> Value:
    """Multiply a value with itself transposed, as attention scores are."""
    x = t.float_value(rank=(2, 4), dtype=F32)
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    turned = t.op("Transpose", x, perm=order)
    scaled = t.op("Mul", turned, t.scalar(0.5, x)) if t.chance(0.4) else turned
    return t.op("MatMul", x, scaled) if t.chance(0.7) else t.op("MatMul", scaled, x)


@block()
def einsum(t: Trace) -> Value:
    x = rows(t, 3)
    form = t.choose(["bik,kj->bij", "bik,bjk->bij", "bik,bik->bi", "bik->bki", "bik->bk"])
    if "," not in form:
        return t.op("Einsum", x, equation=form)
    other = t.drawn([x.dims[-1], 3], x.dtype) if "kj" in form.split(",")[1] and "bjk" not in form else x
    return t.op("Einsum", x, other, equation=form)


@block()
def layer_norm(t: Trace) -> Value:
    x = rows(t)
    scale = t.drawn([x.dims[-1]], x.dtype)
    return t.op("LayerNormalization", x, scale, *([t.drawn([x.dims[-1]], x.dtype)] if t.chance(0.7) else []))


@block()
def recurrent(t: Trace) -> Value:
    """Run a recurrent layer over [sequence, batch, features], with zero initial states or none."""
    x = t.float_value(rank=3, dtype=F32)
    width, hidden = x.dims[2], t.among(1, 3)
    if not width or x.is_empty or not x.dims[1]:
        raise Unfit
    op, gates = t.choose([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    ways = t.choose([1, 1, 2])
    made = [
        t.constant(t.rng.standard_normal(s) * 0.5, F32)
        for s in ([ways, gates * hidden, width], [ways, gates * hidden, hidden])
    ]
    bias = t.drawn([ways, 2 * gates * hidden], F32) if t.chance(0.7) else None
    start = t.constant(np.zeros([ways, x.dims[1], hidden]), F32) if t.chance(0.5) else None
    more = [start] if op == "LSTM" else []
    own = {"direction": "bidirectional"} if ways == 2 else {}
    y, last = t.op(op, x, *made, bias, None, start, *more, n=2, hidden_size=hidden, **own)[:2]
    return y if t.chance(0.6) else last


# Quantized


def _scale(t: Trace) -> Value:
    return t.constant(np.array(t.choose([0.05, 0.1, 0.02, 0.5]), np.float32), fixed=t.chance(0.9))


def quantize(t: Trace, x: Value, scale: Value, zero: Value) -> Value:
    return t.op("DequantizeLinear", t.op("QuantizeLinear", x, scale, zero), scale, zero)


def _zero(t: Trace) -> Value:
    kind = t.choose([np.int8, np.uint8])
    return t.constant(
        np.array(0 if kind is np.int8 and t.chance(0.6) else t.among(1, 128 if kind is np.uint8 else 20), kind)
    )


@block(2)
def fake_quantized(t: Trace) -> Value:
    """Quantize and dequantize, and often again with the same parameters after something that moves elements."""
    x = t.float_value(rank=(1, 4), dtype=F32)
    scale, zero = _scale(t), _zero(t)
    y = quantize(t, x, scale, zero)
    if t.chance(0.5):
        y = t.op(t.choose(["Relu", "Identity"]), y) if t.chance(0.5) else t.op("Transpose", y)
        y = quantize(t, y, scale, zero)
    return y


@block(2)
def quantized_product(t: Trace) -> Value:
    x = t.float_value(rank=(2, 3), dtype=F32)
    width, out = x.dims[-1], t.among(1, 4)
    if not width:
        raise Unfit
    form = t.choose(["weights", "integer", "dynamic", "linear"])
    weight = t.constant(t.rng.integers(-127, 128, [width, out]), np.int8)
    if form == "weights":
        axis = t.opset >= 13 and t.chance(0.5)
        scale = t.constant(t.rng.uniform(0.01, 0.1, [out] if axis else []), np.float32)
        zeros = t.constant(np.zeros([out] if axis else [], np.int8))
        kernel = t.op("DequantizeLinear", weight, scale, zeros, axis=1 if axis else None)
        return t.op("MatMul", quantize(t, x, _scale(t), _zero(t)) if t.chance(0.6) else x, kernel)
    if form == "integer":
        q = t.op("QuantizeLinear", x, _scale(t), zero := _zero(t))
        return cast(t, t.op("MatMulInteger", q, weight, zero), np.float32)
    if form == "linear":
        q = t.op("QuantizeLinear", x, scale := _scale(t), zero := _zero(t))
        ends = [_scale(t), t.constant(np.array(0, np.int8))]
        y = t.op("QLinearMatMul", q, scale, zero, weight, ends[0], ends[1], scale, zero)
        return t.op("DequantizeLinear", y, scale, zero)
    q, scale, zero = t.op("DynamicQuantizeLinear", x, n=3)
    return t.op("Mul", cast(t, t.op("MatMulInteger", q, weight, zero), np.float32), scale)


@block()
def quantized_convolution(t: Trace) -> Value:
    x = image(t)
    out = t.among(1, 3)
    weight = t.constant(t.rng.integers(-127, 128, [out, x.dims[1], 1, t.among(1, 2)]), np.int8)
    scale = t.constant(t.rng.uniform(0.01, 0.1, []), np.float32)
    kernel = t.op("DequantizeLinear", weight, scale, t.constant(np.array(0, np.int8)))
    return quantize(t, t.op("Conv", quantize(t, x, _scale(t), _zero(t)), kernel), _scale(t), _zero(t))
