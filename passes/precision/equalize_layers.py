"""Balanced weights: the scale of each channel is moved between a layer and the next one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surgery import Builder, Graph, Node, NodeSelector, Parity, Refusal, Value, graph_pass

from ._integers import Array, extent
from ._scale_sources import LAYERS, Source, source_of
from ._scales import Reader, groups_of, is_live, move, reader_of, rounded_factors
from ._selection import chosen
from ._stored_weights import elements

SWEEPS = 100
"""Maximum number of sweeps, each of which balances all pairs of layers of a chain in turn."""

SETTLED = 1e-4
"""The change of a factor, as a base-2 logarithm, below which a chain is balanced."""


@dataclass(frozen=True)
class Pair:
    """A layer, and the layers that read its result."""

    source: Source
    readers: tuple[Reader, ...]

    @property
    def layer(self) -> Node:
        """The layer that computes the channels."""
        assert self.source.layer is not None
        return self.source.layer

    @property
    def key(self) -> tuple[object, ...]:
        """The key under which its factors are remembered, together with those of the other pairs of its chain."""
        return self.layer.outputs[0].name, *(reader.weight.key for reader in self.readers)

    @cached_property
    def layers(self) -> tuple[Node, ...]:
        """All layers whose weights change."""
        return self.layer, *(reader.node for reader in self.readers)


@graph_pass("equalize-layers", parity=Parity.CLOSE)
def equalize_layers(
    graph: Graph,
    *,
    nodes: NodeSelector | None = None,
    exclude: NodeSelector | None = None,
    powers_of_two: bool = False,
) -> None:
    """Rescale the channels between two layers so that the weights of both have balanced ranges.

    Between a Conv, ConvTranspose, Gemm or MatMul and the layers that read its result, directly or through Identity,
    Relu, LeakyRelu, PRelu or pooling, each channel can be divided by any s > 0 in the first layer and multiplied by s
    in the second. With s = sqrt(r1 / r2), where r1 and r2 are the largest weights of the channel in both, the ranges
    are equal (Nagel et al. 2019, Data-Free Quantization Through Weight Equalization and Bias Correction). Along a chain
    of layers, this is repeated until all are balanced. The results change only by rounding.

    Needs no data. Weights with one scale for the whole tensor lose much less afterwards, especially those of depthwise
    convolutions, whose channels differ by orders of magnitude. With a scale for each channel there is little to gain. A
    Clip at 6 blocks the rescaling: in networks with ReLU6, only layers without an activation between them are balanced.
    Weights that are stored in float16 and cast to float32 are stored in float32 afterwards.

    Options:
        nodes: The layers that read the channels, all by default.
        exclude: Layers that read channels and keep their weights.
        powers_of_two: Round s to powers of two, so that results are bit-identical unless numbers become denormal.

    Example:
        g (float[N,2] x) => (float[N,1] y) <float[2,2] w = {100, 1, 50, 2}, float[2,1] v = {0.1, 5}> {
            a = MatMul(x, w)
            r = Relu(a)
            y = MatMul(r, v)
        }
    """
    found = _pairs(chosen(graph, sorted(LAYERS), nodes, exclude), Builder(graph, None))
    pairs = [pair for pair in found.values() if isinstance(pair, Pair)]
    factors: dict[Node, Array | Refusal] = {}
    for chain in _chains(pairs):
        factors |= _factors(graph, chain)
    for anchor, pair in found.items():
        with graph.site(anchor) as new:
            if isinstance(pair, Refusal):
                raise pair
            made = factors[pair.layer]
            if isinstance(made, Refusal):
                raise made
            source = pair.source
            move(
                rounded_factors(made, powers_of_two=powers_of_two),
                [reader.weight for reader in pair.readers],
                source.operands,
                source.values,
                new,
            )


def _pairs(candidates: Iterable[Node], idle: Builder) -> dict[Node, Pair | Refusal]:
    """Return the pairs to balance, or the refusals, by the first layer that reads the channels."""
    found: dict[Node, Pair | Refusal] = {}
    groups: dict[tuple[Value, int], list[Reader]] = {}
    for node in candidates:
        try:
            reader = reader_of(node, idle)
        except Refusal as refusal:
            found[node] = refusal
            continue
        groups.setdefault((reader.data, reader.axis), []).append(reader)
        found.setdefault(groups[reader.data, reader.axis][0].node, Refusal(""))
    for (data, axis), readers in groups.items():
        try:
            source = source_of(data, readers[0].channels, axis, [reader.node for reader in readers])
            if source.layer is None:
                raise Refusal("no layer with weights computes the activation")
            _require_matrices([source.layer, *(reader.node for reader in readers)])
        except Refusal as refusal:
            found[readers[0].node] = refusal
        else:
            found[readers[0].node] = Pair(source, tuple(readers))
    return found


def _require_matrices(layers: Iterable[Node]) -> None:
    if any(layer.op.endswith(("Gemm", "MatMul")) and layer.required_input(1).rank != 2 for layer in layers):
        raise Refusal("the weight is a batch of matrices")


def _chains(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Group the pairs so that groups have no layer in common."""
    chains: list[tuple[set[Node], list[Pair]]] = []
    for pair in pairs:
        apart: list[tuple[set[Node], list[Pair]]] = []
        layers, members = set(pair.layers), [pair]
        for other, inside in chains:
            if other.isdisjoint(pair.layers):
                apart.append((other, inside))
            else:
                layers |= other
                members = [*inside, *members]
        chains = [*apart, (layers, members)]
    return [members for _, members in chains]


