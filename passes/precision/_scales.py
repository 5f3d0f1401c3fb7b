"""Positive factors per channel, which are moved between the producers and the readers of a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surgery import Builder, Node, Refusal, Value, data_type

from ._integers import Array, blocks, extent, part, wide
from ._products import read_product
from ._stored_weights import elements, parameter

EVEN = 1.02
"""Factors whose ratio is below this have no noticeable effect on quantization."""

NOTHING = 1e-30
"""Weights below this are negligible."""

DEAD = 1e-6
"""The magnitude of a channel, relative to the largest one, below which it counts as zero."""


def is_live(*magnitudes: Array) -> Array:
    """Return which channels are not zero, and so need a factor, by their magnitudes in several tensors."""
    return np.asarray(np.all([each > DEAD * each.max(initial=0.0) for each in magnitudes], axis=0))


@dataclass(frozen=True)
class Operand:
    """A constant operand of a node, and the place of its channels. It may be stored in float16 and cast to float32.

    The constant is viewed in the shape `view`; numbers for the channels, in the shape `spread`, broadcast to it.
    """

    node: Node
    position: int
    view: tuple[int, ...]
    spread: tuple[int, ...]
    is_divided: bool = False

    @property
    def value(self) -> Value:
        """The constant that the node reads at present."""
        return self.node.required_input(self.position)

    @property
    def key(self) -> tuple[object, ...]:
        """The key under which its magnitudes are remembered."""
        return self.value.name, self.view, self.spread

    def magnitudes(self) -> Array:
        """Return the largest magnitude in each channel."""
        axes = tuple(axis for axis, dim in enumerate(self.spread) if dim != 1)
        low, high = extent(elements(self.value).reshape(self.view), axes)
        return np.maximum(-low, high).reshape(-1)

    def scaled(self, factors: Array) -> Array:
        """Return the constant times the factors of its channels; refuse if the result is out of range."""
        array = elements(self.value)
        spread = (1 / factors if self.is_divided else factors).reshape(self.spread)
        view = array.reshape(self.view)
        shape = np.broadcast_shapes(view.shape, spread.shape)
        rank = len(shape)
        view, spread = (each.reshape(*[1] * (rank - each.ndim), *each.shape) for each in (view, spread))
        if view.shape != shape:
            view = np.ascontiguousarray(np.broadcast_to(view, shape))
        made = np.empty(shape, array.dtype)
        smallest = float(np.finfo(array.dtype).tiny)
        # A number that is already negligible may become denormal.
        for rows in blocks(view):
            with np.errstate(all="ignore"):
                exact = wide(view[rows]) * part(spread, rows)
                made[rows] = exact
            small = np.abs(exact) < smallest
            vanishes = small.any() and (np.abs(wide(view[rows])[small]) >= NOTHING).any()
            if vanishes or not np.isfinite(made[rows]).all():
                raise Refusal("a scaled constant is out of the range of its type")
        return made.reshape(array.shape) if made.size == array.size else made


def operand(
    node: Node, position: int, view: Sequence[int], spread: Sequence[int], *, is_divided: bool = False
) -> Operand:
    """Return a weight or another parameter whose channels are scaled; refuse if it is no float32 constant.

    One that is stored in float16 and cast to float32 is float32, and is stored so once it is scaled.
    """
    value = node.required_input(position)
    tensor = parameter(value).tensor
    if tensor is None:
        raise Refusal("a weight or another parameter is not constant")
    if value.dtype != data_type("float"):
        raise Refusal("a weight or another parameter is not float32")
    if not tensor.size:
        raise Refusal("a weight or another parameter is empty")
    return Operand(node, position, tuple(view), tuple(spread), is_divided)


def along(node: Node, position: int, axis: int) -> Operand:
    """Return a parameter with the channels along one of its axes."""
    shape = node.required_input(position).static_shape or ()
    spread = [dim if index == axis % max(len(shape), 1) else 1 for index, dim in enumerate(shape)]
    return operand(node, position, shape, spread)


def groups_of(node: Node) -> tuple[int, int, int, int]:
    """Return the shape of the weight of a convolution: groups, both channel counts per group, elements of a kernel.

    In a Conv the output channels come first, in a ConvTranspose the input channels.
    """
    shape = node.required_input(1).static_shape or ()
    group = int(node.attr("group", 1))
    if len(shape) < 3 or 0 in shape:
        raise Refusal("a weight or another parameter is empty")
    return group, shape[0] // group, shape[1], int(np.prod(shape[2:]))


@dataclass(frozen=True)
class Reader:
    """A product with a constant weight that sums over the channels of a value.

    `axis` is the axis of the channels of the data, counted from the end.
    """

    node: Node
    data: Value
    weight: Operand
    axis: int

    @property
    def channels(self) -> int:
        """The number of channels of the data."""
        return int(np.prod(self.weight.spread))


def reader_of(node: Node, new: Builder) -> Reader:
    """Return how a product reads the channels of its data; refuse if its weight is not constant."""
    if node.op in ("Conv", "ConvTranspose"):
        group, outer, inner, kernel = groups_of(node)
        spread = (group, 1, inner, 1) if node.op == "Conv" else (group, outer, 1, 1)
        weight = operand(node, 1, (group, outer, inner, kernel), spread)
        return Reader(node, node.required_input(0), weight, 1 - len(node.required_input(1).static_shape or ()))
    if node.op == "com.microsoft::Attention":
        return Reader(node, node.required_input(0), along(node, 1, 0), -1)
    product = read_product(node, new)
    new.require(not product.is_left and not product.transposes_data, "the channels are not the last axis of the data")
    axis = -1 if product.transposes_weight else -2
    return Reader(node, product.data, along(node, 1, axis), -1)


def rounded_factors(factors: Array, *, powers_of_two: bool) -> Array:
    """Round factors to float32, or to powers of two; refuse if they hardly differ.

    A channel without a factor (NaN) gets the geometric mean of the others.
    """
    with np.errstate(all="ignore"):
        logs = np.log2(factors)
    live = np.isfinite(logs)
    if not live.any():
        raise Refusal("all channels are zero")
    logs = np.where(live, logs, logs[live].mean())
    if powers_of_two:
        logs = np.rint(logs)
    if np.ptp(logs) < np.log2(EVEN):
        raise Refusal("the channels are already balanced")
    return np.exp2(logs).astype(np.float32).astype(np.float64)


def move(
    factors: Array, taking: Sequence[Operand], giving: Sequence[Operand], values: Sequence[Value], new: Builder
) -> None:
    """Multiply the weights that read a value, and divide the constants that compute it; this changes `values`."""
    for each, by in [*((one, factors) for one in taking), *((one, 1 / factors) for one in giving)]:
        made = new.at(each.node).constant(each.scaled(by), each.value.name)
        new.set_input(each.node, each.position, made)
    for value in values:
        new.changes(value)
