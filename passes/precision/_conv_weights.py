"""8-bit weights of convolutions, with a scale for each output channel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Refusal, Value, is_computed, packed_tensor

from ._integers import fit, integer_type
from ._sharing import Shared

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
        new.require(weight.tensor is not None, "the weight of the convolution is not constant")
        new.require((weight.size or 0) >= max(self.min_elements, 1), "the weight has few elements")
        new.require(is_computed("MatMul", weight.dtype), "the weight is neither float32 nor float16")
        assert weight.dtype is not None and weight.size is not None and weight.static_shape is not None
        kind = weight.dtype.numpy()
        first = _OPSETS[kind.name]
        if node.opset < first:
            raise Refusal(f"DequantizeLinear supports such weights since opset {first}")
        channels = weight.static_shape[axis]
        each = kind.itemsize + (0 if self.symmetric else 1)
        new.require(
            weight.size + channels * each < weight.size * kind.itemsize, "the quantized weight would not be smaller"
        )
        made = self._shared.get(node, (weight, axis), lambda: (self._dequantized(weight, axis, new),))
        new.set_input(node, 1, made[0])

    def _dequantized(self, weight: Value, axis: int, new: Builder) -> Value:
        if weight.scope is self.graph.main:
            tensors = self.graph.remember((weight.name, axis, self.symmetric), lambda: self._tensors(weight, axis))
        else:
            # Subgraphs may use the same name for a different value.
            tensors = self._tensors(weight, axis)
        names = ("quantized", "scales", "zero_points")
        parts = [new.constant(tensor, f"{weight.name}_{name}") for tensor, name in zip(tensors, names)]
        return new.node("DequantizeLinear", *parts, axis=axis)

    def _tensors(self, weight: Value, axis: int) -> tuple[Any, ...]:
        array = weight.constant
        assert array is not None and weight.dtype is not None
        found = fit(array, integer_type("int8" if self.symmetric else "uint8"), (axis,), symmetric=self.symmetric)
        scales = np.atleast_1d(found.scales).astype(array.dtype)
        tensors = [found.quantize(array), scales, *([] if self.symmetric else [np.atleast_1d(found.zero_points())])]
        return tuple(packed_tensor(each) for each in tensors)
