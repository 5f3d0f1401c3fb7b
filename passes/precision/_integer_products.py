"""Conv, MatMul and Gemm between DequantizeLinear and QuantizeLinear, as operators on integers."""

from __future__ import annotations

import math

import numpy as np

from surgery import Builder, Node, Refusal, Value, data_type

from ._floats import dequantized, parameters
from ._integers import Array, blocks, integer_type
from ._quantized import Quantized, Rounded, one, operand, rounded
from ._sharing import Shared

GEMM = "com.microsoft::QGemm"

LARGEST = 2**31 - 1
"""The largest number of int32, in which products are summed up."""


class Integers:
    """Writes nodes on integers, with the constants that several of them share."""

    def __init__(self) -> None:
        self._shared = Shared()

    def scale(self, node: Node, given: Quantized, new: Builder) -> Value:
        """Return the scale; a single one as a scalar."""
        return given.scale if given.scales.size > 1 else self._scalar(node, given.scale, given.scales, new)

    def point(self, node: Node, given: Quantized, new: Builder, *, single: bool = False) -> Value:
        """Return the zero point in the form of the scale, or, with `single`, one for all elements."""
        array = given.points.astype(given.kind)
        if single or (array.size == 1 and given.scales.size == 1):
            return self._scalar(node, given.zero_point, array[:1], new)
        if given.zero_point is not None and array.size == given.scales.size:
            return given.zero_point
        return self.constant(node, np.broadcast_to(array, given.scales.shape), f"{given.integers.name}_zero", new)

    def _scalar(self, node: Node, value: Value | None, array: Array, new: Builder) -> Value:
        if value is not None and value.rank == 0:
            return value
        return self.constant(node, array.reshape(()), "zero" if value is None else value.name, new)

    def constant(self, node: Node, array: Array, name: str, new: Builder) -> Value:
        """Return a constant, shared by all nodes of a graph that need an equal one."""
        key = (array.dtype.str, array.shape, array.tobytes())
        return self._shared.get(node, key, lambda: (new.constant(np.array(array), name),))[0]

    def triple(self, node: Node, given: Quantized, new: Builder) -> tuple[Value, Value, Value]:
        """Return integers, scale and zero point, as operators on integers read them."""
        return given.integers, self.scale(node, given, new), self.point(node, given, new)

    def result(self, node: Node, found: Rounded, new: Builder) -> tuple[Value, Value]:
        """Return the scale and the zero point of a result."""
        return self.scale(node, found.given, new), self.point(node, found.given, new)


def multiply(node: Node, integers: Integers, new: Builder) -> None:
    """Compute a Conv, a MatMul or a Gemm on integers."""
    data, weight = one(operand(node, 0)), operand(node, 1)
    new.require((data.kind, weight.kind) != ("int8", "uint8"), "kernels for int8 data take no uint8 weight")
    axis = _channels(node, weight)
    bias = _bias(node, data, weight, axis)
    _require_room(node, data, weight, axis, bias)
    found = _rounded(node, data.kind)
    if node.op == "Conv":
        _convolve(node, (data, weight), bias, found, integers, new)
    elif node.op == "Gemm" and new.target.has(GEMM):
        _qgemm(node, (data, weight), bias, found, integers, new)
    else:
        _matmul(node, (data, weight), bias, found, integers, new)


def _rounded(node: Node, kind: str) -> Rounded | None:
    """Return the quantized form of the result; None if it stays in floats."""
    try:
        return rounded(node, kind)
    except Refusal:
        return None


def _channels(node: Node, weight: Quantized) -> int:
    """Return the axis of the weight that holds the channels of the result; refuse scales along another."""
    rank = weight.integers.rank
    if rank is None:
        raise Refusal("the rank of the weight is not known")
    is_first = node.op == "Conv" or (node.op == "Gemm" and node.attr("transB", 0))
    axis = 0 if is_first else rank - 1
    if not weight.has_one_scale and (weight.axis % max(rank, 1) != axis or (node.op == "MatMul" and rank != 2)):
        raise Refusal("the scales of the weight are not those of the channels of the result")
    if node.op == "Conv" and (weight.points != weight.points[0]).any():
        raise Refusal("the zero points of the weight differ")
    if node.op == "Gemm" and (node.attr("alpha", 1.0) != 1.0 or (node.input(2) and node.attr("beta", 1.0) != 1.0)):
        raise Refusal("alpha or beta of the Gemm is not 1")
    return axis


def _bias(node: Node, data: Quantized, weight: Quantized, axis: int) -> Array | None:
    """Return a bias as int32 in units of the products, one number for each channel; refuse if it has no such form."""
    value = None if node.op == "MatMul" else node.input(2)
    if value is None:
        return None
    array, shape = _floats(value), weight.integers.shape
    count = None if shape is None else shape[axis]
    if not isinstance(count, int) or array.size not in (1, count) or array.shape[-1:] not in ((), (array.size,)):
        raise Refusal("the bias is not one number for each channel")
    units = data.scales.astype(np.float64) * weight.scales
    made = np.rint(np.broadcast_to(array.reshape(-1), (count,)) / units)
    if not (np.isfinite(made).all() and (np.abs(made) <= LARGEST).all()):
        raise Refusal("the bias exceeds int32 in units of the products")
    return made.astype(np.int32)


