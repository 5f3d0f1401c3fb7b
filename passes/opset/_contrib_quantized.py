"""Quantized operators of ONNX Runtime: in float between DequantizeLinear and QuantizeLinear, or as integer products.

Source: docs/ContribOperators.md, and the kernels in `contrib_ops/cpu/quantization`. A missing zero point is 0.
QLinearConv and QLinearMatMul are operators of ONNX of the same form.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from surgery import Refusal, Value, unpacked_codes

from . import _types
from ._calls import Call
from ._contrib import dims_of, sum_of
from ._contrib_attention import projected
from ._lowering import Lowering, Result, part

Inner = Callable[[Call, Lowering, list[Value]], Value]


def _dequantized(call: Call, index: int, place: Lowering) -> Value:
    """Dequantize an input whose scale and zero point are the next inputs."""
    data, scale, zero = call.input(index), call.input(index + 1), call.find(index + 2)
    return place.node("DequantizeLinear", data, scale, *([] if zero is None else [zero]))


def _quantized(call: Call, made: Value, index: int, kind: str, place: Lowering) -> Value:
    """Quantize to a type; the scale is the input at `index`, and the zero point the next one."""
    zero = call.find(index + 1)
    if zero is None:
        zero = place.constant(np.array(0, _types.numpy_type(kind)), "zero")
    return place.node("QuantizeLinear", made, call.input(index), zero)


def _between(operands: tuple[int, ...], result: int, inner: Inner) -> Callable[[Call, Lowering], Result]:
    """Return the rule of an operator with operands at these positions and the scale of its result at another."""

    def rule(call: Call, place: Lowering) -> Result:
        values = [_dequantized(call, index, place) for index in operands]
        kind = place.known_kind(call.input(operands[0]))
        return _quantized(call, inner(call, place, values), result, kind, place)

    return rule


def _channels(call: Call, place: Lowering, value: Value, op: str, **attributes: object) -> Value:
    """Apply an operator that needs the channels on the second axis."""
    rank = len(dims_of(call.input(0)))
    last = bool(call.attr("channels_last", 0))
    data = place.node("Transpose", value, perm=[0, rank - 1, *range(1, rank - 1)]) if last else value
    made = place.node(op, data, **attributes)
    return place.node("Transpose", made, perm=[0, *range(2, rank), 1]) if last else made


_POOL = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")


def _average(call: Call, place: Lowering, values: list[Value]) -> Value:
    kept = {name: call.attr(name) for name in _POOL if name in call.attributes}
    return _channels(call, place, values[0], "AveragePool", **kept)


def _leaky(call: Call, place: Lowering, values: list[Value]) -> Value:
    return place.node("LeakyRelu", values[0], alpha=float(call.attr("alpha", 0.01)))


def _softmax(call: Call, place: Lowering, values: list[Value]) -> Value:
    """Compute Softmax; before opset 13, given by an attribute, the axes from `axis` on are treated as one."""
    rank = len(dims_of(call.input(0)))
    axis = int(call.attr("axis", -1)) % rank
    place.require(call.attr("opset", 13) >= 13 or axis == rank - 1, "QLinearSoftmax flattens several axes")
    return place.node("Softmax", values[0], axis=axis)


_UNARY: dict[str, Inner] = {
    "QLinearAveragePool": _average,
    "QLinearGlobalAveragePool": lambda call, place, values: _channels(call, place, values[0], "GlobalAveragePool"),
    "QLinearLeakyRelu": _leaky,
    "QLinearSigmoid": lambda call, place, values: place.node("Sigmoid", values[0]),
    "QLinearSoftmax": _softmax,
}
_BINARY: dict[str, Inner] = {
    "QLinearAdd": lambda call, place, values: place.node("Add", *values),
    "QLinearMul": lambda call, place, values: place.node("Mul", *values),
}
for name, inner in _UNARY.items():
    part(f"com.microsoft::{name}")(_between((0,), 3, inner))
for name, inner in _BINARY.items():
    part(f"com.microsoft::{name}")(_between((0, 3), 6, inner))


def _along(call: Call, index: int, axis: int, place: Lowering) -> Value:
    """Dequantize an operand that has one scale, or one for each index of an axis, next to its zero point."""
    data, scale, zero = call.input(index), call.input(index + 1), call.find(index + 2)
    dims = dims_of(scale)
    place.require(len(dims) < 2, "a scale has several axes")
    if dims in ((), (1,)):
        return place.node("DequantizeLinear", data, *(_single(value, place) for value in (scale, zero)))
    if zero is not None and dims_of(zero) != dims:
        points = place.array(zero)
        if points is None or points.size != 1:
            raise Refusal("a zero point has another shape than its scale")
        zero = place.constant(np.full(dims, points.reshape(())), "zero_point")
    return place.node("DequantizeLinear", data, scale, zero, axis=axis)


def _single(value: Value | None, place: Lowering) -> Value | None:
    """Return the only element of a vector as a scalar."""
    if value is None or not dims_of(value):
        return value
    array = place.array(value)
    return place.node("Squeeze", value) if array is None else place.constant(array.reshape(()), "scalar")


def _bias(call: Call, index: int, alpha: float, place: Lowering) -> Value | None:
    """Dequantize a bias of int32, which is in units of the products of the data and the weight."""
    bias = call.find(index)
    if bias is None:
        return None
    scales = [place.array(call.input(position)) for position in (1, 4)]
    if any(array is None for array in scales):
        raise Refusal("a scale of a product with a bias is not constant")
    first, second = (np.asarray(array).reshape(-1) for array in scales)
    unit = np.asarray(first * second * np.float32(alpha))
    place.require(unit.size == 1 or len(dims_of(bias)) == 1, "the bias is not one number for each channel")
    scale = place.constant(unit if unit.size > 1 else unit.reshape(()), "unit")
    return place.node("DequantizeLinear", bias, scale, axis=0 if unit.size > 1 else None)


@part("QLinearConv", plain=True)
def _conv(call: Call, place: Lowering) -> Result:
    data, weight = _along(call, 0, 1, place), _along(call, 3, 0, place)
    made = place.node("Conv", data, weight, _bias(call, 8, 1.0, place), **_plain(call))
    return _quantized(call, made, 6, place.known_kind(call.input(0)), place)


@part("QLinearMatMul", plain=True)
def _matmul(call: Call, place: Lowering) -> Result:
    """Compute MatMul; scales are those of the rows of the first and the columns of the second factor."""
    ranks = [len(dims_of(call.input(index))) for index in (0, 3)]
    values = [_along(call, index, rank + axis, place) for index, rank, axis in zip((0, 3), ranks, (-2, -1))]
    return _quantized(call, place.node("MatMul", *values), 6, place.known_kind(call.input(0)), place)


@part("com.microsoft::QGemm")
def _gemm(call: Call, place: Lowering) -> Result:
    """Compute Gemm, whose result is in float if it has no scale; alpha also scales the bias."""
    alpha, turned = float(call.attr("alpha", 1.0)), [int(call.attr(name, 0)) for name in ("transA", "transB")]
    values = _along(call, 0, 1, place), _along(call, 3, 0 if turned[1] else 1, place), _bias(call, 6, alpha, place)
    made = place.node("Gemm", *values, alpha=alpha, transA=turned[0], transB=turned[1])
    return made if call.find(7) is None else _quantized(call, made, 7, place.known_kind(call.input(0)), place)


def _plain(call: Call) -> dict[str, object]:
    """Return the attributes of a call as Python values."""
    return {name: call.attr(name) for name in call.attributes}


@part("com.microsoft::QLinearConcat")
def _concat(call: Call, place: Lowering) -> Result:
    values = [_dequantized(call, index, place) for index in range(2, len(call.inputs), 3)]
    made = place.node("Concat", *values, axis=int(call.attr("axis")))
    return _quantized(call, made, 0, place.known_kind(call.input(2)), place)


@part("com.microsoft::QLinearWhere")
def _where(call: Call, place: Lowering) -> Result:
    made = place.node("Where", call.input(0), _dequantized(call, 1, place), _dequantized(call, 4, place))
    return _quantized(call, made, 7, place.known_kind(call.input(1)), place)


@part("com.microsoft::DequantizeLinear")
def _dequantize(call: Call, place: Lowering) -> Result:
    return place.node("DequantizeLinear", *(value for value in call.inputs if value is not None), **_axis(call))


@part("com.microsoft::QuantizeLinear")
def _quantize(call: Call, place: Lowering) -> Result:
    return place.node("QuantizeLinear", *(value for value in call.inputs if value is not None), **_axis(call))


def _axis(call: Call) -> dict[str, int]:
    return {"axis": int(call.attr("axis"))} if "axis" in call.attributes else {}


@part("com.microsoft::DynamicQuantizeMatMul")
def _dynamic_matmul(call: Call, place: Lowering) -> Result:
    """Compute MatMulInteger of data quantized by their own range, times both scales, plus a bias."""
    data, weight, scale, zero, bias = call.first(5)
    assert data is not None and weight is not None and scale is not None
    rounded, own, point = place.nodes("DynamicQuantizeLinear", data, outputs=3)
    product = _product((rounded, weight), (point, zero), place)
    factor = place.node("Mul", own, scale)
    return sum_of(place, place.node("Mul", place.cast(product, "tensor(float)"), factor), bias)


def _product(operands: tuple[Value, Value], zeros: tuple[Value | None, Value | None], place: Lowering) -> Value:
    """Multiply integers after subtracting their zero points."""
    if zeros[1] is not None:
        first = zeros[0] if zeros[0] is not None else place.number(0, operands[0], "zero")
        return place.node("MatMulInteger", *operands, first, zeros[1])
    return place.node("MatMulInteger", *operands, *([] if zeros[0] is None else [zeros[0]]))


@part("com.microsoft::MatMulIntegerToFloat")
def _scaled_matmul(call: Call, place: Lowering) -> Result:
    first, second, one, other, zero, point, bias = call.first(7)
    assert first is not None and second is not None and one is not None and other is not None
    place.require(len(dims_of(one)) == 0 or dims_of(one) == (1,), "rows have separate scales")
    product = _product((first, second), (zero, point), place)
    scaled = place.node("Mul", place.cast(product, place.known_kind(one)), place.node("Mul", one, other))
    return sum_of(place, scaled, bias)


@part("com.microsoft::QAttention")
def _attention(call: Call, place: Lowering) -> Result:
    """Compute the projection as an integer product times both scales plus the bias; the rest is Attention."""
    place.require(not call.attr("past_present_share_buffer", 0), "past and present share a buffer")
    product = _product((call.input(0), call.input(1)), (call.find(6), call.find(7)), place)
    factor = place.node("Mul", call.input(3), call.input(4))
    scaled = place.node("Mul", place.cast(product, "tensor(float)"), factor)
    made = place.node("Add", scaled, call.input(2))
    return projected(call, made, (call.find(8), call.find(5), None), place)


@part("com.microsoft::MatMulNBits")
def _blocked_matmul(call: Call, place: Lowering) -> Result:
    """Compute MatMul with a weight unpacked to bytes, minus the zero points, times the scales, block by block."""
    data, packed, scales, zeros, order, bias = call.first(6)
    assert data is not None and packed is not None and scales is not None
    place.require(order is None and not call.attr("weight_prepacked", 0), "the weight has a special order")
    rows, columns, block = (int(call.attr(name)) for name in ("K", "N", "block_size"))
    bits, blocks = int(call.attr("bits", 4)), -(-rows // block)
    place.require(bits in (2, 4, 8), "the weight is not of 2, 4 or 8 bits")
    held = place.array(packed)
    if held is None or held.size == 0:
        raise Refusal("the packed weight is not constant")
    weight = unpacked_codes(held.reshape(columns * blocks, -1), bits)[:, :block].reshape(columns, blocks, block)
    like = place.known_kind(scales)
    by_block = place.integers([columns, blocks, 1], "by_block")
    number = place.cast(place.new.constant(weight, "weight"), like)
    point = _points(zeros, (columns, blocks, bits), place)
    if point is None:
        point = place.number(float(1 << (bits - 1)), scales, "middle")
    else:
        point = place.node("Reshape", place.cast(point, like), by_block)
    scaled = place.node("Mul", place.node("Sub", number, point), place.node("Reshape", scales, by_block))
    matrix = place.node("Reshape", scaled, place.integers([columns, blocks * block], "matrix"))
    if rows != blocks * block:
        bounds = (place.integers([n], name) for n, name in ((0, "start"), (rows, "end"), (1, "axis")))
        matrix = place.node("Slice", matrix, *bounds)
    made = place.node("MatMul", data, place.node("Transpose", place.note(matrix, 2, rows), perm=[1, 0]))
    return sum_of(place, made, bias)


def _points(zeros: Value | None, form: tuple[int, int, int], place: Lowering) -> Value | None:
    """Return one zero point for each column and block; they may be packed like the weight."""
    if zeros is None or place.known_kind(zeros) != "tensor(uint8)":
        return zeros
    columns, blocks, bits = form
    held = place.array(zeros)
    place.require(held is not None, "the packed weight is not constant")
    assert held is not None
    return place.new.constant(unpacked_codes(held.reshape(columns, -1), bits)[:, :blocks], "points")
