"""8-bit weights of convolutions, with a scale for each output channel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Refusal, Value, is_computed, packed_tensor

from ._integers import fit, integer_type
from ._sharing import Shared
from ._stored_weights import elements, untransposed

CHANNELS = {"Conv": 0, "ConvTranspose": 1}
"""The axis of the weight that holds the output channels, by operator."""

_OPSETS = {"float32": 13, "float16": 19}
"""The first opset in which DequantizeLinear has an axis and scales of this type."""


@dataclass
class ConvQuantizer:
    """Makes convolutions read dequantized weights."""

    graph: Graph
    symmetric: bool
    min_elements: int
    _shared: Shared = field(default_factory=Shared)

    def quantize(self, node: Node, new: Builder) -> None:
        """Make a convolution read a DequantizeLinear of its weight."""
        weight, axis = node.required_input(1), CHANNELS[node.op]
        held = untransposed(weight)
        if held.tensor is None:
            raise Refusal("the weight of the convolution is not constant")
        new.require((weight.size or 0) >= max(self.min_elements, 1), "the weight has few elements")
        new.require(is_computed("MatMul", weight.dtype), "the weight is neither float32 nor float16")
        assert weight.dtype is not None and weight.size is not None and weight.static_shape is not None
        kind = weight.dtype.numpy()
        first = _OPSETS[kind.name]
        if node.opset < first:
            raise Refusal(f"DequantizeLinear supports such weights since opset {first}")
        channels = weight.static_shape[axis]
        each = kind.itemsize + (0 if self.symmetric else 1)
        smaller = weight.size + channels * each < held.tensor.nbytes
        new.require(smaller, "the quantized weight would not be smaller")
        made = self._shared.get(node, (held, weight.dtype, axis), lambda: (self._dequantized(weight, axis, new),))
        new.set_input(node, 1, made[0])

    def _dequantized(self, weight: Value, axis: int, new: Builder) -> Value:
        held = untransposed(weight)
        if held.scope is self.graph.main:
            key = held.name, str(weight.dtype), axis, self.symmetric
            tensors = self.graph.remember(key, lambda: self._tensors(weight, axis))
        else:
            # Subgraphs may use the same name for a different value.
            tensors = self._tensors(weight, axis)
        names = ("quantized", "scales", "zero_points")
        parts = [new.constant(tensor, f"{held.name}_{name}") for tensor, name in zip(tensors, names)]
        return new.node("DequantizeLinear", *parts, axis=axis)

    def _tensors(self, weight: Value, axis: int) -> tuple[Any, ...]:
        array = elements(weight)
        found = fit(array, integer_type("int8" if self.symmetric else "uint8"), (axis,), symmetric=self.symmetric)
        scales = np.atleast_1d(found.scales).astype(array.dtype)
        tensors = [found.quantize(array), scales, *([] if self.symmetric else [np.atleast_1d(found.zero_points())])]
        return tuple(packed_tensor(each) for each in tensors)
