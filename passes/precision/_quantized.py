"""Quantized operands and results of a node that is written in floats between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surgery import Builder, Node, Refusal, Value

from ._integers import Array, integer_type
from ._pairs import DEQUANTIZE, QUANTIZE

BYTES = ("uint8", "int8")
"""The element types that operators on integers have."""


@dataclass(frozen=True)
class Quantized:
    """An 8-bit tensor with its scale and zero point; `axis` applies if there is more than one scale."""

    integers: Value
    scale: Value
    zero_point: Value | None
    kind: str
    axis: int

    @property
    def scales(self) -> Array:
        """The scales as a vector of float32."""
        assert self.scale.constant is not None
        return self.scale.constant.reshape(-1)

    @property
    def points(self) -> Array:
        """The zero points as a vector of int64."""
        if self.zero_point is None:
            return np.zeros(1, np.int64)
        assert self.zero_point.constant is not None
        return self.zero_point.constant.reshape(-1).astype(np.int64)

    @property
    def has_one_scale(self) -> bool:
        """Whether all elements have the same scale and zero point."""
        return bool(self.scales.size == 1 and self.points.size == 1)

    def same_as(self, other: Quantized) -> bool:
        """Return whether the integers of both mean the same numbers."""
        same_axis = self.has_one_scale or self.axis == other.axis
        same = np.array_equal(self.scales, other.scales) and np.array_equal(self.points, other.points)
        return same and self.kind == other.kind and same_axis


def operand(node: Node, position: int) -> Quantized:
    """Return the integers that an operand represents; refuse unless it is dequantized from 8 bits."""
    value = node.required_input(position)
    producer = value.producer
    if producer is None or producer.op not in DEQUANTIZE:
        raise Refusal("an operand is not dequantized")
    found = _read(producer, producer.required_input(0))
    if producer.attr("output_dtype", 0) not in (0, 1) or (value.dtype is not None and value.dtype.name != "FLOAT"):
        raise Refusal("the numbers are not float32")
    return found


def one(found: Quantized) -> Quantized:
    """Return a tensor with one scale; refuse any other."""
    if not found.has_one_scale:
        raise Refusal("the data have several scales")
    return found


def _read(node: Node, integers: Value) -> Quantized:
    """Read the parameters of a QuantizeLinear or DequantizeLinear."""
    scale, zero_point = node.required_input(1), node.input(2)
    if not scale.is_constant or (zero_point is not None and not zero_point.is_constant):
        raise Refusal("a scale or zero point is not constant")
    kind = integers.dtype if zero_point is None else zero_point.dtype
    name = "" if kind is None else kind.name.lower()
    if name not in BYTES:
        raise Refusal("the integers are not int8 or uint8")
    if node.attr("block_size", 0):
        raise Refusal("the scales are those of blocks")
    if scale.dtype is None or scale.dtype.name != "FLOAT":
        raise Refusal("the scales are not float32")
    found = Quantized(integers, scale, zero_point, name, int(node.attr("axis", 1)))
    if not (np.isfinite(found.scales).all() and (found.scales > 0).all()):
        raise Refusal("a scale is not positive")
    return found


@dataclass(frozen=True)
class Rounded:
    """The quantized form of a result: its parameters, and all values that hold its integers."""

    given: Quantized
    values: tuple[Value, ...]

    def replace(self, made: Value, new: Builder) -> None:
        """Let the readers of the integers read new ones."""
        for value in self.values:
            new.replace(value, made)


def rounded(node: Node, kind: str) -> Rounded:
    """Return the quantized form of the result of a node, of the type of its data; refuse if floats of it are read.

    An activation in between is left out if the range of the integers has the same effect.
    """
    value, tail = node.outputs[0], _tail(node)
    if value.is_output or (tail is not None and tail.outputs[0].is_output):
        raise Refusal("the result is an output in floats")
    value = value if tail is None else tail.outputs[0]
    readers = value.consumers
    if not readers or not all(_quantizes(reader, value) and reader.scope is node.scope for reader in readers):
        raise Refusal("the result is read in floats")
    given = [_read(reader, reader.outputs[0]) for reader in readers]
    if not all(one.same_as(given[0]) for one in given[1:]):
        raise Refusal("the result is quantized in several ways")
    if not given[0].has_one_scale or given[0].kind != kind:
        raise Refusal("the result has several scales or another type than the data")
    if tail is not None and not _covers(tail, given[0]):
        raise Refusal("the activation limits the result more than its integers do")
    return Rounded(given[0], tuple(reader.outputs[0] for reader in readers))


def _quantizes(reader: Node, value: Value) -> bool:
    return reader.op in QUANTIZE and reader.input(0) == value and not reader.attr("precision", 0)


def _tail(node: Node) -> Node | None:
    """Return the Relu or Clip that alone reads the result of a node."""
    readers = node.outputs[0].consumers
    if len(readers) != 1 or readers[0].op not in ("Relu", "Clip") or readers[0].scope is not node.scope:
        return None
    return readers[0] if readers[0].input(0) == node.outputs[0] and readers[0].bounds is not None else None


def _covers(tail: Node, given: Quantized) -> bool:
    """Return whether the bounds of an activation are quantized to the smallest and the largest integer."""
    kind = integer_type(given.kind)
    low, high = (np.rint(np.float32(bound) / given.scales[0]) + given.points[0] for bound in tail.bounds or (0, 0))
    return bool(low <= kind.low and high >= kind.high)
