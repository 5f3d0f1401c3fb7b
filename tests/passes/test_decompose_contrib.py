"""Every operator of ONNX Runtime that `decompose` knows, in a call or two, against the kernel, or our evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support import lacking
from support.breadth import sampled
from support.decomposed import decomposed, parsed, run
from surgery.passes.opset import _lowering
from surgery.passes.opset.decompose import HOMES

CALLS = {
    "Gelu": "(float[N,4] x) => (float[N,4] y) { y = com.microsoft.Gelu(x) }",
    "BiasGelu": "(float[N,4] x, float[4] b) => (float[N,4] y) { y = com.microsoft.BiasGelu(x, b) }",
    "BranchwiseRMSNorm": "(float[N,3,4] x, float[4] s) => (float[N,3,4] y) "
    "{ y = com.microsoft.BranchwiseRMSNorm<num_branches = 1, epsilon = 0.01>(x, s) }",
    "BranchwiseRMSNorm, grouped": "(float[N,3,4] x, float[4] s) => (float[N,3,4] y) "
    "{ y = com.microsoft.BranchwiseRMSNorm(x, s) }",
    "FastGelu": "(float[N,4] x, float[4] b) => (float[N,4] y) { y = com.microsoft.FastGelu(x, b) }",
    "FastGelu, alone": "(float[N,4] x) => (float[N,4] y) { y = com.microsoft.FastGelu(x) }",
    "QuickGelu": "(float[N,4] x) => (float[N,4] y) { y = com.microsoft.QuickGelu<alpha = 1.5>(x) }",
    "QuickGelu, default": "(float[N,4] x) => (float[N,4] y) { y = com.microsoft.QuickGelu(x) }",
    "SkipLayerNormalization": (
        "(float[B,S,8] x, float[B,S,8] z, float[8] g, float[8] b, float[8] c) "
        "=> (float[B,S,8] y, float[B,S,8] s) "
        "{ y, , , s = com.microsoft.SkipLayerNormalization<epsilon = 0.01>(x, z, g, b, c) }"
    ),
    "SkipLayerNormalization, plain": (
        "(float[B,S,8] x, float[B,S,8] z, float[8] g, float[8] b) "
        "=> (float[B,S,8] y) "
        "{ y = com.microsoft.SkipLayerNormalization(x, z, g) }"
    ),
    "SkipLayerNormalization, broadcast": (
        "(float[B,S,8] x, float[S,8] z, float[8] g, float[8] b) "
        "=> (float[B,S,8] y) "
        "{ y = com.microsoft.SkipLayerNormalization(x, z, g, b) }"
    ),
    "SkipLayerNormalization, float16": (
        "(float16[B,S,8] x, float16[B,S,8] z, float16[8] g, float16[8] b) "
        "=> (float16[B,S,8] y, float16[B,S,8] s) "
        "{ y,,,s = com.microsoft.SkipLayerNormalization(x, z, g, b) }"
    ),
    "SkipSimplifiedLayerNormalization": (
        "(float[B,S,8] x, float[B,S,8] z, float[8] g, float[8] b) "
        "=> (float[B,S,8] y, float[B,S,8] s) "
        "{ y, , , s = com.microsoft.SkipSimplifiedLayerNormalization(x, z, g, b) }"
    ),
    "SimplifiedLayerNormalization": (
        "(float[B,S,8] x, float[8] g) "
        "=> (float[B,S,8] y, float[B,S,1] i) "
        "{ y, i = SimplifiedLayerNormalization<epsilon = 0.01>(x, g) }"
    ),
    "EmbedLayerNormalization": (
        "(int32[2,5] i, int32[2,5] t, float[3,8] w, float[9,8] p, float[2,8] e, float[8] g, float[8] b, "
        "int32[2,5] m, int32[1,5] at) "
        "=> (float[2,5,8] y, int32[2] n, float[2,5,8] s) "
        "{ y, n, s = com.microsoft.EmbedLayerNormalization(i, t, w, p, e, g, b, m, at) }"
    ),
    "EmbedLayerNormalization, plain": (
        "(int32[2,5] i, float[3,8] w, float[9,8] p, float[8] g, float[8] b) "
        "=> (float[2,5,8] y, int32[2] n) "
        "{ y, n = com.microsoft.EmbedLayerNormalization(i, , w, p, , g, b) }"
    ),
    "FusedMatMul": (
        "(float[2,3,4] a, float[2,5,4] b) "
        "=> (float[2,3,5] y) "
        "{ y = com.microsoft.FusedMatMul<transB = 1, alpha = 0.3>(a, b) }"
    ),
    "FusedMatMul, batches": (
        "(float[4,2,3] a, float[2,3,5] b) => (float[2,4,5] y) { y = com.microsoft.FusedMatMul<transBatchA = 1>(a, b) }"
    ),
    "FusedMatMul, both": (
        "(float[3,2,7,4] a, float[2,7,3,5] b) "
        "=> (float[2,7,4,5] y) "
        "{ y = com.microsoft.FusedMatMul<transBatchA = 1, transA = 1>(a, b) }"
    ),
    "TransposeMatMul": (
        "(float[4,3] a, float[4,5] b) => (float[3,5] y) { y = com.microsoft.TransposeMatMul<transA = 1>(a, b) }"
    ),
    "FusedGemm": (
        "(float[4,3] a, float[5,4] b, float[5] c) "
        "=> (float[3,5] y) "
        '{ y = com.microsoft.FusedGemm<transA = 1, transB = 1, alpha = 0.5, beta = 2.0, activation = "LeakyRelu", '
        "activation_alpha = 0.2>(a, b, c) }"
    ),
    "FusedGemm, plain": (
        '(float[3,4] a, float[4,5] b) => (float[3,5] y) { y = com.microsoft.FusedGemm<activation = "Relu">(a, b) }'
    ),
    "FusedConv": (
        "(float[1,2,6,6] x, float[3,2,3,3] w, float[3] b, float[1,3,6,6] z) "
        "=> (float[1,3,6,6] y) "
        '{ y = com.microsoft.FusedConv<pads = [1,1,1,1], activation = "Relu">(x, w, b, z) }'
    ),
    "FusedConv, clip": (
        "(float[1,2,6,6] x, float[2,1,3,3] w) "
        "=> (float[1,2,4,4] y) "
        '{ y = com.microsoft.FusedConv<group = 2, activation = "Clip", activation_params = [-0.2, 0.5]>(x, w) }'
    ),
    "FusedConv, sigmoid": (
        "(float[1,2,6,6] x, float[2,2,3,3] w) "
        "=> (float[1,2,4,4] y) "
        '{ y = com.microsoft.FusedConv<activation = "HardSigmoid", activation_params = [0.3, 0.6]>(x, w) }'
    ),
    "NhwcMaxPool": (
        "(uint8[1,6,6,3] x) "
        "=> (uint8[1,3,3,3] y) "
        "{ y = com.microsoft.NhwcMaxPool<kernel_shape = [2,2], strides = [2,2]>(x) }"
    ),
    "GatherND": "(float[3,4] x, int64[5,2] i) => (float[5] y) { y = com.microsoft.GatherND(x, i) }",
    "ExpandDims": "(float[3,4] x) => (float[3,1,4] y) <int32 a = {1}> { y = com.microsoft.ExpandDims(x, a) }",
    "Trilu": "(float[3,4] x) => (float[3,4] y) { y = com.microsoft.Trilu<upper = 0>(x) }",
    "Range": "(float a, float b) => (float[N] y) { y = com.microsoft.Range(a, b) }",
    "Pad": (
        "(float[3,4] x) => (float[5,7] y) <int64[4] p = {1, 2, 1, 1}, float v = {7}> { y = com.microsoft.Pad(x, p, v) }"
    ),
    "RotaryEmbedding": (
        "(float[2,3,8] x, int64[2,3] p, float[9,2] c, float[9,2] s) "
        "=> (float[2,3,8] y) "
        "{ y = com.microsoft.RotaryEmbedding(x, p, c, s) }"
    ),
    "RotaryEmbedding, offset": (
        "(float[2,2,3,8] x, int64[1] p, float[9,4] c, float[9,4] s) "
        "=> (float[2,2,3,8] y) "
        "{ y = com.microsoft.RotaryEmbedding<interleaved = 1>(x, p, c, s) }"
    ),
    "RotaryEmbedding, part": (
        "(float[2,3,16] x, int64[1] p, float[9,2] c, float[9,2] s) "
        "=> (float[2,3,16] y) "
        "{ y = com.microsoft.RotaryEmbedding<num_heads = 2, rotary_embedding_dim = 4>(x, p, c, s) }"
    ),
    "QGemm": (
        "(uint8[3,4] a) => (uint8[3,2] y) <float s = {0.0513}, uint8 z = {120}, "
        "int8[2,4] w = {1, -2, 3, -4, 50, -60, 7, -80}, float[2] v = {0.0217, 0.0331}, int8[2] o = {0, 5}, "
        "int32[2] b = {300, -200}, float t = {0.0937}, uint8 u = {120}> "
        "{ y = com.microsoft.QGemm<transB = 1, alpha = 0.5>(a, s, z, w, v, o, b, t, u) }"
    ),
    "QGemm, float result": (
        "(uint8[4,3] a) => (float[3,2] y) <float s = {0.0513}, uint8 z = {120}, "
        "uint8[4,2] w = {1, 2, 3, 4, 50, 60, 7, 80}, float v = {0.0217}, uint8 o = {9}> "
        "{ y = com.microsoft.QGemm<transA = 1>(a, s, z, w, v, o) }"
    ),
    "QLinearAdd": (
        "(uint8[2,5] a, uint8[5] b) "
        "=> (uint8[2,5] y) "
        "<float sa = {0.05}, uint8 za = {120}, float sb = {0.03}, uint8 zb = {130}, float sc = {0.08}, uint8 zc = "
        "{110}> { y = com.microsoft.QLinearAdd(a, sa, za, b, sb, zb, sc, zc) }"
    ),
    "QLinearMul": (
        "(uint8[2,5] a, uint8[5] b) "
        "=> (uint8[2,5] y) "
        "<float sa = {0.05}, uint8 za = {120}, float sb = {0.03}, uint8 zb = {130}, float sc = {0.08}, uint8 zc = "
        "{110}> { y = com.microsoft.QLinearMul(a, sa, za, b, sb, zb, sc, zc) }"
    ),
    "QLinearSigmoid": (
        "(uint8[2,5] a) "
        "=> (uint8[2,5] y) "
        "<float sa = {0.05}, uint8 za = {120}, float sb = {0.03}, uint8 zb = {130}, float sc = {0.08}, uint8 zc = "
        "{110}> { y = com.microsoft.QLinearSigmoid(a, sa, za, sb, zb) }"
    ),
    "QLinearLeakyRelu": (
        "(uint8[2,5] a) "
        "=> (uint8[2,5] y) "
        "<float sa = {0.05}, uint8 za = {120}, float sb = {0.03}, uint8 zb = {130}, float sc = {0.08}, uint8 zc = "
        "{110}> { y = com.microsoft.QLinearLeakyRelu<alpha = 0.2>(a, sa, za, sb, zb) }"
    ),
    "QLinearSoftmax": (
        "(uint8[2,5] a) "
        "=> (uint8[2,5] y) "
        "<float sa = {0.05}, uint8 za = {120}, float sb = {0.004}, uint8 zb = {0}> { y = "
        "com.microsoft.QLinearSoftmax<opset = 13, axis = -1>(a, sa, za, sb, zb) }"
    ),
    "QLinearAveragePool": (
        "(uint8[1,2,6,6] a) "
        "=> (uint8[1,2,3,3] y) "
        "<float sa = {0.05}, uint8 za = {120}, float sb = {0.03}, uint8 zb = {130}, float sc = {0.08}, uint8 zc = "
        "{110}> { y = com.microsoft.QLinearAveragePool<kernel_shape = [2,2], strides = [2,2]>(a, sa, za, sb, zb) }"
    ),
    "QLinearAveragePool, last": (
        "(uint8[1,6,6,2] a) "
        "=> (uint8[1,3,3,2] y) "
        "<float sa = {0.05}, uint8 za = {120}, float sb = {0.03}, uint8 zb = {130}, float sc = {0.08}, uint8 zc = "
        "{110}> { y = com.microsoft.QLinearAveragePool<channels_last = 1, kernel_shape = [2,2], strides = "
        "[2,2]>(a, sa, za, sb, zb) }"
    ),
    "QLinearGlobalAveragePool": (
        "(uint8[1,2,6,6] a) "
        "=> (uint8[1,2,1,1] y) "
        "<float sa = {0.05}, uint8 za = {120}, float sb = {0.03}, uint8 zb = {130}, float sc = {0.08}, uint8 zc = "
        "{110}> { y = com.microsoft.QLinearGlobalAveragePool(a, sa, za, sb, zb) }"
    ),
    "QLinearConcat": (
        "(uint8[2,3] a, uint8[2,4] b) "
        "=> (uint8[2,7] y) "
        "<float sa = {0.05}, uint8 za = {120}, float sb = {0.03}, uint8 zb = {130}, float sc = {0.08}, uint8 zc = "
        "{110}> { y = com.microsoft.QLinearConcat<axis = 1>(sc, zc, a, sa, za, b, sb, zb) }"
    ),
    "QLinearWhere": (
        "(bool[2,3] c, uint8[2,3] a, uint8[3] b) "
        "=> (uint8[2,3] y) "
        "<float sa = {0.05}, uint8 za = {120}, float sb = {0.03}, uint8 zb = {130}, float sc = {0.08}, uint8 zc = "
        "{110}> { y = com.microsoft.QLinearWhere(c, a, sa, za, b, sb, zb, sc, zc) }"
    ),
    "DequantizeLinear": (
        "(uint8[2,3] a) "
        "=> (float[2,3] y) "
        "<float sa = {0.05}, uint8 za = {120}, float sb = {0.03}, uint8 zb = {130}, float sc = {0.08}, uint8 zc = "
        "{110}> { y = com.microsoft.DequantizeLinear(a, sa, za) }"
    ),
    "DequantizeLinear, axis": (
        "(uint8[2,3] a, float[2] s, uint8[2] z) "
        "=> (float[2,3] y) "
        "{ y = com.microsoft.DequantizeLinear<axis = 0>(a, s, z) }"
    ),
    "QuantizeLinear": (
        "(float[2,3] a) "
        "=> (uint8[2,3] y) "
        "<float sa = {0.05}, uint8 za = {120}, float sb = {0.03}, uint8 zb = {130}, float sc = {0.08}, uint8 zc = "
        "{110}> { y = com.microsoft.QuantizeLinear(a, sa, za) }"
    ),
    "DynamicQuantizeMatMul": (
        "(float[2,8] x, int8[8,5] w, float[5] s, int8[5] z, float[5] b) "
        "=> (float[2,5] y) "
        "{ y = com.microsoft.DynamicQuantizeMatMul(x, w, s, z, b) }"
    ),
    "DynamicQuantizeMatMul, plain": (
        "(float[2,8] x, uint8[8,5] w, float s) => (float[2,5] y) { y = com.microsoft.DynamicQuantizeMatMul(x, w, s) }"
    ),
    "MatMulIntegerToFloat": (
        "(uint8[2,8] x, int8[8,5] w, float t, float[5] s, uint8 y0, int8[5] z, float[5] b) "
        "=> (float[2,5] y) "
        "{ y = com.microsoft.MatMulIntegerToFloat(x, w, t, s, y0, z, b) }"
    ),
    "QAttention": (
        "(uint8[2,3,8] x, int8[8,24] w, float[24] b, float t, float u, int32[2,3] m, uint8 y0, int8 z) "
        "=> (float[2,3,8] y, float[2,2,2,3,4] n) "
        "{ y, n = com.microsoft.QAttention<num_heads = 2, unidirectional = 1>(x, w, b, t, u, m, y0, z) }"
    ),
    "MatMulNBits": (
        "(float[2,40] x, uint8[6,3,8] b0, float[18] s0) "
        "=> (float[2,6] y) "
        "{ y = com.microsoft.MatMulNBits<K = 40, N = 6, bits = 4, block_size = 16>(x, b0, s0) }"
    ),
    "MatMulNBits, zeros": (
        "(float[2,32] x, uint8[6,2,8] b0, float[12] s0, uint8[6] z0, float[6] c) "
        "=> (float[2,6] y) "
        "{ y = com.microsoft.MatMulNBits<K = 32, N = 6, bits = 4, block_size = 16>(x, b0, s0, z0, , c) }"
    ),
    "MatMulNBits, eight": (
        "(float[2,32] x, uint8[6,2,16] b0, float[12] s0, uint8[12] z0) "
        "=> (float[2,6] y) "
        "{ y = com.microsoft.MatMulNBits<K = 32, N = 6, bits = 8, block_size = 16>(x, b0, s0, z0) }"
    ),
    "MatMulNBits, two": (
        "(float[2,32] x, uint8[6,1,8] b0, float[6] s0, uint8[6,1] z0) "
        "=> (float[2,6] y) "
        "{ y = com.microsoft.MatMulNBits<K = 32, N = 6, bits = 2, block_size = 32>(x, b0, s0, z0) }"
    ),
}
ATTENTION = {"Attention", "DecoderMaskedMultiHeadAttention", "GroupQueryAttention", "MultiHeadAttention"}
"""Those of `test_decompose_attention`."""
WITHOUT_KERNEL = {
    *("BiasAdd", "BiasSoftmax", "BiasSplitGelu", "FusedMatMulActivation", "GatedRelativePositionBias"),
    *("GemmFastGelu", "GroupNorm", "NhwcConv", "NhwcFusedConv", "RemovePadding", "RestorePadding", "SkipGroupNorm"),
}
"""Those of `test_contrib_ops`."""
EXTENTS = {"B": 2, "S": 5, "N": 3}
LIMITS = {"a": 1.0, "b": 6.5}
SMALL = {"t": 0.01, "u": 0.02, "s": 0.05}
"""Scales of products of integers."""
WEIGHTS = ("b0", "s0", "z0", "c")
"""What is packed must be constant."""
ROUNDED = {"QLinearAveragePool, last", "QLinearSoftmax"}
"""The kernels add in another order, or look exponentials up: what is between two integers may go to either."""


def test_every_operator_is_called() -> None:
    assert HOMES
    named = {name.removeprefix("com.microsoft::") for name in _lowering.parts() if "::" in name}
    called = {name.partition(",")[0] for name in CALLS} - {"SimplifiedLayerNormalization"}
    assert called | ATTENTION | WITHOUT_KERNEL == named


@pytest.mark.parametrize("opset", sampled([17, 24], 2))
@pytest.mark.parametrize("name", sampled(CALLS, 3))
def test_a_decomposition_matches_the_kernel(name: str, opset: int) -> None:
    model = parsed(f"g {CALLS[name]}", opset)
    feeds = _fed(model, name)
    made, reasons = decomposed(model)
    lacking.skip_unknown(reasons)
    assert reasons == []
    assert not any(node.domain or node.op_type == "SimplifiedLayerNormalization" for node in made.graph.node)
    for wanted, found in zip(run(model, feeds), run(made, feeds)):
        assert (wanted.dtype, wanted.shape) == (found.dtype, found.shape)
        steps = 1 if name in ROUNDED else 0
        atol = 2e-6 if wanted.dtype.kind == "f" else steps
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=2e-6, atol=atol)


def test_a_constant_dropped_by_one_site_is_recreated_by_the_next() -> None:
    # Opset 17 has the axis of ReduceMean as an attribute: the constant -1 of the norm is made, and read by nothing.
    model = parsed(
        "g (float[N,3,4] x, float[4] s, int64[N,3] p, float[9,2] c, float[9,2] z) => (float[N,3,4] y) {"
        " h = com.microsoft.BranchwiseRMSNorm<num_branches = 1>(x, s)"
        " y = com.microsoft.RotaryEmbedding<num_heads = 1>(h, p, c, z) }"
    )
    feeds = _fed(model, "")
    made, reasons = decomposed(model, "com.microsoft::BranchwiseRMSNorm", "com.microsoft::RotaryEmbedding")
    lacking.skip_unknown(reasons)
    assert reasons == []
    onnx.checker.check_model(made, full_check=True)
    assert {node.op_type for node in made.graph.node} >= {"ReduceMean", "Slice"}
    np.testing.assert_allclose(run(made, feeds)[0], run(model, feeds)[0], rtol=2e-6, atol=2e-6)


def _fed(model: onnx.ModelProto, name: str) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    feeds = {value.name: _drawn(rng, value) for value in model.graph.input}
    if name == "Range":
        return {key: np.array(number, np.float32) for key, number in LIMITS.items()}
    if name.startswith(("DynamicQuantize", "MatMulInteger", "QAttention")):
        feeds |= {key: np.full_like(feeds[key], number) for key, number in SMALL.items() if key in feeds}
    if name.startswith("MatMulNBits"):
        kept = [value for value in model.graph.input if value.name not in WEIGHTS]
        model.graph.initializer.extend(numpy_helper.from_array(feeds.pop(key), key) for key in WEIGHTS if key in feeds)
        del model.graph.input[:]
        model.graph.input.extend(kept)
    return feeds


def _drawn(rng: np.random.Generator, value: onnx.ValueInfoProto) -> np.ndarray[Any, Any]:
    tensor = value.type.tensor_type
    shape = [dim.dim_value or EXTENTS[dim.dim_param] for dim in tensor.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if dtype.kind == "f":
        return np.asarray(rng.standard_normal(shape)).astype(dtype)
    low, high = (-100, 100) if dtype == np.int8 else (0, 200) if dtype == np.uint8 else (0, 2)
    return np.asarray(rng.integers(low, high, shape)).astype(dtype)
