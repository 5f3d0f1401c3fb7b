"""8-bit weights, and data quantized at run time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from surgery import Builder, Graph, Node, Value, data_type, literal_tensor

from ._integers import Array, IntegerType, fit, of_weights
from ._sharing import Shared
from ._stored_weights import untransposed

Layout = Literal["matrix", "channels", "pointwise", "rows", "gates"]
"""The tensor that scales are broadcast to: a matrix product, the result of a Conv, the result of a pointwise Conv as a
matrix product (its weight becomes a matrix), gathered rows, or the gates of a recurrent layer in each direction."""


@dataclass(frozen=True)
class Scheme:
    """How weights are quantized: int8 around 0, or uint8 with zero points.

    `unsigned` is the integer type for weights that have to be uint8.
    """

    kind: IntegerType
    unsigned: IntegerType
    per_channel: bool

    @staticmethod
    def of(weight_type: str, reduce_range: bool | None, *, per_channel: bool) -> Scheme:
        """Return a scheme for the products of a model, with data of uint8."""
        kind, unsigned = (of_weights(name, "uint8", reduce_range) for name in (weight_type, "uint8"))
        return Scheme(kind, unsigned, per_channel)


@dataclass(frozen=True)
class Quantized:
    """A quantized weight: integers, scales, and zero points if they are not 0."""

    integers: Value
    scale: Value
    zero_point: Value | None = None


class Dynamic:
    """Creates the values that sites of one run share: quantized data, and weights with several readers."""

    def __init__(self, graph: Graph, scheme: Scheme) -> None:
        self.graph = graph
        self.scheme = scheme
        self._shared = Shared()

    def data(self, node: Node, value: Value, new: Builder) -> tuple[Value, Value, Value]:
        """Return the uint8 form of a computed value, its scale and its zero point."""
        made = self._shared.get(node, (value, "data"), lambda: new.nodes("DynamicQuantizeLinear", value, outputs=3))
        return made[0], made[1], made[2]

    def weight(
        self,
        node: Node,
        weight: Value,
        axes: tuple[int, ...],
        new: Builder,
        *,
        transposed: bool = False,
        factor: float = 1.0,
        kind: IntegerType | None = None,
        symmetric: bool | None = None,
        layout: Layout = "matrix",
    ) -> Quantized:
        """Return a weight with a scale for each index of the axes, in the layout that the integer operator reads.

        `transposed` swaps the last two axes; scales are multiplied by `factor`. The weight may be stored in float16 and
        cast to float32.
        """
        weight = untransposed(weight)
        kind = kind or self.scheme.kind
        symmetric = kind.low < 0 if symmetric is None else symmetric
        axes = axes if self.scheme.per_channel else ()
        key = (weight, axes, transposed, factor, kind, symmetric, layout)

        def make() -> tuple[Value, ...]:
            tensors = self._remembered(weight, key[1:], node)
            names = ("quantized", "scale", "zero_point")
            return tuple(new.constant(one, f"{weight.name}_{name}") for one, name in zip(tensors, names))

        return Quantized(*self._shared.get(node, key, make))

    def _remembered(self, weight: Value, how: tuple[Any, ...], node: Node) -> tuple[Any, ...]:
        """Return the tensors of a quantized weight, computed once for all runs on the committed model."""
        tensors: tuple[Any, ...]
        if weight.scope is self.graph.main:
            tensors = self.graph.remember((weight.name, *how), lambda: _tensors(weight, *how))
        else:
            # Subgraphs may use the same name for a different value.
            tensors = _tensors(weight, *how)
        return tensors


def _tensors(
    weight: Value,
    axes: tuple[int, ...],
    transposed: bool,
    factor: float,
    kind: IntegerType,
    symmetric: bool,
    layout: Layout,
) -> tuple[Any, ...]:
    array = weight.constant
    assert array is not None
    # A weight that is stored in a narrower type is cast before use.
    array = array.astype(np.float32, copy=False)
    affine = fit(array, kind, axes, symmetric=symmetric)
    integers = affine.quantize(array)
    directions = (len(array), *affine.scale.shape[1:]) if layout == "gates" else affine.scale.shape
    statistics = [np.broadcast_to(each, directions) for each in (affine.scale * factor, affine.zero_point)]
    scale, zero_point = (_form(each, axes, transposed, layout) for each in statistics)
    if layout == "pointwise":
        integers = np.ascontiguousarray(integers.reshape(integers.shape[:2]).T)
    elif transposed:
        integers = np.ascontiguousarray(np.swapaxes(integers, -1, -2))
    tensors = [_tensor(integers, kind.name), _tensor(scale.astype(np.float32), "float")]
    if layout == "gates":
        return (*tensors, _tensor(np.full(scale.shape, kind.middle, kind.dtype), kind.name))
    if symmetric and kind.middle:
        zero_point = np.array(kind.middle)
    if not symmetric or kind.middle:
        tensors.append(_tensor(zero_point.astype(kind.dtype), kind.name))
    return tuple(tensors)


def _form(statistics: Array, axes: tuple[int, ...], transposed: bool, layout: Layout) -> Array:
    """Return scales or zero points in the shape that broadcasts to the result computed from the integers."""
    if layout == "gates":
        return statistics.reshape(len(statistics), -1) if axes else statistics.reshape(-1)
    if not axes:
        return statistics.reshape(())
    if layout == "pointwise":
        return statistics.reshape(-1)
    if layout == "channels":
        return statistics.reshape(-1, *[1] * (statistics.ndim - 2))
    if transposed:
        statistics = np.swapaxes(statistics, -1, -2)
    # Runtimes fuse a vector of scales with one element for each column.
    is_vector = layout == "matrix" and statistics.size == statistics.shape[-1]
    return statistics.reshape(-1) if is_vector else statistics


def _tensor(array: Array, name: str) -> Any:
    return literal_tensor(array, data_type(name))
