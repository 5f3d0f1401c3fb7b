"""Operators of ONNX Runtime in NumPy, for the reference evaluator of onnx: those without a CPU kernel, and some others.

Written from docs/ContribOperators.md of ONNX Runtime; narrower inputs are computed in float32. Operators with a kernel
are compared with it in the tests; for the others, a verdict states that this evaluator computed them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Attributes = Mapping[str, Any]
Function = Callable[..., "Array | tuple[Array | None, ...]"]

DOMAIN = "com.microsoft"


def _wide(array: Array) -> Array:
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[x.dtype])(x))


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + _erf(x / math.sqrt(2))), x.dtype)


def _fast_gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), x.dtype)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)), x.dtype)


def _softmax(x: Array, axes: tuple[int, ...] = (-1,)) -> Array:
    powers = np.exp(x - x.max(axis=axes, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axes, keepdims=True))


def _sum(first: Array, *others: Array | None) -> Array:
    for other in others:
        first = first if other is None else first + other
    return first


def bias_gelu(_: Attributes, x: Array, bias: Array | None = None) -> Array:
    """Return the Gelu of x + bias."""
    return _gelu(_sum(_wide(x), bias)).astype(x.dtype)


def fast_gelu(_: Attributes, x: Array, bias: Array | None = None) -> Array:
    """Return the Gelu, with the tanh approximation, of x + bias."""
    return _fast_gelu(_sum(_wide(x), bias)).astype(x.dtype)


def quick_gelu(attributes: Attributes, x: Array) -> Array:
    """Return x · sigmoid(alpha · x)."""
    wide = _wide(x)
    return np.asarray(wide * _sigmoid(np.float32(attributes.get("alpha", 1.702)) * wide), x.dtype)


def gemm_fast_gelu(_: Attributes, x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Return the Gelu, with the tanh approximation, of a matrix product plus a bias."""
    return _fast_gelu(_sum(_wide(x) @ _wide(weight), bias)).astype(x.dtype)


def bias_split_gelu(_: Attributes, x: Array, bias: Array) -> Array:
    """Return the left half of x + bias times the Gelu of the right half."""
    left, right = np.split(_wide(x) + bias, 2, axis=-1)
    return np.asarray(left * _gelu(right), x.dtype)


def bias_add(_: Attributes, x: Array, bias: Array, skip: Array) -> Array:
    """Return x + bias + skip."""
    return np.asarray(_wide(x) + bias + skip, x.dtype)


def bias_softmax(attributes: Attributes, x: Array, bias: Array) -> Array:
    """Return the Softmax of x + bias over all axes from `axis` on; the bias is broadcast along axes that it lacks.

    An inner broadcast is along the axes directly before those of the Softmax, an outer one along the first axes.
    """
    axis = attributes.get("axis", 1) % x.ndim
    wide = _wide(bias)
    if attributes["is_inner_broadcast"] and bias.ndim < x.ndim:
        outer = bias.ndim - (x.ndim - axis)
        wide = wide.reshape(*bias.shape[:outer], *[1] * (x.ndim - bias.ndim), *bias.shape[outer:])
    return _softmax(_wide(x) + wide, tuple(range(axis, x.ndim))).astype(x.dtype)


def _activated(attributes: Attributes, x: Array) -> Array:
    name, slope = attributes.get("activation", ""), attributes.get("activation_alpha", 0.01)
    known: dict[str, Callable[[Array], Array]] = {
        "": lambda x: x,
        "Gelu": _gelu,
        "LeakyRelu": lambda x: np.where(x < 0, np.float32(slope) * x, x),
        "Relu": lambda x: np.maximum(x, 0),
        "Sigmoid": _sigmoid,
        "Tanh": np.tanh,
    }
    if name not in known:
        raise NotImplementedError(f"the activation {name} is not known")
    return known[name](x)


def _turned(attributes: Attributes, x: Array, side: str) -> Array:
    if attributes.get(f"transBatch{side}") and x.ndim > 1:
        x = np.moveaxis(x, 0, -2)
    return np.swapaxes(x, -1, -2) if attributes.get(f"trans{side}") and x.ndim > 1 else x


def fused_matmul(attributes: Attributes, first: Array, second: Array) -> Array:
    """Return the activation of alpha times the matrix product of the operands, which may be transposed."""
    made = _turned(attributes, _wide(first), "A") @ _turned(attributes, _wide(second), "B")
    scaled = np.asarray(made * np.float32(attributes.get("alpha", 1.0)), made.dtype)
    return _activated(attributes, scaled).astype(first.dtype)


