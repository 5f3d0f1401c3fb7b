"""Biases corrected for the shift of channel means that a narrower precision causes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surgery import Builder, FilePath, Graph, Node, NodeSelector, Other, Parity, Refusal, Value, graph_pass

from ._calibration import ChannelStatistics
from ._channel_means import LAYERS, LinearMeans, addend_of, channels_of, read_layer, require_vector
from ._integers import Array
from ._pairs import DEQUANTIZE
from ._selection import selection

BIASES = {
    "Conv": 2,
    "Gemm": 2,
    "com.microsoft::DynamicQuantizeMatMul": 4,
    "com.microsoft::MatMulIntegerToFloat": 6,
    "com.microsoft::MatMulNBits": 5,
}
"""Operators that add a bias themselves, and the position of the bias."""

NOTICED = 1e-5
"""The shift of a mean, relative to the largest magnitude of its channel, below which it is ignored."""


@dataclass(frozen=True)
class Found:
    """A layer: the node that adds the bias, the position of the bias, and the data from which its means follow."""

    node: Node
    position: int
    channels: int
    means: LinearMeans
    data: Value

    @property
    def result(self) -> Value:
        """The result of the layer, including the bias."""
        return self.node.outputs[0]


@graph_pass("correct-bias", parity=Parity.LOSSY)
def correct_bias(
    graph: Graph, *, reference: FilePath, nodes: NodeSelector | None = None, exclude: NodeSelector | None = None
) -> None:
    """Adjust biases so that the channels of each Conv and product have the same means as with float weights.

    The errors that rounding or pruning of weights, and rounding of activations, cause in a sum of many products have a
    nonzero mean, and later layers add up such shifts (Nagel et al. 2019, Data-Free Quantization Through Weight
    Equalization and Bias Correction). For each layer, the mean of its result and the mean of its data are measured on
    calibration data. With the weights of the reference, the latter gives the expected mean, including the borders of a
    Conv. The difference is subtracted from the bias, for each layer separately, so that shifts before it are not
    corrected twice.

    A layer is found by the name of its result, which passes and most other tools keep when they quantize it; the
    reference must be the model that was quantized, such as the output of `default`. An int32 bias with a scale keeps
    its form. No bias is added where the model has none, unless the operator has an input for it.

    `quantize-static` does this for the weights that it rounds, with `correct_bias`. This pass is for the rest:
    activations, and models produced by `quantize-dynamic`, `quantize-weights`, `prune-weights` or another tool.

    Options:
        reference: The float model, an .onnx file.
        nodes: The nodes to correct, all by default.
        exclude: Nodes that keep their biases.
    """
    other = Other.read(graph, reference).graph
    is_chosen = selection(graph, nodes, exclude)
    values = {value.name: value for value in graph.values() if value.scope is graph.main}
    found: dict[Node, Found | Refusal] = {}
    for layer in (node for node in other.nodes(*LAYERS) if node.scope is other.main):
        after, addend = addend_of(layer) or (layer, None)
        result = values.get(after.outputs[0].name)
        node = None if result is None else result.producer
        if node is None or not is_chosen(node):
            continue
        try:
            found[node] = _read(node, layer, addend, values)
        except Refusal as refusal:
            found[node] = refusal
    shifts = _shifts(graph, [one for one in found.values() if isinstance(one, Found)])
    for node, one in found.items():
        with graph.site(node) as new:
            if isinstance(one, Refusal):
                raise one
            shift = shifts[node.outputs[0].name]
            new.require(shift is not None, "the means are not finite, or nothing was recorded")
            assert shift is not None
            new.require(shift.any(), "the means already match the reference")
            _correct(one, shift, new)


def _read(node: Node, layer: Node, addend: Value | None, values: dict[str, Value]) -> Found:
    """Return the node that adds the bias of a layer, the means expected for it, and its data; or refuse."""
    if node.outputs[0].dtype not in (None, layer.required_input(1).dtype):
        raise Refusal("the result and the reference have different types")
    means = read_layer(layer, addend)
    data = values.get(layer.required_input(0).name)
    if data is None and node.op == layer.op:
        data = node.required_input(0)  # the activation before it has become part of the clipped range
    if data is None:
        raise Refusal("the data of the reference are not in the model")
    position = _position(node)
    bias = node.input(position)
    if bias is not None:
        _held(bias, channels_of(layer))
    return Found(node, position, channels_of(layer), means, data)


def _position(node: Node) -> int:
    """Return the position of the bias, which may be missing, among the operands of a node."""
    if node.op == "Gemm" and node.input(2) is not None and node.attr("beta", 1.0) != 1.0:
        raise Refusal("beta of the Gemm is not 1")
    if node.op in BIASES:
        return BIASES[node.op]
    constants = [position for position, value in enumerate(node.inputs) if value is not None and value.is_constant]
    if node.op != "Add" or not constants:
        raise Refusal("no bias is added to the result")
    return constants[0]


def _held(bias: Value, channels: int) -> tuple[Value, Node | None]:
    """Return the constant of a bias and the node that dequantizes it; refuse unless it has one number per channel."""
    producer = bias.producer
    dequantize = producer if producer is not None and producer.op in DEQUANTIZE else None
    held = bias if dequantize is None else dequantize.required_input(0)
    if not held.is_constant or (dequantize is not None and not dequantize.required_input(1).is_constant):
        raise Refusal("the bias is computed")
    require_vector(held, channels, "the bias is not one number for each channel")
    if dequantize is not None and held.size != channels:
        raise Refusal("the bias is not one number for each channel")
    return held, dequantize


def _shifts(graph: Graph, found: list[Found]) -> dict[str, Array | None]:
    """Return the shifts of the means of each layer's result; None if they are not known."""
    names = tuple(one.result.name for one in found)
    return graph.remember(("shifts", names), lambda: _measured(graph, found)) if found else {}


