"""Layers that absorb operators on their input: a factor and a shift for each input channel, or for all."""

import numpy as np

from surgery import Builder, Node, Refusal, Value

from ._layers import Affine, Layer, fit_weight, layer_above, take_in
from ._shared import ROUNDOFF, Array, own_constant, wide

READERS = ("Conv", "Gemm", "MatMul")


def are_layers(readers: list[Node], value: Value) -> bool:
    """Return whether a value has readers, and all of them are linear layers that read it as data."""
    return bool(readers) and all(_reads_first(reader, value) for reader in readers)


def _reads_first(reader: Node, value: Value) -> bool:
    places = [place for place, operand in enumerate(reader.inputs) if operand == value]
    return reader.op in READERS and places == [0]


def take_in_before(change: Affine, reader: Node, new: Builder) -> None:
    """Make a layer read the data of `change` instead of its result; refuse if its constants cannot absorb it."""
    layer = Layer(reader)
    weight = own_constant(layer.weight, "the weight is not constant")
    new.require(weight.ndim >= 2 and weight.dtype.name in ROUNDOFF, "the weight is not a floating-point matrix")
    new.require(reader.op != "Gemm" or not reader.attr("transA"), "the rows of the input are its channels")
    if change.scales:
        scaled = fit_weight(reader, weight, _by_input(change.factor, reader, weight))
        new.set_input(reader, 1, new.constant(scaled, layer.weight.name))
    if change.shifts:
        new.require(reader.op != "Conv" or _pads_nothing(reader), "the zeros that the Conv pads with are not shifted")
        new.require(reader.op == "Conv" or weight.ndim == 2, "a stack of weights would need a stack of biases")
        with np.errstate(all="ignore"):
            sums = _sums(reader, wide(weight) * _by_input(change.shift, reader, weight))
        alpha = reader.attr("alpha", 1.0) if reader.op == "Gemm" else 1.0
        shifted = _with_bias(layer)
        take_in(shifted, np.ones(1), alpha * sums, new)
        if shifted.add is not None:
            new.changes(reader.outputs[0])
    new.set_input(reader, 0, change.data)


def _by_input(array: Array, reader: Node, weight: Array) -> Array:
    """Reshape an operand that is broadcast to the input to match the input channels of the weight."""
    if array.size == 1:
        return array.reshape(())
    group = reader.attr("group") if reader.op == "Conv" else 1
    is_rows = reader.op == "MatMul" or (reader.op == "Gemm" and not reader.attr("transB"))
    channels = weight.shape[-2 if is_rows else 1] * group
    spatial = weight.ndim - 2 if reader.op == "Conv" else 0
    if array.ndim <= spatial or array.shape[-1 - spatial] != array.size or array.size != channels:
        raise Refusal("the constant is not one number for each channel")
    if is_rows:
        return array.reshape(-1, 1)
    if reader.op == "Gemm":
        return array.reshape(1, -1)
    return array.reshape(group, -1).repeat(weight.shape[0] // group, axis=0).reshape(*weight.shape[:2], *[1] * spatial)


def _sums(reader: Node, weight: Array) -> Array:
    """Add up the elements of a weight for each output channel."""
    is_rows = reader.op == "MatMul" or (reader.op == "Gemm" and not reader.attr("transB"))
    sums: Array = np.sum(weight if is_rows else weight.reshape(weight.shape[0], -1).T, axis=0)
    return sums


def _with_bias(layer: Layer) -> Layer:
    """Return a layer together with the Add of a bias after a MatMul, if any."""
    readers = layer.node.outputs[0].consumers
    after = layer_above(readers[0].outputs[0]) if layer.node.op == "MatMul" and len(readers) == 1 else None
    return after if after is not None and after.node == layer.node else layer


def _pads_nothing(conv: Node) -> bool:
    return conv.attr("auto_pad", "NOTSET") in ("NOTSET", "VALID") and not any(conv.attr("pads", [0]))