def _normalized(x: Array, epsilon: float, axes: tuple[int, ...]) -> Array:
    mean = x.mean(axis=axes, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + np.float32(epsilon)))


def group_norm(attributes: Attributes, x: Array, scale: Array, bias: Array) -> Array:
    """Normalize over the positions and channels of each group; then apply scale, bias and optionally Swish."""
    last = attributes.get("channels_last", 1)
    data = np.moveaxis(_wide(x), -1, 1) if last else _wide(x)
    apart = data.reshape(data.shape[0], attributes["groups"], -1)
    made = _normalized(apart, attributes.get("epsilon", 1e-5), (2,)).reshape(data.shape)
    shape = (1, -1, *[1] * (data.ndim - 2))
    made = made * scale.reshape(shape) + bias.reshape(shape)
    made = made * _sigmoid(made) if attributes["activation"] else made
    return np.asarray(np.moveaxis(made, 1, -1) if last else made, x.dtype)


def skip_group_norm(
    attributes: Attributes, x: Array, scale: Array, bias: Array, skip: Array, more: Array | None = None
) -> tuple[Array, Array]:
    """Return the GroupNorm of the sum of x, skip and bias, and the sum."""
    wide = skip if skip.ndim == x.ndim else skip[:, None, None, :]
    total = _sum(_wide(x) + wide, more)
    return group_norm(attributes, total, scale, bias).astype(x.dtype), total.astype(x.dtype)


def skip_layer_normalization(
    attributes: Attributes, x: Array, skip: Array, scale: Array, beta: Array | None = None, bias: Array | None = None
) -> tuple[Array | None, ...]:
    """Return the LayerNormalization of the sum of x, skip and bias, and the sum."""
    total = _sum(_wide(x) + skip, bias)
    made = _sum(_normalized(total, attributes.get("epsilon", 1e-12), (-1,)) * scale, beta)
    return made.astype(x.dtype), None, None, total.astype(x.dtype)


def skip_simplified_layer_normalization(
    attributes: Attributes, x: Array, skip: Array, scale: Array, bias: Array | None = None
) -> tuple[Array | None, ...]:
    """Return the RMSNormalization of the sum of x, skip and bias, and the sum."""
    total = _sum(_wide(x) + skip, bias)
    square = (total**2).mean(axis=-1, keepdims=True) + np.float32(attributes.get("epsilon", 1e-12))
    return (total / np.sqrt(square) * scale).astype(x.dtype), None, None, total.astype(x.dtype)