def _factors(graph: Graph, chain: list[Pair]) -> dict[Node, Array | Refusal]:
    """Return the factors of each pair of a chain, by its first layer; NaN for channels that are zero in a layer."""

    def settle() -> list[Array | None]:
        layers = dict.fromkeys(layer for pair in chain for layer in pair.layers)
        sizes = {layer: _magnitudes(layer) for layer in layers}
        if not all(np.isfinite(size).all() for size in sizes.values()):
            return [None for _ in chain]
        return list(_settled(chain, sizes))

    made = graph.remember(tuple(pair.key for pair in chain), settle)
    refusal = Refusal("a weight of the chain of layers is not finite")
    return {pair.layer: refusal if one is None else one for pair, one in zip(chain, made)}


def _settled(chain: list[Pair], sizes: dict[Node, Array]) -> list[Array]:
    """Balance the pairs of a chain in turn until nothing changes; this scales the magnitudes in `sizes`."""
    logs = [np.zeros(reader.channels) for reader, *_ in (pair.readers for pair in chain)]
    for _ in range(SWEEPS if len(chain) > 1 else 1):
        changes = 0.0
        for total, pair in zip(logs, chain):
            made, read = _outputs(sizes[pair.layer]), np.zeros(len(total))
            for reader in pair.readers:
                read = np.maximum(read, _inputs(sizes[reader.node]))
            with np.errstate(all="ignore"):
                step = np.log2(made / read) / 2
            live = is_live(made, read)
            step, total[~live] = np.where(live, step, 0.0), np.nan
            total += step
            _scale(sizes, pair, np.exp2(step))
            changes = max(changes, float(np.ptp(step[live])) if live.any() else 0.0)
        if changes < SETTLED:
            break
    return [np.exp2(total) for total in logs]


def _magnitudes(layer: Node) -> Array:
    """Return the largest magnitude of the weights for each pair of channels of a layer: [groups, outputs, inputs]."""
    weight = elements(layer.required_input(1))
    if layer.op in ("Conv", "ConvTranspose"):
        group, outer, inner, kernel = groups_of(layer)
        low, high = extent(weight.reshape(group * outer, inner, kernel), (0, 1))
        size = np.maximum(-low, high).reshape(group, outer, inner)
        return size if layer.op == "Conv" else size.swapaxes(1, 2)
    return np.asarray(np.abs(weight if layer.attr("transB", 0) else weight.T))[np.newaxis]


def _outputs(size: Array) -> Array:
    return np.asarray(size.max(axis=2), np.float64).reshape(-1)


def _inputs(size: Array) -> Array:
    return np.asarray(size.max(axis=1), np.float64).reshape(-1)


def _scale(sizes: dict[Node, Array], pair: Pair, factors: Array) -> None:
    """Scale the magnitudes of a pair of layers as their weights will be scaled."""
    size = sizes[pair.layer]
    sizes[pair.layer] = size / factors.reshape(size.shape[0], size.shape[1], 1)
    for reader in pair.readers:
        size = sizes[reader.node]
        sizes[reader.node] = size * factors.reshape(size.shape[0], 1, size.shape[2])