def _measured(graph: Graph, found: list[Found]) -> dict[str, Array | None]:
    read: dict[Value, list[LinearMeans]] = {}
    for one in found:
        read.setdefault(one.data, []).append(one.means)
    results = {one.result: (one.means, ChannelStatistics(one.means.axis)) for one in found}
    for value, array in graph.recordings([*read, *results]):
        for means in read.get(value, ()):
            means.add(array)
        if value in results:
            results[value][1].add(array)
    return {value.name: _shift(*pair) for value, pair in results.items()}


def _shift(means: LinearMeans, result: ChannelStatistics) -> Array | None:
    """Return the shift of the mean of each channel, 0 where it is negligible; None if it is not known."""
    if not (means.count and result.count == means.count and result.is_finite and np.isfinite(means.sums).all()):
        return None
    shift = result.means - means.means()
    return np.where(np.abs(shift) > NOTICED * result.largest, shift, 0.0)


def _correct(found: Found, shift: Array, new: Builder) -> None:
    """Subtract a shift from a bias."""
    node, position = found.node, found.position
    bias = node.input(position)
    if bias is None:
        kind = node.outputs[0].dtype
        assert kind is not None
        new.set_input(node, position, new.constant((-shift).astype(kind.numpy()), f"{node.outputs[0].name}_bias"))
        return
    held, dequantize = _held(bias, found.channels)
    assert held.constant is not None
    if dequantize is None:
        made = (held.constant.astype(np.float64) - shift).astype(held.constant.dtype).reshape(-1)
        new.set_input(node, position, new.constant(made, held.name))
        return
    scale = dequantize.required_input(1).constant
    assert scale is not None
    limits = np.iinfo(held.constant.dtype)
    steps = np.rint(shift / scale.astype(np.float64)).reshape(held.constant.shape)
    new.require(steps.any(), "the means already match the reference")
    integers = np.clip(held.constant.astype(np.float64) - steps, limits.min, limits.max).astype(held.constant.dtype)
    operands = [new.constant(integers, held.name), *dequantize.inputs[1:]]
    new.set_input(node, position, new.node(dequantize.op, *operands, attributes=dequantize.attributes))
