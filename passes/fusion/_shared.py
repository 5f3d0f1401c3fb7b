"""Folding a BatchNormalization into the convolution in front of it.

In inference BatchNormalization computes, channel by channel, y = (c - mean) / sqrt(var + epsilon) * scale + shift
(the operator's text). A convolution c = W*x + b is linear in W and b, so with f = scale / sqrt(var + epsilon)
the convolution of the weight f·W and the bias (b - mean)·f + shift gives y.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery import Node, Refusal

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
    weight, bias, parameters = _parameters(conv, norm)
    scale, shift, mean, var = (_wide(array) for array in parameters)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(var + norm.attr("epsilon"))
        exact = _by_channel(conv, _wide(weight)) * factor[:, None]
        new_bias = ((_wide(bias) - mean) * factor + shift).astype(weight.dtype)
        rounded = exact.astype(weight.dtype)
        lost = np.abs(_wide(rounded) - exact)
    if not (np.isfinite(_wide(rounded)).all() and np.isfinite(_wide(new_bias)).all()):
        raise Refusal("the folded weight is not finite")
    bearable = _roundoff(conv) * np.abs(exact).max(axis=1, keepdims=True, initial=0.0)
    if (lost > bearable).any():
        raise Refusal("the folded weight is too small for its type")
    return Folded(_as_weight(conv, rounded, weight.shape), new_bias)


def _require_inference(norm: Node) -> None:
    """Refuse training, where the statistics are those of the batch."""
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


def _parameters(conv: Node, norm: Node) -> tuple[Array, Array, list[Array]]:
    """Return the weight, the bias (zeros when there is none) and scale, shift, mean and variance."""
    weight = conv.required_input(1).constant
    if weight is None:
        raise Refusal("the weight of the convolution is not constant")
    group = conv.attr("group")
    channels = int(weight.shape[0] if conv.op == "Conv" or weight.ndim < 2 else weight.shape[1] * group)
    old_bias = conv.input(2)
    bias = np.zeros(channels) if old_bias is None else old_bias.constant
    if bias is None:
        raise Refusal("the bias of the convolution is not constant")
    found = [norm.required_input(position).constant for position in range(1, 5)]
    parameters = [array for array in found if array is not None]
    if len(parameters) < len(found):
        raise Refusal("the statistics are not constant")
    # Until opset 8 there is a form with statistics for each element, of the shape [channels, ...].
    divides = weight.ndim > 2 and weight.size > 0 and weight.shape[0] % group == 0
    if not divides or any(array.shape != (channels,) for array in [bias, *parameters]):
        raise Refusal("the statistics are not one number for each channel")
    return weight, bias, parameters


def _roundoff(conv: Node) -> float:
    kind = conv.required_input(1).dtype
    return ROUNDOFF.get("" if kind is None else kind.name, 0.0)


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


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
