"""Products and embeddings whose weights are stored in 8, 4 or 2 bits."""

from typing import Literal

from surgery import Graph, Parity, UsageError, graph_pass

from ._conv_weights import CHANNELS, ConvQuantizer
from ._dequantizing import dequantizes, needs_zeros
from ._nbits_gptq import Calibrated
from ._nbits_products import PRODUCTS
from ._nbits_sites import BITS, BLOCKS, Quantizer
from ._selection import refuse_fused


@graph_pass("quantize-weights", parity=Parity.LOSSY)
def quantize_weights(
    graph: Graph,
    *,
    bits: int = 4,
    block: int = 128,
    symmetric: bool | None = None,
    method: Literal["rtn", "hqq", "gptq"] = "hqq",
    form: Literal["matmulnbits", "standard"] | None = None,
    accuracy_level: int = 4,
    embedding_bits: int = 8,
    conv_bits: int = 0,
    act_order: bool = True,
    min_elements: int = 4096,
) -> None:
    """Store the constant weights of MatMul, Gemm, Gather, and Conv where asked, in 8, 4 or 2 bits.

    A weight w becomes scale · (code - zero point), with a scale, and a zero point unless `symmetric`, for each `block`
    of weights that are summed in one number of the result. Including these, blocks of 128 weights of 4 bits take 4.3
    bits per weight; blocks of 32 take 5.1 and are about 1.6 dB more accurate. This makes the file smaller, and saves
    time if reading the weights dominates: generating text token by token. For many rows at once, the products are about
    as fast as in float32, with blocks of 128 a little faster and with blocks of 32 a little slower; `quantize-dynamic`
    is then faster.

    `form: matmulnbits` creates com.microsoft MatMulNBits, and GatherBlockQuantized for embeddings, operators of ONNX
    Runtime that work with any opset. With `accuracy_level: 4`, data are rounded to 8 bits in separate blocks, which
    costs little accuracy compared with 4-bit weights and has by far the fastest kernels; at other levels, weights of 8
    and 2 bits have no kernels as fast as float32. 2-bit weights need blocks of 32, 64 or 128 for their fast kernels.
    `form: standard` creates DequantizeLinear before the product, which needs opset 21 (25 for 2 bits; 13 for 8 bits in
    whole columns), and which ONNX Runtime, when it optimizes, fuses into the same MatMulNBits of accuracy level 4, with
    blocks of 16 to 256. The budget is measured with the rounding of data, but sites are chosen and later steps compared
    without it. In this form, tables are gathered only in 8 bits: dequantizing a whole table for a few rows takes too
    long.

    A weight that several products read is quantized once; a table that is also the weight of a product is quantized
    once for each use.

    Options:
        bits: bits of a weight: 8, 4 or 2
        block: weights per block: 16, 32, 64, 128 or 256; 0 for whole columns, which MatMulNBits supports only for
            powers of two
        symmetric: whether the zero point of all blocks is the middle code; without it, only where the target needs
            that, as TensorRT does
        method: "rtn" rounds within the range of each block, and fits the scale to the rounded weights; "hqq" searches
            for scale and zero point with the least squared error, without data, like half-quadratic quantization, but
            with integer zero points, which fast kernels need; "gptq" rounds the rows of the weight one after another,
            and later rows compensate for the error of the product on calibration data, which must resemble the data
            in use: on other data it may lose far more than "hqq"
        form: the operators to use; without it, "standard" where the target has no MatMulNBits but dequantizes such
            weights, 8 bits in whole columns there, and else "matmulnbits"
        accuracy_level: the type to which MatMulNBits may round data: 4 for int8, 0 or 1 for float32
        embedding_bits: bits of the tables whose rows are gathered: 8, 4, 2, or 0 not to change them
        conv_bits: 8 to store the weights of Conv and ConvTranspose in 8 bits, with a scale for each output channel, by
            DequantizeLinear from opset 13 on; 0 not to change them. This makes the file smaller but nothing faster:
            ONNX Runtime dequantizes the weights to float32 in each run
        act_order: whether "gptq" begins with the rows of the weight whose data are largest
        min_elements: weights with fewer elements are not changed

    Example:
        # options: {block: 16, min_elements: 64}
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N,16] x) => (float[N,4] y) <float[16,4] w = {
            0, -0.375, 0.75, -0.125, -0.625, 0, -0.375, 0.75, 0.25, -0.625, 0, -0.375, -0.875, 0.25, -0.625,
            0, 0.5, -0.875, 0.25, -0.625, -0.125, 0.5, -0.875, 0.25, 0.75, -0.125, 0.5, -0.875, -0.375,
            0.75, -0.125, 0.5, 0, -0.375, 0.75, -0.125, -0.625, 0, -0.375, 0.75, 0.25, -0.625, 0, -0.375,
            -0.875, 0.25, -0.625, 0, 0.5, -0.875, 0.25, -0.625, -0.125, 0.5, -0.875, 0.25, 0.75, -0.125,
            0.5, -0.875, -0.375, 0.75, -0.125, 0.5
        }> {
            y = MatMul(x, w)
        }
    """
    _require_one_of("bits", bits, BITS)
    _require_one_of("block", block, (0, *BLOCKS))
    _require_one_of("accuracy_level", accuracy_level, (0, 1, 4))
    _require_one_of("embedding_bits", embedding_bits, (0, *BITS))
    _require_one_of("conv_bits", conv_bits, (0, 8))
    chosen = form or _form(graph, bits)
    block = 0 if form is None and chosen == "standard" and bits == 8 else block
    centered = needs_zeros(graph) if symmetric is None and chosen == "standard" else bool(symmetric)
    quantizer = Quantizer(graph, bits, block, centered, method, chosen, accuracy_level, min_elements)
    if method == "gptq":
        quantizer.calibrated = Calibrated(graph, quantizer, act_order)
    for node in graph.nodes(*PRODUCTS):
        with graph.site(node) as new:
            quantizer.product(node, new)
    refuse_fused(graph, "FusedGemm", "FusedMatMul")
    if conv_bits:
        convolutions = ConvQuantizer(graph, centered, min_elements)
        for node in graph.nodes(*CHANNELS):
            with graph.site(node) as new:
                convolutions.quantize(node, new)
    if embedding_bits:
        tables = Quantizer(graph, embedding_bits, block, centered, method, chosen, accuracy_level, min_elements)
        for node in graph.nodes("Gather"):
            with graph.site(node) as new:
                tables.table(node, new)


def _form(graph: Graph, bits: int) -> str:
    """Return the form of quantized products that the target runs."""
    target = graph.target
    if target.name == "standard" or target.has("com.microsoft::MatMulNBits"):
        return "matmulnbits"
    kind = f"{'int' if needs_zeros(graph) else 'uint'}{bits}"
    return "standard" if dequantizes(graph, kind) and target.has("DequantizeLinear") else "matmulnbits"


def _require_one_of(option: str, given: int, allowed: tuple[int, ...]) -> None:
    if given not in allowed:
        *others, last = map(str, allowed)
        raise UsageError(f"option '{option}' is {', '.join(others)} or {last}, not {given}")