def gated_relative_position_bias(
    attributes: Attributes,
    query: Array,
    shift: Array,
    positions: Array,
    weight: Array,
    bias: Array,
    factor: Array,
    offsets: Array | None = None,
) -> Array:
    """Return the position bias times a gate per query; queries without padding are first padded with zeros."""
    heads = attributes["num_heads"]
    if offsets is not None:
        query = restore_padding({}, query, offsets)
    batch, length, width = query.shape
    layer = (_wide(query) + shift).reshape(batch, length, heads, width // heads).swapaxes(1, 2)
    halves = (layer @ _wide(weight) + bias).reshape(batch, heads, length, 2, -1).sum(axis=-1)
    first, second = np.split(_sigmoid(halves), 2, axis=-1)
    return np.asarray((first * (second * factor - 1) + 2) * positions, query.dtype)


def relative_position_bias(attributes: Attributes, table: Array, queries: Array, keys: Array) -> Array:
    """Return the table rows for the distances: one row per small distance, logarithmic buckets for larger ones (T5)."""
    count, most = table.shape[0], attributes["max_distance"]
    distance = np.arange(int(keys.reshape(-1)[0]))[None, :] - np.arange(int(queries.reshape(-1)[0]))[:, None]
    base = np.zeros_like(distance)
    if attributes.get("is_bidirectional", 0):
        count //= 2
        base, distance = np.where(distance > 0, count, 0), np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = count // 2
    log = np.log(np.maximum(distance, 1).astype(np.float32) / exact) / math.log(most / exact) * (count - exact)
    buckets = base + np.where(distance < exact, distance, np.minimum(exact + log.astype(np.int64), count - 1))
    return np.ascontiguousarray(np.moveaxis(table[buckets], -1, 0)[None])


def remove_padding(_: Attributes, x: Array, counts: Array) -> tuple[Array, ...]:
    """Return the rows without padding; the positions of those, then of the others; the ends; the longest length."""
    used = (np.arange(x.shape[1]) < counts[:, None]).reshape(-1)
    places = np.concatenate([np.flatnonzero(used), np.flatnonzero(~used)]).astype(np.int32)
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    rows = x.reshape(-1, x.shape[2])[used]
    return rows, places.reshape(x.shape[:2]), ends, np.array([counts.max()], np.int32)


def restore_padding(_: Attributes, x: Array, offsets: Array) -> Array:
    """Return the rows at their original positions, with zeros in between."""
    made = np.zeros((offsets.size, x.shape[1]), x.dtype)
    made[offsets.reshape(-1)[: len(x)]] = x
    return made.reshape(*offsets.shape, x.shape[1])


def packed_multi_head_attention(
    attributes: Attributes,
    query: Array,
    key: Array | None,
    value: Array | None,
    bias: Array | None,
    offsets: Array,
    ends: Array,
    added: Array | None = None,
) -> Array:
    """Return the attention of concatenated sequences, each within itself."""
    heads = attributes["num_heads"]
    if key is None or value is None:
        query, key, value = (query[:, :, place].reshape(len(query), -1) for place in range(3))
    tensors = [_wide(query), _wide(key), _wide(value)]
    if bias is not None:
        cuts = np.cumsum([tensor.shape[1] for tensor in tensors])[:2]
        tensors = [tensor + part for tensor, part in zip(tensors, np.split(bias, cuts))]
    apart = [tensor.reshape(len(tensor), heads, -1).swapaxes(0, 1) for tensor in tensors]
    scale = attributes.get("scale", 0.0) or 1 / math.sqrt(apart[0].shape[2])
    made = np.zeros((len(query), tensors[2].shape[1]), tensors[2].dtype)
    for number, (start, end) in enumerate(pairwise(ends)):
        first, second, third = (tensor[:, start:end] for tensor in apart)
        scores = first @ second.swapaxes(1, 2) * np.float32(scale)
        if added is not None:
            scores = scores + added[number % len(added), :, : end - start, : end - start]
        made[start:end] = (_softmax(scores) @ third).swapaxes(0, 1).reshape(end - start, -1)
    return made.astype(query.dtype)


FUNCTIONS: dict[str, Function] = {
    "BiasAdd": bias_add,
    "BiasGelu": bias_gelu,
    "BiasSoftmax": bias_softmax,
    "BiasSplitGelu": bias_split_gelu,
    "FastGelu": fast_gelu,
    "FusedMatMul": fused_matmul,
    "FusedMatMulActivation": fused_matmul,
    "GatedRelativePositionBias": gated_relative_position_bias,
    "Gelu": bias_gelu,
    "GemmFastGelu": gemm_fast_gelu,
    "GroupNorm": group_norm,
    "PackedMultiHeadAttention": packed_multi_head_attention,
    "QuickGelu": quick_gelu,
    "RelativePositionBias": relative_position_bias,
    "RemovePadding": remove_padding,
    "RestorePadding": restore_padding,
    "SkipGroupNorm": skip_group_norm,
    "SkipLayerNormalization": skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": skip_simplified_layer_normalization,
}
"""The function of each operator, from its attributes and inputs; an omitted input is None."""


def _present(result: Array | None, name: str) -> Array:
    """Return an output; for one that is not computed, an empty array if it is unused, or else raise."""
    if result is None and name:
        raise NotImplementedError(f"the output '{name}' is not computed")
    return np.zeros(0, np.float32) if result is None else result


def evaluators() -> list[type]:
    """Return the classes of these operators for the reference evaluator of onnx."""
    from onnx.helper import get_attribute_value
    from onnx.reference.op_run import OpRun

    def made(name: str, function: Function) -> type:
        def run(self: Any, *inputs: Array | None, **_: Any) -> tuple[Array, ...]:
            held = {item.name: get_attribute_value(item) for item in self.onnx_node.attribute}
            read = {key: item.decode() if isinstance(item, bytes) else item for key, item in held.items()}
            result = function(read, *inputs)
            results = result if isinstance(result, tuple) else (result,)
            return tuple(_present(one, name) for one, name in zip(results, self.onnx_node.output))

        return type(name, (OpRun,), {"op_domain": DOMAIN, "_run": run})

    return [made(name, function) for name, function in FUNCTIONS.items()]
