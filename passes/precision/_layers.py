"""Layers other than matrix products with 8-bit weights."""

from __future__ import annotations

from surgery import Builder, Node, Value, data_type

from ._dynamic import Dynamic
from ._integers import integer_type
from ._stored_weights import elements, untransposed

_OF_ATTENTION = ("num_heads", "unidirectional", "mask_filter_value", "scale", "do_rotary", "past_present_share_buffer")
"""The attributes shared by com.microsoft::Attention and QAttention."""

_OF_LSTM = ("activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget")
"""The attributes shared by LSTM and DynamicQuantizeLSTM."""


def rescaled(integers: Value, scales: tuple[Value, Value], new: Builder) -> Value:
    """Rescale sums of integer products to float32, in a form that ONNX Runtime fuses."""
    return new.node("Mul", new.node("Cast", integers, to=int(data_type("float"))), new.node("Mul", *scales))


def is_pointwise(node: Node) -> bool:
    """Return whether a Conv only multiplies the channels at each place by a matrix."""
    shape = node.required_input(1).static_shape or ()
    single = len(shape) > 2 and all(dim == 1 for dim in shape[2:])
    steps = [*(node.attr("strides") or ()), *(node.attr("dilations") or ()), node.attr("group", 1)]
    return single and all(step == 1 for step in steps) and not any(node.attr("pads") or ())


def convolve(node: Node, dynamic: Dynamic, new: Builder) -> Value:
    """Replace a pointwise Conv with an integer matrix product, and any other Conv with an integer Conv."""
    data, weight, bias = node.required_input(0), node.required_input(1), node.input(2)
    new.require(bias is None or untransposed(bias).is_constant, "the bias of the Conv is not constant")
    if is_pointwise(node):
        return _multiply_channels(node, dynamic, new)
    quantized = dynamic.weight(node, weight, (0,), new, layout="channels", symmetric=True)
    integers, scale, zero_point = dynamic.data(node, data, new)
    made = new.node(
        "ConvInteger", integers, quantized.integers, zero_point, quantized.zero_point, attributes=node.attributes
    )
    result = rescaled(made, (scale, quantized.scale), new)
    if bias is None:
        return result
    column = elements(bias).reshape(-1, *[1] * ((weight.rank or 2) - 2))
    return new.node("Add", result, new.constant(column, untransposed(bias).name))


def _multiply_channels(node: Node, dynamic: Dynamic, new: Builder) -> Value:
    """Multiply by a matrix with the channels last, for which ONNX Runtime has a fast integer product."""
    data, weight, bias = node.required_input(0), node.required_input(1), node.input(2)
    rank = weight.rank or 4
    last, second = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]
    quantized = dynamic.weight(node, weight, (0,), new, layout="pointwise")
    before = data.producer
    if before is not None and before.op == "Transpose" and before.attr("perm") == second:
        integers, scale, zero_point = dynamic.data(node, before.required_input(0), new)
    else:
        integers, scale, zero_point = dynamic.data(node, data, new)
        integers = new.node("Transpose", integers, perm=last)
    made = new.node("MatMulInteger", integers, quantized.integers, zero_point, quantized.zero_point)
    result = rescaled(made, (scale, quantized.scale), new)
    if bias is not None:
        result = new.node("Add", result, bias)
    return new.node("Transpose", result, perm=second)


def look_up(node: Node, dynamic: Dynamic, new: Builder) -> Value:
    """Gather rows of integers, and the scale of each row."""
    table, indices = node.required_input(0), node.required_input(1)
    new.require(node.attr("axis", 0) in (0, -(table.rank or 0)), "the gathered values are not rows")
    new.require((table.size or 0) > (table.static_shape or (0,))[0], "a row is one number")
    readers = table.consumers
    new.require(all(reader.op == "Gather" for reader in readers), "the table has other consumers")
    # Nothing is multiplied in 8 bits here, so the whole range is used on every CPU.
    quantized = dynamic.weight(node, table, (0,), new, layout="rows", kind=integer_type("int8"))
    rows = new.node("Gather", quantized.integers, indices)
    scale = quantized.scale if not quantized.scale.rank else new.node("Gather", quantized.scale, indices)
    return new.node("Mul", new.node("Cast", rows, to=int(data_type("float"))), scale)


def attend(node: Node, dynamic: Dynamic, new: Builder) -> tuple[Value, ...]:
    """Replace Attention with com.microsoft::QAttention, which lacks some of its inputs and attributes."""
    data, weight, bias, mask, past = (node.input(index) for index in range(5))
    new.require(data is not None and weight is not None and bias is not None, "the Attention has no bias")
    more = [name for name in node.attributes if name not in _OF_ATTENTION]
    extra = any(value is not None for value in node.inputs[5:])
    new.require(not more and not extra, "QAttention has no such attribute or input")
    assert data is not None and weight is not None
    quantized = dynamic.weight(node, weight, (1,), new)
    integers, scale, zero_point = dynamic.data(node, data, new)
    return new.nodes(
        "com.microsoft::QAttention",
        *(integers, quantized.integers, bias, scale, quantized.scale, mask, zero_point, quantized.zero_point, past),
        outputs=len(node.outputs),
        attributes=node.attributes,
    )


def recur(node: Node, dynamic: Dynamic, new: Builder) -> tuple[Value, ...]:
    """Replace LSTM with com.microsoft::DynamicQuantizeLSTM, which quantizes data and state at each step."""
    layout = node.attr("layout", 0)
    new.require(not layout, "the batch comes first, for which DynamicQuantizeLSTM has no attribute")
    weight, recurrence = node.required_input(1), node.required_input(2)
    new.require(untransposed(recurrence).is_constant, "the weight is not constant")
    # One zero point for all gates: the kernel accepts no other form.
    made = [
        dynamic.weight(node, each, (0, 1), new, transposed=True, symmetric=True, layout="gates")
        for each in (weight, recurrence)
    ]
    scales = [operand for each in made for operand in (each.scale, each.zero_point)]
    rest = [node.input(position) for position in range(3, 8)]
    return new.nodes(
        "com.microsoft::DynamicQuantizeLSTM",
        *(node.required_input(0), *(each.integers for each in made), *rest, *scales),
        outputs=len(node.outputs),
        attributes={name: value for name, value in node.attributes.items() if name in _OF_LSTM},
    )