def _floats(value: Value) -> Array:
    """Return a constant, which may be dequantized, in float64."""
    if value.constant is not None and value.is_constant:
        return value.constant.astype(np.float64)
    producer = value.producer
    source = None if producer is None or producer.op != "DequantizeLinear" else producer.required_input(0)
    if producer is None or source is None or source.constant is None or not source.is_constant:
        raise Refusal("the bias is not constant")
    return dequantized(source.constant, parameters(producer), np.dtype(np.float64))


def _require_room(node: Node, data: Quantized, weight: Quantized, axis: int, bias: Array | None) -> None:
    """Refuse a product whose sums may exceed int32."""
    kind, point = integer_type(data.kind), data.points[0]
    largest = int(max(kind.high - point, point - kind.low))
    array, shape = weight.integers.constant, weight.integers.shape or ()
    if array is not None:
        sums = _sums(array, weight, axis) * largest
    else:
        summed = shape[1:] if axis == 0 else shape[-2:-1]
        known = [dim for dim in summed if isinstance(dim, int)]
        sums = np.full(1, math.prod(known) * largest * 255, np.int64)
    added = 0 if bias is None else np.abs(bias.astype(np.int64))
    if sums.size and (sums + added).max() > LARGEST:
        raise Refusal("the sums of the products may exceed int32")


def _sums(array: Array, weight: Quantized, axis: int) -> Array:
    """Return the sum of the magnitudes of the weights of each channel."""
    points = weight.points if weight.points.size == 1 else weight.points.reshape(-1, *[1] * (array.ndim - 1 - axis))
    sums = np.zeros(array.shape[axis], np.int64)
    if array.ndim < 2:
        return np.asarray(np.abs(array.astype(np.int64) - points).sum().reshape(1))
    for rows in blocks(array):
        along = points[rows] if axis == 0 and points.size > 1 else points
        block = np.abs(array[rows].astype(np.int64) - along)
        inner = block.sum(axis=tuple(other for other in range(array.ndim) if other != axis))
        if axis == 0:
            sums[rows] = inner
        else:
            sums += inner
    return sums


Operands = tuple[Quantized, Quantized]


def _convolve(
    node: Node, operands: Operands, bias: Array | None, found: Rounded | None, integers: Integers, new: Builder
) -> None:
    data, weight = operands
    if found is not None:
        inputs = *integers.triple(node, data, new), *integers.triple(node, weight, new)
        result = integers.result(node, found, new)
        added = None if bias is None else integers.constant(node, bias, f"{weight.integers.name}_bias", new)
        found.replace(new.node("QLinearConv", *inputs, *result, added, attributes=node.attributes), new)
        return
    points = integers.point(node, data, new), integers.point(node, weight, new, single=True)
    made = new.node("ConvInteger", data.integers, weight.integers, *points, attributes=node.attributes)
    column = [-1, *[1] * ((weight.integers.rank or 2) - 2)]
    _scaled(node, made, operands, bias, column, integers, new)


def _qgemm(
    node: Node, operands: Operands, bias: Array | None, found: Rounded | None, integers: Integers, new: Builder
) -> None:
    flags = {name: node.attr(name) for name in ("transA", "transB") if node.has_attr(name)}
    inputs = [value for given in operands for value in integers.triple(node, given, new)]
    result = (None, None) if found is None else integers.result(node, found, new)
    added = None if bias is None else integers.constant(node, bias, f"{operands[1].integers.name}_bias", new)
    made = new.node(GEMM, *inputs, added, *result, attributes=flags)
    if found is None:
        new.replace(node.outputs[0], made)
    else:
        found.replace(made, new)


def _matmul(
    node: Node, operands: Operands, bias: Array | None, found: Rounded | None, integers: Integers, new: Builder
) -> None:
    """Multiply matrices; a Gemm with a bias adds it to the integers."""
    factors = []
    for given, flag in zip(operands, ("transA", "transB")):
        turned = node.op == "Gemm" and bool(node.attr(flag, 0))
        factors.append(new.node("Transpose", given.integers, perm=[1, 0]) if turned else given.integers)
    points = [integers.point(node, given, new) for given in operands]
    if found is not None and bias is None:
        scales = [integers.scale(node, given, new) for given in operands]
        inputs = [value for three in zip(factors, scales, points) for value in three]
        found.replace(new.node("QLinearMatMul", *inputs, *integers.result(node, found, new)), new)
        return
    made = new.node("MatMulInteger", *factors, *points)
    _scaled(node, made, operands, bias, [-1], integers, new)


def _scaled(
    node: Node,
    sums: Value,
    operands: Operands,
    bias: Array | None,
    column: list[int],
    integers: Integers,
    new: Builder,
) -> None:
    """Add the bias to sums of products and scale them."""
    data, weight = operands
    if bias is not None:
        name = f"{weight.integers.name}_bias"
        sums = new.node("Add", sums, integers.constant(node, bias.reshape(column), name, new))
    factor = (data.scales * weight.scales).reshape(column if weight.scales.size > 1 else [])
    scale = integers.constant(node, factor, f"{weight.integers.name}_scale", new)
    made = new.node("Mul", new.node("Cast", sums, to=int(data_type("float"))), scale)
    new.replace(node.outputs[0], made)
