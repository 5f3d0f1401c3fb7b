"""Folding a BatchNormalization into the convolution in front of it.

In inference BatchNormalization computes, channel by channel, y = (c - mean) / sqrt(var + epsilon) * scale + shift
(the operator's text). A convolution c = W*x + b is linear in W and b, so with f = scale / sqrt(var + epsilon)
the convolution of the weight f·W and the bias (b - mean)·f + shift gives y.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery import Node, Refusal, Value

Array = np.ndarray[Any, Any]

ROUNDOFF = {"FLOAT16": 2.0**-11, "BFLOAT16": 2.0**-8, "FLOAT": 2.0**-24, "DOUBLE": 2.0**-53}
"""The types of a convolution, each with the largest relative error of rounding to it."""


@dataclass(frozen=True)
class Folded:
    """The weight and the bias of a convolution that does the work of a BatchNormalization too."""

    weight: Array
    bias: Array


def fold_batch_norm(conv: Node, norm: Node) -> Folded:
    """Compute in float64 the weight and the bias for Conv or ConvTranspose `conv` followed by `norm`.

    Both come in the type of the old weight. Refuses, with the reason, when `norm` is not in inference form, when
    a parameter is not constant, and when the result would overflow or underflow its type.
    """
    _require_inference(norm)
    weight = _constant(conv.input(1), "the weight of the convolution is not constant")
    bias = conv.input(2)
    old_bias = None if bias is None else _constant(bias, "the bias of the convolution is not constant")
    kind = conv.required_input(1).dtype
    if kind is None or kind.name not in ROUNDOFF:
        raise Refusal("the convolution is not in a floating-point type that can be folded")
    parameters = [_constant(norm.input(i), "the statistics are not constant") for i in range(1, 5)]
    channels = _channels(conv, weight)
    for array in [*parameters, old_bias]:
        if array is not None and array.shape != (channels,):
            raise Refusal("a parameter is not one number for each channel")
    scale, shift, mean, var = map(_wide, parameters)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(var + norm.attr("epsilon"))
        start = 0.0 if old_bias is None else _wide(old_bias)
        exact = _by_channel(conv, _wide(weight)) * factor[:, None]
        new_bias = ((start - mean) * factor + shift).astype(weight.dtype)
        rounded = exact.astype(weight.dtype)
        lost = np.abs(_wide(rounded) - exact)
    if not (np.isfinite(_wide(rounded)).all() and np.isfinite(_wide(new_bias)).all()):
        raise Refusal("the folded weight is not finite")
    if (lost > ROUNDOFF[kind.name] * np.abs(exact).max(axis=1, keepdims=True, initial=0.0)).any():
        raise Refusal("the folded weight is too small for its type")
    return Folded(_as_weight(conv, rounded, weight.shape), new_bias)


def _require_inference(norm: Node) -> None:
    """Refuse training, where the statistics are those of the batch, and statistics for each element."""
    extra = norm.outputs[1:]
    if norm.opset >= 14:
        training = norm.attr("training_mode") != 0 or any(value.is_used for value in extra)
    elif norm.opset >= 7:
        # There the number of outputs tells.
        training = any(value.name for value in extra)
    else:
        training = not norm.attr("is_test")
    if training:
        raise Refusal("the BatchNormalization is in training mode")
    if norm.opset < 9 and not norm.attr("spatial"):
        raise Refusal("the statistics are for each element, not for each channel")


def _constant(value: Value | None, reason: str) -> Array:
    array = None if value is None else value.constant
    if array is None:
        raise Refusal(reason)
    return array


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


def _channels(conv: Node, weight: Array) -> int:
    """Return the number of output channels: dim 0 for Conv, dim 1 times the groups for ConvTranspose."""
    group = conv.attr("group")
    if weight.ndim < 3 or weight.size == 0 or weight.shape[0] % group:
        raise Refusal("the weight does not have the shape of one")
    return int(weight.shape[0] if conv.op == "Conv" else weight.shape[1] * group)


def _by_channel(conv: Node, weight: Array) -> Array:
    """Arrange a weight as a matrix with a row for each output channel.

    The weight of ConvTranspose is [inputs, outputs / group, ...]; its input channels are split into the groups,
    and the outputs of the groups are joined.
    """
    if conv.op == "Conv":
        return weight.reshape(weight.shape[0], -1)
    group, (inputs, outputs) = conv.attr("group"), weight.shape[:2]
    parts = weight.reshape(group, inputs // group, outputs, -1)
    return parts.swapaxes(1, 2).reshape(group * outputs, -1)


def _as_weight(conv: Node, rows: Array, shape: tuple[int, ...]) -> Array:
    """Undo `_by_channel`."""
    if conv.op == "Conv":
        return rows.reshape(shape)
    group = conv.attr("group")
    return rows.reshape(group, shape[1], shape[0] // group, -1).swapaxes(1, 2).reshape(shape)
