"""Operators computed in integers, with activation ranges measured on calibration data."""

from typing import Literal

import numpy as np

from surgery import Graph, Node, NodeSelector, Parity, Refusal, Size, UsageError, graph_pass

from ._calibration import Method
from ._dequantizing import dequantizes, needs_zeros
from ._integers import integer_type, of_weights
from ._pairs import STANDARD
from ._selection import chosen, refuse_fused
from ._static import Quantizer, Scheme
from ._units import OPERATORS, Operator, Unit, connected, read

DRAWN_MARGIN = 1.1
"""The margin for ranges that are measured on drawn inputs; it costs 0.8 dB of the signal-to-noise ratio."""


@graph_pass("quantize-static", parity=Parity.LOSSY)
def quantize_static(
    graph: Graph,
    *,
    ops: tuple[Operator, ...] = OPERATORS,
    nodes: NodeSelector | None = None,
    exclude: NodeSelector | None = None,
    activation_type: Literal["uint8", "int8", "uint16", "int16"] | None = None,
    weight_type: Literal["int8", "uint8"] = "int8",
    per_channel: bool = True,
    symmetric: bool | None = None,
    reduce_range: bool | None = None,
    method: Method = "minmax",
    percentile: float = 99.999,
    margin: float | None = None,
    correct_bias: bool = True,
    min_size: Size = 0,
) -> None:
    """Insert QuantizeLinear and DequantizeLinear around operators, so that a runtime computes them in integers.

    The ranges of activations are measured on calibration data, so run time only needs rounding. ONNX Runtime turns a
    Conv, a Gemm or a MatMul between such pairs into one kernel on integers, and also Add, Mul, Concat, pooling and
    other operators between them; these are quantized only if all their neighbors are, and a Conv with hardly any
    products only if one is. HardSigmoid and HardSwish, for which it has no such kernel, become an Add, clipped by the
    range of its result, and a Mul. On a CPU with VNNI a convolutional network is about three times as fast as in
    float32.

    A Relu or a Clip after an operator goes into the range of its result. Operators that only move elements, such as
    MaxPool, Reshape, Transpose or Split, propagate integers with their scale. The result of a matrix product stays in
    float32 unless something quantized reads it. Weights and biases may be stored in float16 and cast to float32. Biases
    become int32. Each operator is a site and adds only missing pairs, so any of them can stay in float32;
    `drop-needless-qdq` then removes pairs that no operator needs.

    Options:
        ops: The operators to quantize.
        nodes: The nodes to quantize, all by default.
        exclude: Nodes that stay in float32.
        activation_type: The type of activations, by default uint8, which is the fastest with int8 weights on x86, or
            int8 where the target has no uint8. 16 bits, for accuracy (a16w8), need opset 21; before it they are written
            with operators of com.microsoft, if the target has them. ONNX Runtime computes them in float32.
        weight_type: The type of weights, which are symmetric around their zero point.
        per_channel: One scale per output channel instead of one per weight; not slower.
        symmetric: Place the zero point of activations in the middle of the range. A Relu then stays. By default, this
            is done where the target needs zero points of 0, as TensorRT does.
        reduce_range: Use 7 bits of the weights, because on x86 CPUs without VNNI sums of two products of uint8 and int8
            saturate at 16 bits. By default the installed ONNX Runtime is tested, and if it saturates, scales are as
            large as neighboring weights need: this loses less, but the result suits such CPUs only if it is created on
            one.
        method: How the range of an activation is chosen. `mse` minimizes the mean squared error of rounding and
            clipping, `minmax` covers all recorded values, `moving` averages the extents over sets of inputs,
            `percentile` cuts off the same share at both ends, `entropy` keeps most of the information.
        percentile: The share of the elements, in percent, that the method `percentile` covers.
        margin: The factor by which the ranges of activations are wider than measured: other inputs may exceed them. By
            default 1.1 if the calibration inputs are drawn, because none are given, and 1 for given ones.
        correct_bias: Correct biases for the change of the channel means that rounding the weights causes.
        min_size: The bytes of the smallest weight to quantize, in float32.

    Example:
        # calibration: {x: [[-1, 0, 0.5, 2]]}
        # options: {reduce_range: true}
        g (float[N,4] x) => (float[N,2] y) <float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}> { y = MatMul(x, w) }
    """
    if margin is not None and margin < 1.0:
        raise UsageError("the margin is below 1", todo="give 1 to cover what was measured, or more")
    type_name = activation_type or ("uint8" if dequantizes(graph, "uint8") else "int8")
    kind = integer_type(type_name)
    found = {node: _read(graph, node, type_name, min_size) for node in chosen(graph, ops, nodes, exclude)}
    units = {node: unit for node, unit in found.items() if isinstance(unit, Unit)}
    kept = connected(units)
    scheme = Scheme(
        kind,
        of_weights(weight_type, type_name, reduce_range),
        per_channel,
        needs_zeros(graph) if symmetric is None else symmetric,
        method,
        percentile,
        correct_bias,
        margin if margin is not None else DRAWN_MARGIN if graph.is_calibration_drawn else 1.0,
        dequantizes(graph, "int32"),
    )
    quantizer = Quantizer(graph, scheme, [unit for node, unit in units.items() if node in kept])
    for node, unit in found.items():
        with graph.site(node) as new:
            if isinstance(unit, Refusal):
                raise unit
            useful = node in kept
            new.require(useful or not unit.is_small, "converting its data and result takes longer than its products")
            new.require(useful, "its producer or consumer does not compute in integers")
            quantizer.quantize(unit, new)
    refuse_fused(graph, "FusedConv", "FusedGemm", "FusedMatMul")


def _require_type(graph: Graph, kind: str) -> None:
    """Refuse activations of 16 bits that the target cannot hold."""
    if graph.target.name == "standard" or STANDARD[kind] == STANDARD["uint8"]:
        return
    domain = "" if graph.opset >= STANDARD[kind] else "com.microsoft"
    if domain and not graph.target.has("com.microsoft::DequantizeLinear"):
        raise Refusal("16-bit activations need opset 21, as the target has no com.microsoft::DequantizeLinear")
    if not dequantizes(graph, kind, domain):
        raise Refusal("the target has no DequantizeLinear of 16 bits")


def _read(graph: Graph, node: Node, activation_type: str, min_size: int) -> Unit | Refusal:
    """Return how a node is quantized, or the refusal."""
    try:
        if node.scope is not graph.main:
            raise Refusal("a node of a subgraph or a function cannot be calibrated")
        if graph.opset < 10:
            raise Refusal("before opset 10 there is no QuantizeLinear")
        _require_type(graph, activation_type)
        unit = read(node)
    except Refusal as refusal:
        return refusal
    weight = None if unit.weight is None else node.required_input(unit.weight)
    small = weight is not None and (weight.size or 0) * np.dtype(np.float32).itemsize < min_size
    return Refusal("the weight is smaller than min_size") if small else unit
