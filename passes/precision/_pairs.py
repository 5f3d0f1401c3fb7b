"""QuantizeLinear and DequantizeLinear pairs: created once for all readers of a value, and recognized."""

from __future__ import annotations

from typing import Any

import numpy as np

from surgery import Builder, Node, Value, data_type, literal_tensor

from ._integers import Affine, Array
from ._sharing import Shared

QUANTIZE = ("QuantizeLinear", "com.microsoft::QuantizeLinear")
DEQUANTIZE = ("DequantizeLinear", "com.microsoft::DequantizeLinear")

STANDARD = {"uint8": 10, "int8": 10, "int32": 10, "uint16": 21, "int16": 21}
"""The first opset in which ONNX's QuantizeLinear and DequantizeLinear support a type; before, com.microsoft's do."""

PER_CHANNEL = 13
"""The first opset in which DequantizeLinear may have a scale for each index of an axis."""


class Pairs:
    """Creates the values that sites of one run share: scales, and the quantized form of values."""

    def __init__(self) -> None:
        self._shared = Shared()

    def rounded(self, node: Node, value: Value, affine: Affine, name: str, new: Builder) -> Value:
        """Return a value after QuantizeLinear and DequantizeLinear, shared by `node` and other readers in its graph.

        `name` is the name of the value whose range it has; a value dequantized with the same scale is returned as is.
        """
        if is_held(value, affine):
            return value
        return self._shared.get(node, (value, "rounded"), lambda: (self._pair(node, value, affine, name, new),))[0]

    def _pair(self, node: Node, value: Value, affine: Affine, name: str, new: Builder) -> Value:
        prefix = prefix_of(node, affine.kind.name)
        scale, zero_point = self.constants(node, affine, name, new)
        integers = new.node(f"{prefix}QuantizeLinear", value, scale, zero_point)
        return new.node(f"{prefix}DequantizeLinear", integers, scale, zero_point)

    def constants(self, node: Node, affine: Affine, name: str, new: Builder) -> tuple[Value, Value]:
        """Return the scale and the zero point of a value as constants."""

        def make() -> tuple[Value, ...]:
            scale, zero_point = np.asarray(affine.scales, np.float32), np.asarray(affine.zero_points())
            return new.constant(scale, f"{name}_scale"), new.constant(zero_point, f"{name}_zero_point")

        scale, zero_point = self._shared.get(node, (name, "scale"), make)
        return scale, zero_point

    def dequantized(
        self, node: Node, name: str, key: Any, tensors: tuple[Any, ...], axis: int | None, new: Builder
    ) -> Value:
        """Return the floating-point numbers that integers with these scales and zero points represent."""

        def make() -> tuple[Value, ...]:
            integers, *others = (
                new.constant(tensor, f"{name}_{what}") for tensor, what in zip(tensors, ("quantized", "scale", "zero"))
            )
            prefix = prefix_of(node, tensors[0].dtype.name.lower())
            return (new.node(f"{prefix}DequantizeLinear", integers, *others, axis=axis),)

        return self._shared.get(node, key, make)[0]


def prefix_of(node: Node, kind: str) -> str:
    """Return the domain whose QuantizeLinear supports a type, as a prefix of operators."""
    return "" if node.graph.opset >= STANDARD[kind] else "com.microsoft::"


def tensor(array: Array, name: str) -> Any:
    """Return an array as a tensor of an element type."""
    return literal_tensor(array, data_type(name))


def is_held(value: Value, affine: Affine) -> bool:
    """Return whether a value was dequantized with this scale, zero point and type."""
    node = value.producer
    if node is None or node.op not in DEQUANTIZE or len(node.inputs) < 3:
        return False
    scale, zero_point = node.required_input(1).scalar, node.required_input(2).scalar
    kind = node.required_input(0).dtype
    same_kind = kind is None or kind.name.lower() == affine.kind.name
    return same_kind and scale == affine.scales.item() and zero_point == affine.zero_points().item()
