"""Static quantization of the operators of one model: the ranges of activations, and the edit of each operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Value

from ._calibration import ChannelStatistics, Method, Range, Statistics, choose_range
from ._constant_operands import Constants, quantized_weight
from ._hard_gates import GATES, gated, is_gate
from ._integers import Affine, Array, IntegerType, affine
from ._pairs import PER_CHANNEL, Pairs
from ._stored_weights import elements, stored
from ._units import Unit, ranges_of

LARGEST_BIAS = 2.0**30
"""Bound of the integers of a bias, half the range of int32, so that the sum of the products has room."""

FINE_BIAS = 2.0**20
"""Bound of the integers of the bias of a channel whose weights are all zero."""

SMALLEST_STEP = 1e-30
"""Minimum product of two scales, far above the smallest normal number of float32."""

Key = tuple[str, int | None]
"""The name of a value, and the axis of its channels if statistics per channel are needed."""

Found = dict[Key, Statistics | ChannelStatistics]


@dataclass(frozen=True)
class Scheme:
    """How activations and weights are quantized."""

    activations: IntegerType
    weights: IntegerType
    per_channel: bool = True
    symmetric: bool = False
    method: Method = "mse"
    percentile: float = 99.999
    correct_bias: bool = True
    margin: float = 1.0
    integer_biases: bool = True


class Quantizer:
    """Quantizes operators one by one; all statistics are collected at once, before the first operator."""

    def __init__(self, graph: Graph, scheme: Scheme, units: Sequence[Unit]) -> None:
        self.graph = graph
        self.scheme = scheme
        self._pairs = Pairs()
        self._found = self._measured(units)
        self._affine: dict[Value, Affine] = {}

    def _measured(self, units: Sequence[Unit]) -> Found:
        """Return the calibration statistics of the values that are rounded."""
        wanted: dict[Value, dict[Key, None]] = {value: {(value.name, None): None} for value in ranges_of(units)}
        for unit in units:
            if self.scheme.correct_bias and unit.channels is not None:
                operand = unit.operands[0]
                wanted.setdefault(operand, {})[operand.name, unit.channels] = None
        keys = tuple(key for own in wanted.values() for key in own)
        return self.graph.remember(("ranges", keys), lambda: self._measure(wanted)) if keys else {}

    def _measure(self, wanted: dict[Value, dict[Key, None]]) -> Found:
        found: Found = {
            (name, axis): Statistics() if axis is None else ChannelStatistics(axis)
            for own in wanted.values()
            for name, axis in own
        }
        for value, array in self.graph.recordings(list(wanted)):
            for key in wanted[value]:
                found[key].add(array)
        return found

    def quantize(self, unit: Unit, new: Builder) -> None:
        """Make an operator read rounded operands, and its readers its rounded result."""
        node = unit.node
        new.require(node.op not in GATES or not self.scheme.symmetric, "a symmetric range does not clip at 0")
        ranges = [self._range(value) for value in unit.roots]
        result = None if unit.result is None else self._range(unit.result)
        if unit.weight is not None:
            self._set_constants(unit, unit.weight, ranges[0], new)
        for position, found, root in zip(unit.data, ranges, unit.roots):
            operand = node.required_input(position)
            new.set_input(node, position, self._pairs.rounded(node, operand, found, root.name, new))
        if unit.result is not None and result is not None:
            covered = unit.tail is not None and _covers(unit.tail, result)
            computed = node.outputs[0] if covered else unit.result
            if node.op in GATES:
                made = gated(node, result, unit.result.name, self._pairs, new)
            else:
                made = self._pairs.rounded(node, computed, result, unit.result.name, new)
            new.replace(unit.result, made)

    def _range(self, value: Value) -> Affine:
        scheme = self.scheme
        if value not in self._affine and is_gate(value) and not scheme.symmetric:
            self._affine[value] = affine(0.0, 1.0, scheme.activations)
        if value not in self._affine:
            found = self._found[value.name, None]
            assert isinstance(found, Statistics)
            key = scheme.method, scheme.activations, scheme.percentile, scheme.symmetric
            # The pass runs once for each operator whose loss is measured; the search would run as often.
            low, high = self.graph.remember(("range", value.name, key), lambda: _searched(found, scheme))
            low, high = low * scheme.margin, high * scheme.margin
            self._affine[value] = affine(low, high, scheme.activations, symmetric=scheme.symmetric)
        return self._affine[value]

    # Weights and biases

    def _set_constants(self, unit: Unit, position: int, data: Affine, new: Builder) -> None:
        node, weight = unit.node, unit.node.required_input(position)
        axis = unit.axis if self.scheme.per_channel else None
        new.require(axis is None or node.opset >= PER_CHANNEL, "before opset 13 a weight has a single scale")
        data_scale = float(data.scale.item())
        bias = None if unit.bias is None else _vector(node.required_input(unit.bias), weight, unit.axis)
        made = self._weight(unit, weight, axis, bias, data_scale)
        scales = _fine_scales(made, axis, bias, data_scale)
        tensors = made.integers, scales, self._zero_points(scales)
        held = stored(weight)
        key = ("weight", held, axis, scales.tobytes())
        new.set_input(node, position, self._pairs.dequantized(node, held[0].name, key, tensors, axis, new))
        is_shifted = bool(made.shift.any())
        if is_shifted:
            bias = (0.0 if bias is None else bias) - made.shift
        if bias is not None and not self.scheme.integer_biases:
            if is_shifted:
                new.set_input(node, 2, new.constant(bias.astype(np.float32), _bias_name(unit)))
        elif bias is not None:
            self._set_bias(unit, bias, np.float32(data_scale) * scales, None if axis is None else 0, new)

    def _zero_points(self, scales: Array) -> Array:
        kind = self.scheme.weights
        return np.full(scales.shape, kind.middle, kind.dtype)

    def _set_bias(self, unit: Unit, bias: Array, step: Array, axis: int | None, new: Builder) -> None:
        integers = np.rint(bias / np.asarray(step, np.float64)).astype(np.int32)
        if unit.bias is None and not integers.any():
            return
        tensors, name = (integers, np.asarray(step)), _bias_name(unit)
        made = self._pairs.dequantized(unit.node, name, ("bias", unit.node), tensors, axis, new)
        new.set_input(unit.node, 2, made)

    def _weight(self, unit: Unit, weight: Value, axis: int | None, bias: Array | None, data_scale: float) -> Constants:
        """Return a quantized weight, with scales that are large enough for the bias to fit into int32."""
        least = np.zeros(()) if bias is None else np.abs(bias) / (data_scale * LARGEST_BIAS)
        least = np.maximum(least if axis is not None else least.max(initial=0.0), SMALLEST_STEP / data_scale)
        mean = self._means(unit)
        held, turned = stored(weight)
        key = held.name, turned, axis, self.scheme.weights, None if mean is None else unit.operands[0].name

        def make(bounds: Array | None = None) -> tuple[Any, ...]:
            return quantized_weight(unit, elements(weight), self.scheme.weights, axis, mean, bounds)

        made = Constants(*self.graph.remember(key, make))
        if (least > made.scales).any():
            bounds = np.broadcast_to(least, made.scales.shape)
            made = Constants(*self.graph.remember((*key, bounds.tobytes()), lambda: make(bounds)))
        return made

    def _means(self, unit: Unit) -> Array | None:
        """Return the mean of each channel of the data of a product if they can correct its bias; otherwise None."""
        if not self.scheme.correct_bias or unit.channels is None:
            return None
        found = self._found[unit.operands[0].name, unit.channels]
        assert isinstance(found, ChannelStatistics)
        return found.means if found.count and found.is_finite else None


def _fine_scales(made: Constants, axis: int | None, bias: Array | None, data_scale: float) -> Array:
    """Return scales in float32; a channel whose weights are all zero gets a scale fine enough for its bias."""
    scales = made.scales
    if bias is not None and axis is not None:
        fine = np.maximum(np.abs(bias) / (data_scale * FINE_BIAS), SMALLEST_STEP / data_scale)
        scales = np.where(made.is_empty & (bias != 0), fine, scales)
    return scales.astype(np.float32)


def _searched(found: Statistics, scheme: Scheme) -> Range:
    """Return the range that the method of a scheme chooses."""
    return choose_range(
        found, scheme.method, scheme.activations, percentile=scheme.percentile, symmetric=scheme.symmetric
    )


def _bias_name(unit: Unit) -> str:
    """Return the name of the bias of an operator, or one for a bias that it does not have yet."""
    if unit.bias is None:
        return f"{unit.node.required_input(1).name}_bias"
    return stored(unit.node.required_input(unit.bias))[0].name


def _vector(bias: Value, weight: Value, axis: int | None) -> Array:
    """Return a bias as one number for each output channel."""
    shape = weight.static_shape
    assert shape is not None and axis is not None
    return np.broadcast_to(elements(bias).reshape(-1), (shape[axis],)).astype(np.float64)


def _covers(tail: Node, found: Affine) -> bool:
    """Return whether all numbers that the integers represent are within an activation's bounds, up to rounding."""
    low, high = tail.bounds or (0.0, 0.0)
    least, most = ((limit - found.zero_point.item()) * found.scale.item() for limit in found.limits)
    slack = found.scale.item() / 1024
    return bool(least >= low - slack and most <= high + slack)
