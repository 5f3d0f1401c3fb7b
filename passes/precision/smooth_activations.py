"""Balanced activations: the scale of each channel is moved into the weights that read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from surgery import Builder, Graph, Node, NodeSelector, Parity, Refusal, UsageError, Value, graph_pass

from ._calibration import ChannelStatistics
from ._integers import Array
from ._scale_sources import Source, source_of
from ._scales import Reader, is_live, move, reader_of, rounded_factors
from ._selection import chosen


@dataclass
class Group:
    """The products that read one value along one axis, and the source of the value; None if a Mul is inserted."""

    readers: list[Reader] = field(default_factory=list)
    source: Source | None = None
    refusal: Refusal | None = None

    @property
    def data(self) -> Value:
        """The value that the products read."""
        return self.readers[0].data

    @property
    def axis(self) -> int:
        """The axis of its channels, counted from the end."""
        return self.readers[0].axis


@graph_pass("smooth-activations", parity=Parity.CLOSE)
def smooth_activations(
    graph: Graph,
    *,
    ops: tuple[Literal["MatMul", "Gemm", "FusedMatMul", "Attention", "Conv"], ...] = (
        "MatMul",
        "Gemm",
        "FusedMatMul",
        "Attention",
    ),
    nodes: NodeSelector | None = None,
    exclude: NodeSelector | None = None,
    alpha: float = 0.5,
    insert: bool = False,
    powers_of_two: bool = False,
) -> None:
    """Move the scale of each channel of an activation into the weights that it is multiplied by.

    In transformers, a few channels of an activation are often 10 to 100 times as large as the others. They determine
    the scale of the quantized tensor, and the other channels lose precision. Weights have headroom: dividing channel j
    by s[j] = max|x[j]|^alpha / max|w[j]|^(1 - alpha) and multiplying row j of the weight by it leaves the product as it
    was (SmoothQuant, Xiao et al. 2022). The results change only by rounding; run it before `quantize-dynamic` or
    `quantize-static`, which then lose less.

    The division costs nothing at run time. It is folded into the constants of the operators that compute the
    activation: the scale and bias of a normalization, the weight and bias of a Conv, Gemm or MatMul, a constant that is
    multiplied; also through Relu, LeakyRelu, PRelu, pooling and the addition of a constant. The magnitudes max|x[j]|
    are measured on calibration data. Products that read the same value share one s, and are one site. Constants
    that are stored in float16 and cast to float32 are stored in float32 afterwards.

    Options:
        ops: The operators whose data are smoothed.
        nodes: The nodes whose data are smoothed, all by default.
        exclude: Nodes whose data stay.
        alpha: The share of the range that moves to the weights, from 0 to 1. Larger values make the data easier to
        quantize and the weights harder; 0.5 is good where both are quantized to 8 bits with a scale for each tensor.
        insert: Insert a Mul before the products if no producer can absorb the division, or the activation has other
        consumers. This costs run time.
        powers_of_two: Round s to powers of two, so that results are bit-identical unless numbers become denormal.

    Example:
        # calibration: {x: [[100, 1, 0.5, -2]]}
        g (float[N,4] x) => (float[N,2] y) <float[4] s = {1, 1, 1, 1}, float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
            n = Mul(x, s)
            y = MatMul(n, w)
        }
    """
    if not 0 <= alpha <= 1:
        raise UsageError(f"alpha is {alpha:g}, not from 0 to 1")
    groups = _groups(graph, chosen(graph, ops, nodes, exclude), insert)
    largest = _largest(graph, [group for group in groups.values() if group.refusal is None])
    weights = {
        group.data: np.max([graph.remember(one.weight.key, one.weight.magnitudes) for one in group.readers], axis=0)
        for group in groups.values()
        if group.refusal is None
    }
    for anchor, group in groups.items():
        with graph.site(anchor) as new:
            if group.refusal is not None:
                raise group.refusal
            found = largest[group.data.name]
            new.require(found.count or not found.is_finite, "no calibration input gives an activation a value")
            new.require(found.is_finite, "an activation is infinite or NaN on a calibration input")
            weight = weights[group.data]
            new.require(np.isfinite(weight).all(), "the weight is not finite")
            _smooth(group, rounded_factors(_factors(found.largest, weight, alpha), powers_of_two=powers_of_two), new)


def _groups(graph: Graph, candidates: list[Node], insert: bool) -> dict[Node, Group]:
    """Group the products that read the same value, by the first of them."""
    found: dict[Node, Group] = {}
    by_value: dict[tuple[Value, int], Group] = {}
    idle = Builder(graph, None)
    for node in candidates:
        try:
            if node.scope is not graph.main:
                raise Refusal("a node of a subgraph or a function cannot be calibrated")
            reader = reader_of(node, idle)
        except Refusal as refusal:
            found[node] = Group(refusal=refusal)
            continue
        key = reader.data, reader.axis
        if key not in by_value:
            found[node] = by_value[key] = Group()
        by_value[key].readers.append(reader)
    for group in by_value.values():
        try:
            group.source = source_of(
                group.data, group.readers[0].channels, group.axis, [reader.node for reader in group.readers]
            )
        except Refusal as refusal:
            group.refusal = None if insert else refusal
    return found


def _largest(graph: Graph, groups: list[Group]) -> dict[str, ChannelStatistics]:
    """Measure the largest magnitude in each channel of the activations."""
    axes = {group.data: group.axis for group in groups}

    def measure() -> dict[str, ChannelStatistics]:
        found = {value.name: ChannelStatistics(axis) for value, axis in axes.items()}
        for value, array in graph.recordings(list(axes)):
            found[value.name].add(array)
        return found

    key = tuple((value.name, axis) for value, axis in axes.items())
    return graph.remember(("largest", key), measure) if key else {}


def _factors(data: Array, weight: Array, alpha: float) -> Array:
    """Return the factor of each channel; NaN if the channel or its weights are zero or nearly zero."""
    with np.errstate(all="ignore"):
        factors = data**alpha / weight ** (1 - alpha)
    return np.where(is_live(data, weight), factors, np.nan)


def _smooth(group: Group, factors: Array, new: Builder) -> None:
    weights = [reader.weight for reader in group.readers]
    if group.source is not None:
        move(factors, weights, group.source.operands, group.source.values, new)
        return
    new.require(group.readers[0].node.opset >= 7, "before opset 7 Mul does not broadcast")
    inverse = (1 / factors).astype(np.float32).reshape(-1, *[1] * (-group.axis - 1))
    divided = new.node("Mul", group.data, new.constant(inverse, f"{group.data.name}_smoothing"))
    move(factors, weights, (), (), new)
    for reader in group.readers:
        new.set_input(reader.node, 0, divided)
