"""A model's own noise: the same model with each large weight and each float input moved by one rounding step.

A correct rewrite changes only how numbers are rounded. A model that reacts strongly to such a change (a flipped
quantization step, an ArgMax between equal values) does so with or without the rewrite.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from suite.feeds import Feed

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
_LEAST = 16
"""The fewest elements of a weight: smaller tensors can be the scales of a Resize, bounds, or exact values."""


QUANTIZING = frozenset({"DynamicQuantizeLinear", "DynamicQuantizeLSTM", "QuantizeLinear", "QAttention"})
"""Operators that round to a few steps at run time: a single flip, which occurs by chance, changes all downstream."""

DRAWS = 6
"""How often a model is perturbed if a single draw may show less than rounding does to it."""


def is_quantizing(model: onnx.ModelProto) -> bool:
    """Return whether the model has operators of which a flip shows by chance only."""
    return any(node.op_type in QUANTIZING for node in model.graph.node)


def shaken(model: onnx.ModelProto, seed: int = 0) -> bytes:
    """Return the serialized model with each float weight moved to a neighbouring number."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    random = np.random.default_rng([11, seed])
    for tensor in _tensors(copy.graph):
        if tensor.data_type in _FLOATS and int(np.prod(tensor.dims)) >= _LEAST:
            moved = _neighbours(numpy_helper.to_array(tensor), random)
            tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
    return copy.SerializeToString()


def shaken_feed(feed: Feed, seed: int = 0) -> Feed:
    """Return the inputs with each float moved to a neighbouring number; zeros and whole-number arrays (ids) stay."""
    random = np.random.default_rng([12, seed])
    moved = {}
    for name, array in feed.items():
        is_exact = array.dtype.kind != "f" or np.array_equal(array, np.round(array))
        moved[name] = array if is_exact else _neighbours(array, random)
    return moved


def _neighbours(array: np.ndarray[Any, Any], random: np.random.Generator) -> np.ndarray[Any, Any]:
    up = random.random(array.shape) < 0.5
    bound = np.where(up, np.inf, -np.inf).astype(array.dtype)
    moved = np.nextafter(array, bound)
    return np.asarray(np.where((array == 0) | ~np.isfinite(array), array, moved)).astype(array.dtype)


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR and node.op_type == "Constant":
                yield attribute.t
            for inner in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs:
                yield from _tensors(inner)
