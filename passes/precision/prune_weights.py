"""Weights of small magnitude, set to zero or removed."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from surgery import Builder, Graph, Node, NodeSelector, Parity, Size, UsageError, Value, graph_pass

from ._channels import Followed, Place, zeroed
from ._products import read_product
from ._selection import chosen
from ._sparsity import least, two_of_four, weakest
from ._stored_weights import elements, is_own, put, stored


@dataclass(frozen=True)
class Layer:
    """A node with a weight: the axis of its output channels, the axis that is summed, and the place of the channels.

    `place` is None if the channels are the rows of the result, where no later layer can be shrunk.
    """

    node: Node
    position: int
    weight: Value
    channels: int
    depth: int
    place: Place | None

    @property
    def bias(self) -> Value | None:
        """The bias that the node itself adds to each channel."""
        return self.node.input(2) if self.node.op in ("Conv", "Gemm") else None


@graph_pass("prune-weights", parity=Parity.LOSSY)
def prune_weights(
    graph: Graph,
    *,
    sparsity: float = 0.5,
    pattern: Literal["unstructured", "2:4", "channels"] = "unstructured",
    ops: tuple[Literal["Conv", "MatMul", "Gemm", "FusedMatMul"], ...] = ("Conv", "MatMul", "Gemm", "FusedMatMul"),
    nodes: NodeSelector | None = None,
    exclude: NodeSelector | None = None,
    min_size: Size = 4096,
) -> None:
    """Set the weights of smallest magnitude to zero, or remove whole channels of layers.

    Zeros make a file compress better, and help runtimes with sparse kernels: GPUs since Ampere compute `2:4`, two zeros
    in each four weights of a sum, at twice the rate. ONNX Runtime on a CPU is as fast as before; only `channels`, which
    makes the layers smaller, is faster.

    The channels with the smallest sums of squares are removed from the layer that computes them and from all nodes that
    read them: elementwise operators, BatchNormalization, pooling, depthwise convolutions, up to the Conv, MatMul or
    Gemm that sums over them. If another operator reads a channel, such as the Add of a residual connection, or the
    caller does, its weights and its bias become zero instead.

    A weight that is stored in float16 and cast to float32 stays in float16.

    Nothing is trained: above a sparsity of about 0.2, most models need fine-tuning afterwards. Set a budget.

    Options:
        sparsity: The share of each weight, or of its channels, to prune; 0.5 for 2:4.
        pattern: Single weights, two of four along the summed axis, or output channels.
        ops: The operators whose weights are pruned.
        nodes: The nodes whose weights are pruned, all by default.
        exclude: Nodes that keep their weights.
        min_size: The bytes of the smallest weight to prune.

    Example:
        # options: {min_size: 0}
        g (float[N,2] x) => (float[N,2] y) <float[2,2] w = {0.1, 2, -3, 0.2}> { y = MatMul(x, w) }
    """
    if not 0 < sparsity < 1:
        raise UsageError(f"a sparsity of {sparsity:g} is not between 0 and 1")
    if pattern == "2:4" and sparsity != 0.5:
        raise UsageError("two of four weights are a sparsity of 0.5", todo="omit the sparsity")
    for node in chosen(graph, ops, nodes, exclude):
        with graph.site(node) as new:
            layer = _layer(node, new)
            tensor = stored(layer.weight)[0].tensor
            new.require(
                tensor is not None and tensor.dtype.is_floating_point(), "the weight is not a constant of floats"
            )
            new.require(is_own(layer.weight), "the weight is read elsewhere too")
            new.require(tensor is not None and tensor.nbytes >= min_size, "the weight is smaller than min_size")
            if pattern == "channels":
                _prune_channels(layer, sparsity, new)
            else:
                _prune_elements(layer, sparsity, pattern, new)


def _layer(node: Node, new: Builder) -> Layer:
    if node.op == "Conv":
        weight = node.required_input(1)
        return Layer(node, 1, weight, 0, 1, Place(1 - (weight.rank or 0), weight.rank))
    product = read_product(node, new)
    axis, rank = product.channel_axis, 2 if node.op == "Gemm" else product.data.rank
    place = None if product.is_left else Place(-1, rank)
    return Layer(node, int(not product.is_left), product.weight, axis, -3 - axis, place)


def _prune_elements(layer: Layer, sparsity: float, pattern: str, new: Builder) -> None:
    array = elements(layer.weight)
    if pattern == "2:4":
        new.require(array.ndim and array.shape[layer.depth] >= 4, "fewer than four weights are summed up")
        pruned = two_of_four(array, layer.depth)
    else:
        pruned = least(array, sparsity)
    new.require(not np.array_equal(pruned, array), "the weight already has that many zeros")
    put(layer.node, layer.position, pruned, f"{stored(layer.weight)[0].name}_pruned", new)


def _prune_channels(layer: Layer, sparsity: float, new: Builder) -> None:
    node, array, bias = layer.node, elements(layer.weight), layer.bias
    new.require(node.op == "Conv" or array.ndim == 2, "the weight is a batch of matrices")
    gone = weakest(array, layer.channels, sparsity)
    new.require(gone.size, "the share is less than one channel")
    channels = array.shape[layer.channels]
    own = bias is not None and is_own(bias) and (bias.static_shape or (0,))[-1] == channels
    removal = None
    if (bias is None or own) and layer.place is not None and node.attr("group", 1) == 1:
        removal = Followed(node, channels).removal_from(layer.place)
    if removal is not None:
        removal.constants.append((node, layer.position, layer.channels % array.ndim))
        if bias is not None:
            removal.constants.append((node, 2, (bias.rank or 1) - 1))
        removal.apply(np.setdiff1d(np.arange(channels), gone), new)
        return
    made = [(layer.position, layer.weight, zeroed(array, gone, layer.channels))]
    if bias is not None and own:
        made.append((2, bias, zeroed(elements(bias), gone, -1)))
    changed = [not np.array_equal(zeros, elements(value)) for _, value, zeros in made]
    new.require(any(changed), "the channels are already zero")
    for position, value, zeros in made:
        put(node, position, zeros, f"{stored(value)[0].name}_pruned", new)
