"""The float tensors that integer tensors represent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery import Builder, Node, Refusal, Value

from ._integers import Array, blocks, integer_type, part
from ._sharing import Shared

MOVES = frozenset(
    {
        *("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather", "GatherElements", "GatherND"),
        *("Identity", "MaxPool", "Expand", "Tile", "DepthToSpace", "SpaceToDepth"),
    }
)
"""Operators whose first output holds only elements of their first input."""


@dataclass(frozen=True)
class Parameters:
    """The scale and zero point of an integer tensor; a missing zero point is 0. `axis` applies to vectors."""

    scale: Value
    zero_point: Value | None = None
    axis: int = 1
    block: int = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers that the integers represent, which is the type of the scale."""
        return np.dtype(np.float32 if self.scale.dtype is None else self.scale.dtype.numpy())

    def same_as(self, other: Parameters) -> bool:
        """Return whether both are known to give integers the same meaning."""
        if not _equal(self.scale, other.scale) or not _equal(self.zero_point, other.zero_point):
            return False
        return self.scale.scalar is not None or (self.axis, self.block) == (other.axis, other.block)

    def limits(self, integers: Value) -> tuple[float, float] | None:
        """Return the numbers that the smallest and the largest integer represent; None if they are not known."""
        scale = self.scale.scalar
        zero_point = 0 if self.zero_point is None else self.zero_point.scalar
        # The type of the results of nonstandard operators may be wrong or unknown.
        kind = integers.dtype if self.zero_point is None else self.zero_point.dtype
        if scale is None or zero_point is None or kind is None or not kind.is_integer():
            return None
        used = integer_type(kind.name.lower())
        return (used.low - zero_point) * scale, (used.high - zero_point) * scale


def parameters(node: Node, scale: int = 1, zero_point: int = 2) -> Parameters:
    """Read the parameters of a node from the inputs at these positions; refuse if they are not constant."""
    factor, offset = node.required_input(scale), node.input(zero_point)
    if not factor.is_constant or (offset is not None and not offset.is_constant):
        raise Refusal("a scale or zero point is not constant")
    quantizes = node.op in ("QuantizeLinear", "DequantizeLinear")
    axis, block = (int(node.attr(name, 0)) if quantizes else 0 for name in ("axis", "block_size"))
    return Parameters(factor, offset, axis, block)


def dequantized(integers: Array, given: Parameters, dtype: np.dtype[Any]) -> Array:
    """Return the numbers that the integers of a constant represent."""
    scale, zero_point = (_spread(value, integers, given) for value in (given.scale, given.zero_point))
    made = np.empty(integers.shape, dtype)
    for rows in blocks(integers):
        exact = integers[rows].astype(np.float64)
        exact -= _rows(zero_point, integers, rows, given)
        exact *= _rows(scale, integers, rows, given)
        made[rows] = exact
    return made


def _spread(value: Value | None, integers: Array, given: Parameters) -> Array:
    """Return a scale or zero point in float64, with the rank of the integers, or as a scalar."""
    array = np.zeros(()) if value is None or value.constant is None else value.constant.astype(np.float64)
    if array.size == 1 and not given.block:
        return array.reshape(())
    if given.block or array.ndim != 1:
        return array
    if not -integers.ndim <= given.axis < integers.ndim or array.size != integers.shape[given.axis]:
        raise Refusal("a scale or zero point does not have one number for each position on the axis")
    shape = [1] * integers.ndim
    shape[given.axis] = -1
    return array.reshape(shape)


