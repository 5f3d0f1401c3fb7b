"""Operators on integers, and the operators on floats that they represent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from surgery import Builder, Node, Refusal, Value

from ._floats import MOVES, Floats, Parameters, dequantized, parameters
from ._integers import Array


def convert(node: Node, floats: Floats, new: Builder) -> None:
    """Compute a QLinear operator in floats; readers that do not dequantize its result read it quantized."""
    result, given = OPERATORS[node.op](node, floats, new)
    old = node.outputs[0]
    if given is None:
        new.replace(old, result)
        return
    limits = given.limits(old)
    pairs = [reader for reader in old.consumers if _undoes(reader, old, given) and reader.scope is node.scope]
    if pairs and limits is not None:
        clipped = floats.clipped(node, result, limits, new)
        for reader in pairs:
            new.replace(reader.outputs[0], clipped)
    if limits is None or old.is_output or len(old.consumers) > len(pairs):
        new.replace(old, new.node("QuantizeLinear", result, given.scale, given.zero_point))


def _undoes(reader: Node, value: Value, given: Parameters) -> bool:
    if reader.op != "DequantizeLinear" or reader.input(0) != value:
        return False
    scale, zero_point = reader.required_input(1), reader.input(2)
    return scale.is_constant and given.same_as(Parameters(scale, zero_point))


Converted = tuple[Value, Parameters | None]
"""The float result, and its quantization parameters; None if it is not quantized."""


def _conv(node: Node, floats: Floats, new: Builder) -> Converted:
    data, weight = parameters(node), parameters(node, 4, 5)
    weight = Parameters(weight.scale, weight.zero_point, axis=0)
    inputs = floats.of(node, node.required_input(0), data, new), floats.of(node, node.required_input(3), weight, new)
    bias = node.input(8)
    if bias is not None:
        new.require(bias.is_constant, "the bias is not constant")
        array = _array(bias) * (_array(data.scale).reshape(-1) * _array(weight.scale).reshape(-1))
        inputs += (new.constant(array.astype(np.float32), bias.name),)  # type: ignore[assignment]
    return new.node("Conv", *inputs, attributes=node.attributes), parameters(node, 6, 7)


def _matmul(node: Node, floats: Floats, new: Builder) -> Converted:
    first, second = parameters(node), parameters(node, 4, 5)
    first = Parameters(first.scale, first.zero_point, axis=-2)
    second = Parameters(second.scale, second.zero_point, axis=-1)
    inputs = floats.of(node, node.required_input(0), first, new), floats.of(node, node.required_input(3), second, new)
    return new.node("MatMul", *inputs), parameters(node, 6, 7)


def _binary(node: Node, floats: Floats, new: Builder) -> Converted:
    first = floats.of(node, node.required_input(0), parameters(node), new)
    second = floats.of(node, node.required_input(3), parameters(node, 4, 5), new)
    return new.node(node.op.rpartition("QLinear")[2], first, second), parameters(node, 6, 7)


def _unary(node: Node, floats: Floats, new: Builder) -> Converted:
    new.require(not node.attr("channels_last", 0), "the channels are last")
    attributes = {name: value for name, value in node.attributes.items() if name != "channels_last"}
    data = floats.of(node, node.required_input(0), parameters(node), new)
    return new.node(node.op.rpartition("QLinear")[2], data, attributes=attributes), parameters(node, 3, 4)


def _gemm(node: Node, floats: Floats, new: Builder) -> Converted:
    data, weight = parameters(node), parameters(node, 4, 5)
    weight = Parameters(weight.scale, weight.zero_point, axis=0 if node.attr("transB", 0) else 1)
    inputs = floats.of(node, node.required_input(0), data, new), floats.of(node, node.required_input(3), weight, new)
    bias, alpha = node.input(6), float(node.attr("alpha", 1.0))
    if bias is not None:
        new.require(bias.is_constant, "the bias is not constant")
        array = _array(bias) * (_array(data.scale).reshape(-1) * _array(weight.scale).reshape(-1) * alpha)
        inputs += (new.constant(array.astype(np.float32), bias.name),)  # type: ignore[assignment]
    flags = {name: node.attr(name) for name in ("alpha", "transA", "transB") if node.has_attr(name)}
    quantized = node.input(7) is not None
    return new.node("Gemm", *inputs, attributes=flags), parameters(node, 7, 8) if quantized else None


OPERATORS: dict[str, Callable[[Node, Floats, Builder], Converted]] = {
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
    "com.microsoft::QGemm": _gemm,
    "com.microsoft::QLinearAdd": _binary,
    "com.microsoft::QLinearMul": _binary,
    "com.microsoft::QLinearSigmoid": _unary,
    "com.microsoft::QLinearLeakyRelu": _unary,
    "com.microsoft::QLinearGlobalAveragePool": _unary,
}


@dataclass(frozen=True)
class Dynamic:
    """A product of data quantized at run time and a constant weight, up to the value that includes all scales."""

    data: Value
    weight: Array
    weight_name: str
    is_left: bool
    result: Value
    bias: Value | None = None


def convert_dynamic(node: Node, new: Builder) -> None:
    """Compute a product with data quantized at run time in floats."""
    found = _fused(node, new) if node.domain else _chain(node, new)
    weight = new.constant(found.weight, f"{found.weight_name}_float")
    inputs = (weight, found.data) if found.is_left else (found.data, weight)
    op = "Conv" if node.op == "ConvInteger" else "MatMul"
    made = new.node(op, *inputs, attributes=node.attributes if op == "Conv" else None)
    new.replace(found.result, made if found.bias is None else new.node("Add", made, found.bias))


DYNAMIC = (
    "ConvInteger",
    "MatMulInteger",
    "com.microsoft::DynamicQuantizeMatMul",
    "com.microsoft::MatMulIntegerToFloat",
)


def _fused(node: Node, new: Builder) -> Dynamic:
    """Read an operator into which ONNX Runtime fuses a product of data quantized at run time."""
    weight = node.required_input(1)
    if node.op.endswith("DynamicQuantizeMatMul"):
        data, scale, zero_point, bias = node.required_input(0), node.required_input(2), node.input(3), node.input(4)
    else:
        found = _data(node.required_input(0), node.input(4), node, new)
        new.require(found is not None and found[1] == node.input(2), "the data are not quantized at run time")
        assert found is not None
        data, scale, zero_point, bias = found[0], node.required_input(3), node.input(5), node.input(6)
    new.require(weight.is_constant and scale.is_constant, "the weight is not constant")
    made = _weight(weight, zero_point, [_array(scale)], -2, new)
    return Dynamic(data, made, weight.name, False, node.outputs[0], bias)


def _chain(node: Node, new: Builder) -> Dynamic:
    operands = node.required_input(0), node.required_input(1)
    found = _data(operands[0], node.input(2), node, new)
    is_left = found is None
    found = found or _data(operands[1], node.input(3), node, new)
    new.require(found is not None, "the data are not quantized at run time")
    assert found is not None
    data, scale = found
    weight, zero_point = (operands[0], node.input(2)) if is_left else (operands[1], node.input(3))
    new.require(weight.is_constant, "the weight is not constant")
    result, factors = _scaled(node, scale, new)
    if node.op == "ConvInteger":
        factors = [factor.reshape(-1, *[1] * ((weight.rank or 2) - 1)) for factor in factors]
        made = _weight(weight, zero_point, factors, None, new)
    else:
        made = _weight(weight, zero_point, factors, -1 if is_left else -2, new)
    return Dynamic(data, made, weight.name, is_left, result)


def _data(value: Value, zero_point: Value | None, node: Node, new: Builder) -> tuple[Value, Value] | None:
    """Return the floats that were quantized at run time, and their scale; None for other values."""
    producer = value.producer
    if producer is None:
        return None
    if producer.op == "DynamicQuantizeLinear":
        is_whole = value == producer.outputs[0] and zero_point == producer.outputs[2]
        return (producer.required_input(0), producer.outputs[1]) if is_whole else None
    if producer.op not in MOVES or producer.outputs[1:] or value.scope is not node.scope:
        return None
    inner = _data(producer.required_input(0), zero_point, node, new)
    if inner is None:
        return None
    return new.node(producer.op, inner[0], *producer.inputs[1:], attributes=producer.attributes), inner[1]


def _scaled(node: Node, scale: Value, new: Builder) -> tuple[Value, list[Array]]:
    """Follow a product until the scale of its data is applied; return that value and the constant factors met."""
    value, factors, seen = node.outputs[0], list[Array](), False
    while not seen:
        readers = value.consumers
        new.require(len(readers) == 1 and not value.is_output, "the sums of integers are read before they are scaled")
        reader = readers[0]
        if reader.op == "Mul":
            other = reader.required_input(1 if reader.input(0) == value else 0)
            for factor in _factors(other):
                if factor == scale and not seen:
                    seen = True
                    continue
                new.require(factor.is_constant, "a factor is neither the scale of the data nor constant")
                factors.append(_array(factor))
        else:
            new.require(reader.op == "Cast", "the sums of integers are read before they are scaled")
        value = reader.outputs[0]
    return value, factors


def _factors(value: Value) -> Iterator[Value]:
    producer = value.producer
    if producer is None or producer.op != "Mul":
        yield value
        return
    for operand in producer.inputs:
        if operand is not None:
            yield from _factors(operand)


def _weight(
    integers: Value, zero_point: Value | None, factors: list[Array], depth_axis: int | None, new: Builder
) -> Array:
    """Return the float weight; its scales must not differ along the axis that is summed."""
    array = _array(integers)
    if zero_point is not None:
        given = _array(zero_point)
        if depth_axis is None:
            given = given.reshape(-1, *[1] * (array.ndim - 1))
        elif depth_axis == -1 and given.ndim == 1:
            given = given.reshape(-1, 1)
        array = array - given
    for factor in factors:
        along = depth_axis is not None and factor.ndim >= -depth_axis and factor.shape[depth_axis] != 1
        new.require(not along or factor.size == 1, "a factor is not along the channels of the result")
        array = array * factor
    if array.shape != integers.static_shape:
        raise Refusal("a factor is not along the channels of the result")
    return array.astype(np.float32)


def _array(value: Value) -> Array:
    array = value.constant
    if array is None:
        raise Refusal("a scale or zero point is not constant")
    return array.astype(np.float64)


def look_up(node: Node, new: Builder) -> None:
    """Gather rows of a float table instead of rows of integers and their scales."""
    cast = node.outputs[0].consumers
    new.require(len(cast) == 1 and cast[0].op == "Cast", "the rows are not scaled")
    multiply = cast[0].outputs[0].consumers
    new.require(len(multiply) == 1 and multiply[0].op == "Mul", "the rows are not scaled")
    first, second = multiply[0].required_input(0), multiply[0].required_input(1)
    factor = second if first == cast[0].outputs[0] else first
    producer = factor.producer
    if producer is not None and producer.op == "Gather" and producer.input(1) == node.input(1):
        factor = producer.required_input(0)
    table = node.required_input(0)
    new.require(factor.is_constant and (factor.rank or 0) in (0, table.rank), "the scales of the rows are not constant")
    rows = dequantized(table.constant, Parameters(factor), np.dtype(np.float32)) if table.constant is not None else None
    assert rows is not None
    made = new.node("Gather", new.constant(rows, f"{table.name}_float"), node.required_input(1))
    new.replace(multiply[0].outputs[0], made)
