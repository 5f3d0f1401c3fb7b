"""Exact means of the channels of a linear layer, computed from sums over its data alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from math import prod

import numpy as np

from surgery import Node, Refusal, Value

from ._integers import Array
from ._stored_weights import elements, stored

LAYERS = ("Conv", "Gemm", "MatMul")
"""Operators whose means follow from the means of their data."""


@dataclass
class LinearMeans:
    """Sums of the data of a Conv, a Gemm or a MatMul, accumulated one array at a time.

    `addend` is a constant added to the layer by an Add after it; the means are then those of the sum.

    A channel of the result is a sum of products with the weight. So its mean is the sum of products of the weight with
    the means of the data. For a Conv, the data have a mean for each place of the kernel, because only some places of
    the kernel meet the padding.
    """

    node: Node
    addend: Value | None = None
    sums: Array = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        shape = weight_shape(self.node)
        self.sums = np.zeros(shape[:1] if self.node.op != "Conv" else (shape[1] * self._groups, prod(shape[2:])))

    @property
    def axis(self) -> int:
        """The axis of the channels of the result."""
        return 1 if self.node.op == "Conv" else -1

    @property
    def _groups(self) -> int:
        return int(self.node.attr("group", 1))

    def add(self, array: Array) -> None:
        """Add the data of one run of the model."""
        if self.node.op == "Conv":
            self._add_windows(array)
            return
        rows = (array.T if self.node.attr("transA", 0) else array).reshape(-1, len(self.sums))
        self.sums += rows.sum(axis=0, dtype=np.float64)
        self.count += len(rows)

    def _add_windows(self, array: Array) -> None:
        kernel = weight_shape(self.node)[2:]
        rank = len(kernel)
        strides = self.node.attr("strides") or [1] * rank
        dilations = self.node.attr("dilations") or [1] * rank
        pads = self.node.attr("pads") or [0] * (2 * rank)
        padded = np.pad(array, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:])])
        steps = list(zip(padded.shape[2:], kernel, strides, dilations))
        places = [(extent - dilation * (size - 1) - 1) // stride + 1 for extent, size, stride, dilation in steps]
        others = (0, *range(2, rank + 2))
        for number, offsets in enumerate(product(*map(range, kernel))):
            starts = [offset * dilation for offset, dilation in zip(offsets, dilations)]
            ends = [start + (count - 1) * stride + 1 for start, count, stride in zip(starts, places, strides)]
            window = padded[(slice(None), slice(None), *map(slice, starts, ends, strides))]
            self.sums[:, number] += window.sum(axis=others, dtype=np.float64)
        self.count += len(array) * prod(places)

    def means(self) -> Array:
        """Return the mean of each channel of the result."""
        weight = elements(self.node.required_input(1))
        means = self.sums / max(self.count, 1)
        if self.node.op == "Conv":
            matrices = weight.reshape(self._groups, len(weight) // self._groups, -1)
            found = np.einsum("gok,gk->go", matrices, means.reshape(self._groups, -1), dtype=np.float64).reshape(-1)
        else:
            matrix = weight.T if self.node.attr("transB", 0) else weight
            found = means @ matrix.astype(np.float64) * float(self.node.attr("alpha", 1.0))
        for bias, factor in ((self.node.input(2), self.node.attr("beta", 1.0)), (self.addend, 1.0)):
            if bias is not None:
                found = found + elements(bias).astype(np.float64).reshape(-1) * float(factor)
        return np.asarray(found)


def weight_shape(node: Node) -> tuple[int, ...]:
    """Return the shape of the weight of a layer; [K, N] for a matrix product."""
    shape = node.required_input(1).static_shape or ()
    return shape[::-1] if node.op == "Gemm" and node.attr("transB", 0) else shape


def require_vector(bias: Value, channels: int, reason: str) -> None:
    """Refuse a bias or addend that is not one number for each channel or one for all."""
    if bias.size not in (1, channels) or (bias.rank and (bias.static_shape or (0,))[-1] != bias.size):
        raise Refusal(reason)


def read_layer(node: Node, addend: Value | None = None) -> LinearMeans:
    """Read a layer; refuse it if its means do not follow from the means of its data."""
    weight, bias = node.required_input(1), node.input(2)
    if any(value is not None and stored(value)[0].tensor is None for value in (weight, bias)):
        raise Refusal("the weight or the bias of the reference is not constant")
    if node.op != "Conv" and weight.rank != 2:
        raise Refusal("the weight of the reference is not a matrix")
    if node.op == "Conv" and node.attr("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise Refusal("the padding of the reference depends on the size of the data")
    channels = channels_of(node)
    for added in (bias, addend):
        if added is not None:
            require_vector(added, channels, "the bias of the reference is not one number for each channel")
    return LinearMeans(node, addend)


def channels_of(node: Node) -> int:
    """Return the number of channels of the result of a layer."""
    return weight_shape(node)[0 if node.op == "Conv" else 1]


def addend_of(node: Node) -> tuple[Node, Value] | None:
    """Return the Add that is the only reader of a MatMul, and the constant it adds; otherwise None."""
    result, readers = node.outputs[0], node.outputs[0].consumers
    if node.op != "MatMul" or len(readers) != 1 or readers[0].op != "Add" or result.is_output:
        return None
    added = next((value for value in readers[0].inputs if value is not None and value.is_constant), None)
    return None if added is None or readers[0].scope is not node.scope else (readers[0], added)
