"""Products with 8-bit weights and data quantized at run time."""

from typing import Literal

import numpy as np

from surgery import Builder, Graph, Node, NodeSelector, Parity, Size, Value, data_type, graph_pass

from ._dynamic import Dynamic, Scheme
from ._layers import attend, convolve, is_pointwise, look_up, recur, rescaled
from ._products import DEEPEST, Product, product_of
from ._selection import chosen, refuse_fused
from ._stored_weights import untransposed

LAYERS = {"Conv": (1, convolve), "Gather": (0, look_up), "com.microsoft::Attention": (1, attend), "LSTM": (1, recur)}
"""Operators other than matrix products, with the position of the weight."""


@graph_pass("quantize-dynamic", parity=Parity.LOSSY)
def quantize_dynamic(
    graph: Graph,
    *,
    ops: tuple[
        Literal["MatMul", "Gemm", "FusedMatMul", "Attention", "PointwiseConv", "Conv", "Gather", "LSTM"], ...
    ] = (
        "MatMul",
        "Gemm",
        "FusedMatMul",
        "Attention",
    ),
    nodes: NodeSelector | None = None,
    exclude: NodeSelector | None = None,
    weight_type: Literal["int8", "uint8"] = "int8",
    per_channel: bool = True,
    reduce_range: bool | None = None,
    min_size: Size = 65536,
) -> None:
    """Quantize the weights of matrix products to 8 bits, and their other operands at run time.

    Needs no calibration data: DynamicQuantizeLinear measures the range of each tensor at run time. The product is a
    MatMulInteger with a scale for each column, in the form that ONNX Runtime fuses into one kernel. On CPUs with
    VNNI or AMX it is 2 to 3 times as fast as in float32 where there are some rows to multiply; small weights are not
    worth it. Most of the loss comes from rounding the data to 255 steps over the range of the whole tensor: a
    model whose activations have outliers needs `exclude`, or static quantization.

    Batched, transposed and left-hand weights are supported, alpha is folded into the scales, and products that read the
    same value share one DynamicQuantizeLinear. A weight with other readers, such as the embedding that the head of a
    language model reads too, also stays in float32 for them. A weight that is stored in float16 and cast to float32 is
    quantized like one in float32.

    Options:
        ops: The operators. PointwiseConv is a Conv that multiplies the channels of each place by a matrix. It becomes a
            MatMulInteger between two Transposes, which pays off with many channels. Any other Conv becomes a
            ConvInteger, several times slower than a Conv in float32: for size, not for speed. Gather stores a table of
            embeddings in 8 bits with a scale for each row, also for size. Attention is com.microsoft::Attention, which
            becomes QAttention. LSTM becomes com.microsoft::DynamicQuantizeLSTM.
        nodes: The nodes to quantize, all by default.
        exclude: Nodes that stay in float32.
        weight_type: int8 with the zero point 0, or uint8 with zero points.
        per_channel: One scale per output channel instead of one per weight; not slower.
        reduce_range: Use 7 bits of the weights, because on x86 CPUs without VNNI sums of two products of uint8 and int8
            saturate at 16 bits. By default the installed ONNX Runtime is tested, and if it saturates, scales are as
            large as neighboring weights need: this loses less, but the result suits such CPUs only if it is created on
            one.
        min_size: The bytes of the smallest weight to quantize, in float32.

    Example:
        # options: {min_size: 0, reduce_range: true}
        g (float[N,4] x) => (float[N,2] y) <float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}> { y = MatMul(x, w) }
    """
    dynamic = Dynamic(graph, Scheme.of(weight_type, reduce_range, per_channel=per_channel))
    operators = {"Conv" if op == "PointwiseConv" else op for op in ops}
    for node in chosen(graph, sorted(operators), nodes, exclude):
        if node.op == "Conv" and "Conv" not in ops and not is_pointwise(node):
            continue
        with graph.site(node) as new:
            opset = graph.imports_of(node.ir).get("", 0)
            new.require(opset >= 11, "before opset 11 there is no DynamicQuantizeLinear")
            _quantize(node, dynamic, min_size, new)
    refuse_fused(graph, "FusedConv", "FusedGemm")


def _quantize(node: Node, dynamic: Dynamic, min_size: int, new: Builder) -> None:
    if node.op in LAYERS:
        position, make = LAYERS[node.op]
        weight = node.required_input(position)
        held = untransposed(weight)
        new.require(held.is_constant, "the weight is not constant")
        _require_worth(held, weight, min_size, new)
        made = make(node, dynamic, new)
        for old, result in zip(node.outputs, made if isinstance(made, tuple) else (made,)):
            new.replace(old, result)
        return
    product = product_of(node, new)
    _require_worth(product.weight, node.required_input(0 if product.is_left else 1), min_size, new)
    if product.depth <= DEEPEST:
        made = _multiply(product, dynamic, new)
        new.replace(node.outputs[0], made)
        new.changes(made)


def _require_worth(weight: Value, used: Value, min_size: int, new: Builder) -> None:
    """Refuse a weight that is too small, or that is not `used` in float32; it may be stored in a narrower type."""
    tensor = weight.tensor
    new.require(tensor is not None and used.dtype == data_type("float"), "the weight is not float32")
    new.require(weight.size, "the weight is empty")
    new.require((weight.size or 0) * np.dtype(np.float32).itemsize >= min_size, "the weight is smaller than min_size")


def _multiply(product: Product, dynamic: Dynamic, new: Builder) -> Value:
    """Build an integer product, and the addition of its bias."""
    node, left = product.node, product.is_left
    # Products of a signed left factor and an unsigned right one have no kernel in ONNX Runtime.
    kind = dynamic.scheme.unsigned if left else None
    weight = dynamic.weight(
        *(node, product.weight, product.channel_axes, new),
        transposed=product.transposes_weight,
        factor=product.alpha,
        kind=kind,
        symmetric=True if left else None,
    )
    integers, scale, zero_point = dynamic.data(node, product.data, new)
    data = product.transposed_data(integers, new)
    if left:
        made = new.node("MatMulInteger", weight.integers, data, weight.zero_point, zero_point)
    else:
        made = new.node("MatMulInteger", data, weight.integers, zero_point, weight.zero_point)
    result = rescaled(made, (scale, weight.scale), new)
    bias = product.bias(new)
    return result if bias is None else new.node("Add", result, bias)