def _rows(array: Array, integers: Array, rows: slice | tuple[()], given: Parameters) -> Array:
    """Return the scales or zero points of a block of rows."""
    if not given.block or not array.ndim or isinstance(rows, tuple):
        return part(array, rows)
    if given.axis % integers.ndim == 0:
        return np.asarray(array[np.arange(*rows.indices(len(integers))) // given.block])
    extents = integers.shape[given.axis]
    spread = np.repeat(array[rows], given.block, axis=given.axis)
    return spread.take(range(extents), axis=given.axis)


class Floats:
    """Finds or creates the float tensor for an integer tensor."""

    def __init__(self, saturation: str) -> None:
        self.saturation = saturation
        self._shared = Shared()

    def of(self, node: Node, value: Value, given: Parameters, new: Builder) -> Value:
        """Return the float tensor, existing or new, that `node` reads instead of the integers."""
        known = self.known(node, value, given, new)
        if known is not None:
            return known
        new.require(given.scale.scalar is not None, "computed integers have more than one scale")
        return new.node("DequantizeLinear", value, given.scale, given.zero_point)

    def known(self, node: Node, value: Value, given: Parameters, new: Builder) -> Value | None:
        """Return the float tensor that integers come from or represent; None if a DequantizeLinear is needed."""
        key = (value, given.scale, given.zero_point, given.axis)
        if value.is_constant and value.constant is not None:
            array = value.constant
            made = self._shared.get(
                node, key, lambda: (new.constant(dequantized(array, given, given.dtype), f"{value.name}_float"),)
            )
            return made[0]
        producer = value.producer
        if producer is None or value.output_index:
            return None
        if producer.op == "QuantizeLinear":
            return self._unquantized(node, producer, given, new)
        if producer.op not in MOVES or given.scale.scalar is None or producer.outputs[1:]:
            return None
        inner = self.known(node, producer.required_input(0), given, new)
        if inner is None:
            return None
        made = self._shared.get(
            *(node, key), lambda: (new.node(producer.op, inner, *producer.inputs[1:], attributes=producer.attributes),)
        )
        return made[0]

    def _unquantized(self, node: Node, quantize: Node, given: Parameters, new: Builder) -> Value | None:
        """Return the tensor that was quantized, clipped to the range of the integers."""
        source = quantize.required_input(0)
        if not given.same_as(parameters(quantize)) or source.dtype not in (None, given.scale.dtype):
            return None
        limits = given.limits(quantize.outputs[0])
        return None if limits is None else self.clipped(node, source, limits, new)

    def clipped(self, node: Node, source: Value, limits: tuple[float, float], new: Builder) -> Value:
        """Clip a float tensor to the range that its integers had, as far as the `saturation` option requires it."""
        if self.saturation == "none":
            return source
        least, largest = _bounds(source)
        if self.saturation == "zero":
            return source if limits[0] < 0 or least >= 0 else self._made(node, source, "Relu", (), new)
        if least >= limits[0] and largest <= limits[1]:
            return source
        return self._made(node, source, "Clip", limits, new)

    def _made(self, node: Node, source: Value, op: str, limits: tuple[float, ...], new: Builder) -> Value:
        kind = np.dtype(np.float32 if source.dtype is None else source.dtype.numpy())

        def make() -> tuple[Value, ...]:
            if limits and node.graph.imports_of(node.ir).get("", 0) < 11:
                return (new.node(op, source, min=limits[0], max=limits[1]),)
            bounds = (new.constant(np.array(limit, kind), name) for limit, name in zip(limits, ("min", "max")))
            return (new.node(op, source, *bounds),)

        return self._shared.get(node, (source, op, limits), make)[0]


def _bounds(value: Value) -> tuple[float, float]:
    """Return a lower and an upper bound of a value."""
    producer = value.producer
    if producer is None:
        return -np.inf, np.inf
    if producer.op in ("Sigmoid", "Softmax", "HardSigmoid"):
        return 0.0, 1.0
    return producer.bounds or (-np.inf, np.inf)


def _equal(first: Value | None, second: Value | None) -> bool:
    """Return whether two parameters are known to have the same elements; a missing zero point is 0."""
    if first == second:
        return True
    given = [value for value in (first, second) if value is not None]
    arrays = [value.constant for value in given if value.constant is not None]
    if len(arrays) < len(given):
        return False
    if len(arrays) == 1:
        return not arrays[0].any()
    return arrays[0].dtype == arrays[1].dtype and np.array_equal(arrays[0], arrays[1])
