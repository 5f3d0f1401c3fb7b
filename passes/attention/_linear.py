"""Linear layers: a MatMul or Gemm with a constant weight, and the constant bias added to its result."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery import Node, Value

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Linear:
    """One layer: `result` is its output after the bias, `width` the last dim of that output."""

    node: Node
    weight: Value
    bias: Value | None
    result: Value
    width: int

    @property
    def weights(self) -> Array:
        """The weight with the outputs along its last axis."""
        array = self.weight.constant
        assert array is not None
        return array.T if self.node.op == "Gemm" and self.node.attr("transB") else array

    @property
    def biases(self) -> Array:
        """One bias for each output; zeros if the layer has none."""
        weight, given = self.weight.constant, None if self.bias is None else self.bias.constant
        assert weight is not None
        if given is None:
            return np.zeros(self.width, weight.dtype)
        return np.ascontiguousarray(np.broadcast_to(given.reshape(-1), (self.width,)))


def linear(node: Node) -> Linear | None:
    """Read a Gemm, or a MatMul with an optional Add of one number per output; None for any other node."""
    weight, extents = node.input(1), None
    if weight is not None and weight.is_constant:
        extents = weight.static_shape
    if weight is None or extents is None or len(extents) != 2 or 0 in extents:
        return None
    if node.op == "Gemm":
        width, bias = extents[0 if node.attr("transB") else 1], node.input(2)
        fits = bias is None or _is_bias(bias, width, 2)
        return Linear(node, weight, bias, node.outputs[0], width) if fits else None
    added = _added(node.outputs[0], extents[1])
    if added is None:
        return Linear(node, weight, None, node.outputs[0], extents[1])
    return Linear(node, weight, added[0], added[1], extents[1])


def _added(product: Value, width: int) -> tuple[Value, Value] | None:
    """Return the bias added to a product and the sum, if nothing else reads the product."""
    readers = product.consumers
    if len(readers) != 1 or readers[0].op != "Add" or product.is_output or readers[0].scope is not product.scope:
        return None
    other = next((value for value in readers[0].inputs if value is not None and value != product), None)
    if other is None or not _is_bias(other, width, product.rank):
        return None
    return other, readers[0].outputs[0]


def _is_bias(value: Value, width: int, rank: int | None) -> bool:
    """Return whether a value is constant, has one number per output or one for all, and keeps the product's shape."""
    extents = value.static_shape if value.is_constant else None
    if extents is None or value.size not in (1, width) or any(extent != 1 for extent in extents[:-1]):
        return False
    return len(extents) <= 1 or (rank is not None and len(extents) <= rank)
