"""Folding of arithmetic into constants: batch normalizations as factors and shifts, rounding, sharing.

In inference BatchNormalization computes, channel by channel, y = (c - mean) / sqrt(var + epsilon) * scale + shift
(the operator's text). A convolution c = W*x + b is linear in W and b, so with f = scale / sqrt(var + epsilon)
the convolution of the weight f·W and the bias (b - mean)·f + shift gives y.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery import Node, Refusal, Value

Array = np.ndarray[Any, Any]

ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
"""The possible types of a weight, each with its largest relative rounding error."""

MOST_LOST = 4
"""Maximum number of such errors in a product: a number that is small for its type has then lost two bits."""

SMALL = 1024
"""Bytes below which a copy of a constant does not count as growth."""

BLOCK = 1 << 14
"""Elements of a weight that are processed at once."""


@dataclass(frozen=True)
class Folded:
    """The weight and the bias of a convolution that includes a BatchNormalization."""

    weight: Array
    bias: Array


def fold_batch_norm(conv: Node, norm: Node) -> Folded:
    """Compute in float64 the weight and the bias for Conv or ConvTranspose `conv` followed by `norm`.

    Both have the type of the old weight. Refuse if `norm` is not in inference form, if a parameter is not constant, or
    if the result would overflow or underflow its type.
    """
    weight, bias = conv.required_input(1), conv.input(2)
    elements = own_constant(weight, "the weight of the convolution is not constant")
    group = conv.attr("group")
    # Until opset 8 there is a form with statistics for each element, in the shape [channels, ...].
    grouped = elements.ndim > 2 and elements.size > 0 and elements.shape[0] % group == 0
    channels = int(elements.shape[0] if conv.op == "Conv" or not grouped else elements.shape[1] * group)
    old_bias = wide(own_constant(bias, "the bias of the convolution is not constant")) if bias else np.zeros(channels)
    factor, shift = batch_norm_affine(norm)
    if not grouped or old_bias.shape != (channels,) or factor.shape != (channels,):
        raise Refusal("the statistics are not one number for each channel")
    with np.errstate(all="ignore"):
        new_bias = old_bias * factor + shift
    rounded = as_weight(conv, fit(by_channel(conv, elements), factor, elements), elements.shape)
    return Folded(rounded, fit_each(new_bias, elements))


def batch_norm_affine(norm: Node) -> tuple[Array, Array]:
    """Return the factor and the shift that a BatchNormalization applies to each channel, in float64."""
    require_inference(norm)
    found = [norm.required_input(position).constant for position in range(1, 5)]
    parameters = [wide(array) for array in found if array is not None]
    if len(parameters) < len(found):
        raise Refusal("the statistics are not constant")
    scale, shift, mean, var = parameters
    if len({array.shape for array in parameters}) > 1:
        raise Refusal("the statistics are not one number for each channel")
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(var + norm.attr("epsilon"))
        return factor, shift - mean * factor


def require_inference(norm: Node) -> None:
    """Refuse training mode, which uses the statistics of the batch."""
    extra = norm.outputs[1:]
    if norm.opset >= 14:
        training = norm.attr("training_mode") != 0 or any(value.is_used for value in extra)
    elif norm.opset >= 7:
        # The number of outputs determines the mode.
        training = any(value.name for value in extra)
    else:
        training = not norm.attr("is_test")
    if training:
        raise Refusal("the BatchNormalization is in training mode")


def own_constant(value: Value, reason: str) -> Array:
    """Return the elements of a constant that may be changed for one reader; refuse with `reason` if not constant.

    A constant with other readers has to be copied, which is done only if the file does not grow. One number per channel
    is little compared with a weight, and replaces the numbers that are folded in.
    """
    tensor = value.tensor
    if tensor is None:
        raise Refusal(reason)
    if tensor.nbytes > SMALL and len(tensor.shape) > 1 and (value.reads > 1 or value.is_output):
        raise Refusal("the weight is read elsewhere too, and a copy would make the file grow")
    return tensor.numpy()


def fit(columns: Array, factor: Array | float, like: Array) -> Array:
    """Multiply a weight, with its output channels along the last axis, and round it to the type of `like`.

    `factor` is broadcast to the columns; the product is computed in float64. Refuse a result that is not finite, or
    that would lose two bits more than the rounding of a number of normal size.
    """
    rounded = np.empty_like(columns, dtype=like.dtype)
    factors = np.broadcast_to(np.asarray(factor, dtype=np.float64), columns.shape)
    lost, largest = np.zeros(columns.shape[1]), np.zeros(columns.shape[1])
    for block in _blocks(columns):
        exact = wide(columns[block])
        with np.errstate(all="ignore"):
            exact *= factors[block]
        rounded[block], loss = _rounded(exact, like)
        loss -= exact
        channels = block[1]
        for extremes, numbers in ((lost, loss), (largest, exact)):
            np.abs(numbers, out=numbers)
            np.maximum(extremes[channels], numbers.max(axis=0, initial=0.0), out=extremes[channels])
    if (lost > MOST_LOST * ROUNDOFF.get(like.dtype.name, 0.0) * largest).any():
        raise Refusal("the folded weight is too small for its type")
    return rounded


def _blocks(columns: Array) -> Iterator[tuple[slice, slice]]:
    """Cut a matrix, along the axis with the larger stride, into blocks that fit in the cache of a core."""
    everything = slice(None)
    rows, count = columns.shape
    if columns.strides[0] < columns.strides[1]:
        step = max(BLOCK // max(rows, 1), 1)
        return ((everything, slice(start, start + step)) for start in range(0, count, step))
    step = max(BLOCK // max(count, 1), 1)
    return ((slice(start, start + step), everything) for start in range(0, rows, step))


def fit_each(exact: Array, like: Array) -> Array:
    """Round numbers to the type of `like`; refuse if the result is not finite."""
    return _rounded(exact, like)[0]


def _rounded(exact: Array, like: Array) -> tuple[Array, Array]:
    """Round numbers as `fit_each` does; return the result, and the same in float64."""
    with np.errstate(all="ignore"):
        rounded = np.asarray(exact).astype(like.dtype)
    back = wide(rounded)
    if not np.isfinite(back).all():
        raise Refusal("the folded weight is not finite")
    return rounded, back


def wide(array: Array) -> Array:
    """Convert to float64."""
    return array.astype(np.float64)


def by_channel(conv: Node, weight: Array) -> Array:
    """Reshape the weight of a convolution to a matrix with a column for each output channel.

    The weight of ConvTranspose is [inputs, outputs / group, ...]; its input channels are split into the groups,
    and the outputs of the groups are joined.
    """
    if conv.op == "Conv":
        return weight.reshape(weight.shape[0], -1).T
    group, (inputs, outputs) = conv.attr("group"), weight.shape[:2]
    parts = weight.reshape(group, inputs // group, outputs, -1)
    return parts.swapaxes(1, 2).reshape(group * outputs, -1).T


def as_weight(conv: Node, columns: Array, shape: tuple[int, ...]) -> Array:
    """Undo `by_channel`."""
    if conv.op == "Conv":
        return columns.T.reshape(shape)
    group = conv.attr("group")
    return columns.T.reshape(group, shape[1], shape[0] // group, -1).swapaxes(1, 2).reshape(shape)
