"""Convolution, BatchNormalization and activation."""

from typing import Literal

import numpy as np

from surgery import Builder, Graph, Node, Parity, Refusal, graph_pass

from ._shared import fold_batch_norm

ACTIVATIONS = ("Clip", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh")
"""The activations that com.microsoft::FusedConv computes on the CPU (tested with ONNX Runtime 1.31)."""


@graph_pass("fuse-conv-bn-relu", parity=Parity.CLOSE)
def fuse_conv_bn_relu(graph: Graph, *, target: Literal["standard", "onnxruntime"] = "standard") -> None:
    """Fold a BatchNormalization between a convolution and an activation; for ONNX Runtime the activation too.

    Right because in inference BatchNormalization is linear in each channel (see fuse-conv-bn). The standard has
    no convolution with an activation, so the activation stays, unless the model is meant for ONNX Runtime: its
    com.microsoft::FusedConv applies the activation to each element of a Conv in float. That is done for a Conv
    without BatchNormalization as well. The activations are Relu, LeakyRelu, Sigmoid, Tanh, HardSigmoid and Clip
    with constant bounds.

    Options:
        target: "standard" uses only operators of the ONNX standard; "onnxruntime" also makes FusedConv nodes

    Example:
        g (float[N,1,4,4] x) => (float[N,1,4,4] y)
        <float[1,1,1,1] w = {2}, float[1] s = {3}, float[1] shift = {1}, float[1] mean = {0.5}, float[1] var = {2}> {
            c = Conv(x, w)
            n = BatchNormalization(c, s, shift, mean, var)
            y = Relu(n)
        }
    """
    for activation in graph.nodes(*ACTIVATIONS):
        norm = _producer(activation, "BatchNormalization")
        conv = None if norm is None else _producer(norm, "Conv", "ConvTranspose")
        if norm is not None and conv is not None:
            with graph.site(norm) as new:
                _fold(conv, norm, new)
    if target == "standard":
        return
    for activation in graph.nodes(*ACTIVATIONS):
        conv = _producer(activation, "Conv")
        if conv is not None:
            with graph.site(activation) as new:
                _fuse(conv, activation, new)


def _producer(node: Node, *ops: str) -> Node | None:
    value = node.input(0)
    producer = None if value is None else value.producer
    return producer if producer is not None and producer.op in ops else None


def _require_private(conv: Node, reader: Node, new: Builder) -> None:
    """Refuse if the result of the convolution is an output, or is read by other nodes than the reader."""
    new.require(conv.scope is reader.scope, "the chain crosses the boundary of a subgraph")
    new.require(not conv.outputs[0].is_output, "the convolution is a graph output")
    new.require(len(conv.outputs[0].consumers) == 1, "the convolution is read by others")


def _fold(conv: Node, norm: Node, new: Builder) -> None:
    _require_private(conv, norm, new)
    folded = fold_batch_norm(conv, norm)
    old_weight, old_bias = conv.required_input(1), conv.input(2)
    weight = new.constant(folded.weight, old_weight.name)
    bias = new.constant(folded.bias, f"{old_weight.name}_bias" if old_bias is None else old_bias.name)
    fused = new.node(conv.op, conv.input(0), weight, bias, attributes=conv.attributes)
    new.replace(norm.outputs[0], fused)


def _fuse(conv: Node, activation: Node, new: Builder) -> None:
    _require_private(conv, activation, new)
    weight = conv.required_input(1).producer
    dequantized = weight is not None and weight.op == "DequantizeLinear"
    new.require(not dequantized, "ONNX Runtime fuses the operator with the DequantizeLinear of its weight")
    kind = conv.outputs[0].dtype
    if kind is None:
        raise Refusal("the type of the convolution is not known")
    new.require(kind.name == "FLOAT", "FusedConv is computed in float only")
    fused = new.node(
        "com.microsoft::FusedConv",
        *conv.inputs,
        attributes=conv.attributes,
        activation=activation.op,
        activation_params=_parameters(activation, new),
    )
    new.replace(activation.outputs[0], fused)


def _parameters(activation: Node, new: Builder) -> list[float] | None:
    """Return the numbers of an activation in the order that FusedConv expects."""
    match activation.op:
        case "LeakyRelu":
            return [activation.attr("alpha")]
        case "HardSigmoid":
            return [activation.attr("alpha"), activation.attr("beta")]
        case "Clip":
            limit = float(np.finfo(np.float32).max)
            bounds = [_bound(activation, 1, "min", -limit, new), _bound(activation, 2, "max", limit, new)]
            new.require(bounds[0] <= bounds[1], "the bounds of the Clip are reversed")
            return bounds
    return None


def _bound(clip: Node, position: int, name: str, absent: float, new: Builder) -> float:
    """Return a bound of Clip, which is an attribute before opset 11; `absent` if it is missing."""
    if clip.opset < 11:
        return float(clip.attr(name, absent))
    value = clip.input(position)
    if value is None:
        return absent
    new.require(value.scalar is not None, "a bound of the Clip is not constant")
    return float(value.scalar)
