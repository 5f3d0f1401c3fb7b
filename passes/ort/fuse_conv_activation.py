"""Conv, the addend and the activation after it, fused into FusedConv."""

import math
from typing import Literal

from surgery import Builder, Match, Node, Parity, Value, pattern_pass

from ._quantized import require_float

FUSED = "com.microsoft::FusedConv"
PARAMETERS = {"HardSigmoid": ("alpha", "beta"), "LeakyRelu": ("alpha",)}
"""The attributes of activations, in the order of activation_params."""

BLOCKED = ("Conv", FUSED, "MaxPool")
PASSING = ("Add", "Clip", "Relu")
_DEEPEST = 4
"""Maximum number of nodes followed upstream to find a Conv."""

ACTIVATED = """
    c = Conv|com.microsoft::FusedConv(x, w, b?, z?)
    y = HardSigmoid|HardSwish|LeakyRelu|Relu|Sigmoid|Tanh(c)
"""
CLIPPED = """
    c = Conv|com.microsoft::FusedConv(x, w, b?, z?)
    y = Clip(c, low?, high?)
"""
ADDED = """
    c = Conv(x, w, b?)
    y = Add(c, z)
"""


@pattern_pass("fuse-conv-activation", match=(ACTIVATED, CLIPPED, ADDED), parity=Parity.CLOSE)
def fuse_conv_activation(m: Match, new: Builder, *, sums: Literal["fast", "all", "none"] = "fast") -> Value:
    """Turn a Conv, an Add and the activation after it into com.microsoft::FusedConv.

    Right because FusedConv is a Conv whose kernel adds its fourth input and applies the activation, in float: Relu,
    Sigmoid, Tanh, LeakyRelu, HardSigmoid, HardSwish, or Clip with constant bounds, where a missing bound is infinite
    (ONNX Runtime 1.32: bit-identical). The addend must have the shape of the result, because the kernel does not
    broadcast it; the sum is rounded in another order.

    At its default level, ONNX Runtime converts Convs to blocks of channels (NCHWc) on CPUs that benefit. It converts a
    FusedConv like a Conv, but one with a sum only if it has a bias and the other addend is in blocks, too: then
    ResNet-50 and MobileNetV2 become the same graph with or without this pass. A FusedConv that is not in blocks is
    slower (3 x 3, 64 channels, 56 x 56: 7.6 ms, with blocks 6.7 ms). So an Add is fused if its other addend comes from
    a Conv or a MaxPool, directly or through another sum or activation. A Conv of a dequantized weight stays, because
    ONNX Runtime computes it in integers.

    Options:
        sums: The Adds to fuse: those that cost no speed ("fast"), "all" or "none".

    Example:
        # target: ort-cpu
        g (float[N,1,4,4] x) => (float[N,1,3,3] y) <float[1,1,2,2] w = {1, 2, 3, 4}> {
            c = Conv(x, w)
            y = Relu(c)
        }
    """
    conv, last = m.node("c"), m.root
    new.require_operator(FUSED, m.w)
    separate = new.target.prefers.get("conv_activation") == "separate"
    m.require(not separate, "the target prefers separate nodes for the Conv and the activation")
    require_float(m.w)
    m.require(last.opset >= 7, "before opset 7 activations and Add have other attributes")
    m.require(conv.op == "Conv" or conv.attr("activation") is None, "the FusedConv has an activation")
    if last.op == "Add":
        _require_sum(m, sums)
    attributes = {**conv.attributes, **({} if last.op == "Add" else _activation(last, m))}
    return new.node(FUSED, m.x, m.w, m.b, m.z, attributes=attributes)


def _activation(node: Node, m: Match) -> dict[str, object]:
    """Return the attributes of FusedConv for an activation."""
    if node.op == "Clip":
        bounds = node.bounds
        m.require(bounds is not None and not any(map(math.isnan, bounds)), "a bound is not constant")
        return {"activation": "Clip", "activation_params": list(bounds or ())}
    given = [float(node.attr(name)) for name in PARAMETERS.get(node.op, ())]
    return {"activation": node.op, **({"activation_params": given} if given else {})}


def _require_sum(m: Match, sums: str) -> None:
    m.require(sums != "none", "the option 'sums' keeps sums")
    dims = m.z.shape
    m.require(dims is not None and None not in dims and dims == m.c.shape, "the sum may be broadcast")
    m.require(sums == "all" or m.b is not None, "a sum without a bias is not computed in blocks of channels")
    m.require(sums == "all" or _is_blocked(m.z), "the addend is not in blocks of channels")


def _is_blocked(value: Value) -> bool:
    """Return whether ONNX Runtime may store a value in blocks of channels, as results of a Conv or a MaxPool."""
    for _ in range(_DEEPEST):
        producer = value.producer
        if producer is None or producer.op not in (*BLOCKED, *PASSING):
            return False
        if producer.op in BLOCKED:
            return True
        value = producer.required_input(0)
    return False
