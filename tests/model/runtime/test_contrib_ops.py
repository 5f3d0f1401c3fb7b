"""Our forms of ONNX Runtime's operators: against its kernels where it has them, otherwise against other forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from support import lacking
from support.decomposed import decomposed, parsed, run

import surgery
from surgery.engine.recipe.loader import single_step
from surgery.model.runtime import contrib_ops, reference_runs
from surgery.model.targets.kernels import registered

WITH_KERNEL = {
    "BiasGelu": "(float[3,4] x, float[4] b) => (float[3,4] y) { y = com.microsoft.BiasGelu(x, b) }",
    "FastGelu": "(float[3,4] x, float[4] b) => (float[3,4] y) { y = com.microsoft.FastGelu(x, b) }",
    "FusedMatMul": "(float[4,2,3] a, float[2,5,3] b) => (float[2,4,5] y) "
    "{ y = com.microsoft.FusedMatMul<transBatchA = 1, transB = 1, alpha = 0.3>(a, b) }",
    "Gelu": "(float[3,4] x) => (float[3,4] y) { y = com.microsoft.Gelu(x) }",
    "QuickGelu": "(float[3,4] x) => (float[3,4] y) { y = com.microsoft.QuickGelu(x) }",
    "SkipLayerNormalization": "(float[2,3,8] x, float[3,8] z, float[8] g, float[8] b, float[8] c) "
    "=> (float[2,3,8] y, float[2,3,8] s) { y, , , s = com.microsoft.SkipLayerNormalization(x, z, g, b, c) }",
    "SkipSimplifiedLayerNormalization": "(float16[2,3,8] x, float16[2,3,8] z, float16[8] g) "
    "=> (float16[2,3,8] y, float16[2,3,8] s) { y, , , s = com.microsoft.SkipSimplifiedLayerNormalization(x, z, g) }",
}
CONV = '<pads = [1, 1, 1, 1], activation = "Relu">'
WITHOUT_KERNEL = {
    "BiasAdd": "(float[2,3,4] x, float[4] b, float[2,3,4] z) => (float[2,3,4] y) "
    "{ y = com.microsoft.BiasAdd(x, b, z) }",
    "BiasSoftmax": "(float[2,3,5,4] x, float[2,1,1,4] b) => (float[2,3,5,4] y) "
    "{ y = com.microsoft.BiasSoftmax<axis = 3, is_inner_broadcast = 1>(x, b) }",
    "BiasSoftmax, outer": "(float[2,3,5,4] x, float[5,4] b) => (float[2,3,5,4] y) "
    "{ y = com.microsoft.BiasSoftmax<axis = 3, is_inner_broadcast = 0>(x, b) }",
    "BiasSplitGelu": "(float[2,3,8] x, float[8] b) => (float[2,3,4] y) { y = com.microsoft.BiasSplitGelu(x, b) }",
    "FusedMatMulActivation": "(float[4,3] a, float[4,5] b) => (float[3,5] y) "
    '{ y = com.microsoft.FusedMatMulActivation<transA = 1, activation = "LeakyRelu", activation_alpha = 0.2>(a, b) }',
    "GatedRelativePositionBias": "(float[2,3,8] q, float[8] b, float[1,2,3,3] r, float[4,6] w, float[6] c, "
    "float[1,2,1,1] e) => (float[2,2,3,3] y) "
    "{ y = com.microsoft.GatedRelativePositionBias<num_heads = 2>(q, b, r, w, c, e) }",
    "GemmFastGelu": "(float[3,4] x, float[4,5] w, float[5] b) => (float[3,5] y) "
    "{ y = com.microsoft.GemmFastGelu(x, w, b) }",
    "GroupNorm": "(float[2,4,4,8] x, float[8] g, float[8] b) => (float[2,4,4,8] y) "
    "{ y = com.microsoft.GroupNorm<groups = 2, activation = 1, epsilon = 0.01>(x, g, b) }",
    "GroupNorm, channels first": "(float[2,8,4,4] x, float[8] g, float[8] b) => (float[2,8,4,4] y) "
    "{ y = com.microsoft.GroupNorm<groups = 4, activation = 0, channels_last = 0>(x, g, b) }",
    "RemovePadding": "(float[2,3,4] x, int32[2] n) => (float[T,4] y, int32[2,3] p, int32[3] e, int32[1] m) "
    "{ y, p, e, m = com.microsoft.RemovePadding(x, n) }",
    "RestorePadding": "(float[2,4] x, int32[2,2] p) => (float[2,2,4] y) { y = com.microsoft.RestorePadding(x, p) }",
    "SkipGroupNorm": "(float[2,4,4,8] x, float[8] g, float[8] b, float[2,8] s, float[8] c) "
    "=> (float[2,4,4,8] y, float[2,4,4,8] t) "
    "{ y, t = com.microsoft.SkipGroupNorm<groups = 2, activation = 1>(x, g, b, s, c) }",
}
BY_ITSELF = {"PackedMultiHeadAttention", "RelativePositionBias"}
INTEGERS = {"n": [1, 3], "p": [[2, 0], [1, 3]]}


def _fed(model: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(2)
    feeds = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        drawn = rng.standard_normal([dim.dim_value for dim in tensor.shape.dim])
        feeds[value.name] = np.asarray(INTEGERS.get(value.name, drawn)).astype(dtype)
    return feeds


def _ours(model: onnx.ModelProto, feeds: dict[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    answer = reference_runs.run(model.SerializeToString(), [feeds])
    (outputs,) = answer["runs"]
    assert not isinstance(outputs, str), outputs
    return list(outputs.values())


def _compare(wanted: Any, found: Any) -> None:
    for one, other in zip(wanted, found, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        steps = 2e-3 if one.dtype == np.float16 else 3e-6
        np.testing.assert_allclose(other.astype(np.float64), one.astype(np.float64), rtol=steps, atol=steps)


def test_every_form_is_compared() -> None:
    called = {name.partition(",")[0] for name in (*WITH_KERNEL, *WITHOUT_KERNEL)} | BY_ITSELF
    assert called == contrib_ops.FUNCTIONS.keys()


@pytest.mark.parametrize("name", WITH_KERNEL)
def test_a_reference_form_matches_the_kernel(name: str) -> None:
    model = parsed(f"g {WITH_KERNEL[name]}")
    feeds = _fed(model)
    _compare(run(model, feeds), _ours(model, feeds))


@pytest.mark.parametrize("name", WITHOUT_KERNEL)
def test_a_reference_form_matches_the_decomposition(name: str) -> None:
    """The decomposition was written in other terms, and kernels of ONNX Runtime run it."""
    op = name.partition(",")[0]
    assert all((domain, known) != ("com.microsoft", op) for domain, known, *_ in registered())
    for opset in (17, 21):
        model = parsed(f"g {WITHOUT_KERNEL[name]}", opset)
        feeds = _fed(model)
        made, reasons = decomposed(model)
        lacking.skip_unknown(reasons)
        assert reasons == [] and not any(node.domain for node in made.graph.node)
        _compare(run(made, feeds), _ours(model, feeds))


@pytest.mark.parametrize("nhwc", ["NhwcConv", "NhwcFusedConv"])
def test_a_channels_last_convolution_matches_the_transposed_one(nhwc: str) -> None:
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 5, 6, 3), (4, 3, 3, 3), (4,)))
    call = "<pads = [1, 1, 1, 1]>(x, w, b)" if nhwc == "NhwcConv" else f"{CONV}(x, w, b)"
    made, reasons = decomposed(
        parsed(
            "g (float[2,5,6,3] x, float[4,3,3,3] w, float[4] b) => (float[2,5,6,4] y) "
            f"{{ y = com.microsoft.{nhwc}{call} }}"
        )
    )
    assert reasons == []
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    wanted = np.zeros((2, 5, 6, 4), np.float32) + b
    for row, column in np.ndindex(3, 3):
        wanted += padded[:, row : row + 5, column : column + 6] @ w[:, :, row, column].T
    _compare([wanted if nhwc == "NhwcConv" else np.maximum(wanted, 0)], run(made, {"x": x, "w": w, "b": b}))


def test_packed_attention_matches_padded_sequences() -> None:
    rng = np.random.default_rng(0)
    lengths, heads, width = np.array([2, 4, 1], np.int32), 2, 6
    padded = [rng.standard_normal((3, 4, width)).astype(np.float32) for _ in range(3)]
    bias = rng.standard_normal(3 * width).astype(np.float32)
    packed = [contrib_ops.remove_padding({}, one, lengths) for one in padded]
    rows, (_, offsets, ends, _) = [one[0] for one in packed], packed[0]
    found = contrib_ops.packed_multi_head_attention({"num_heads": heads}, *rows, bias, offsets, ends)
    model = parsed(
        "g (float[3,4,6] q, float[3,4,6] k, float[3,4,6] v, float[18] b, int32[3] m) => (float[3,4,6] y) "
        "{ y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v, b, m) }"
    )
    (kernel,) = run(model, {"q": padded[0], "k": padded[1], "v": padded[2], "b": bias, "m": lengths})
    wanted, *_ = contrib_ops.remove_padding({}, kernel, lengths)
    _compare([wanted], [found])


@pytest.mark.parametrize("bidirectional", [0, 1])
def test_relative_position_buckets_match_t5(bidirectional: int) -> None:
    """Each distance by itself, by the formula of T5: half of the rows for small ones, the others by logarithm."""
    table, most = np.random.default_rng(0).standard_normal((32, 3)).astype(np.float32), 20
    length = np.array([40], np.int64)
    attributes = {"max_distance": most, "is_bidirectional": bidirectional}
    found = np.asarray(contrib_ops.relative_position_bias(attributes, table, length, length))
    assert found.shape == (1, 3, 40, 40)
    for query, key in ((0, 0), (5, 2), (2, 5), (30, 5), (5, 30), (39, 0), (0, 39), (20, 4), (9, 0), (39, 30)):
        count = 16 if bidirectional else 32
        first = 16 if bidirectional and key > query else 0
        far = abs(key - query) if bidirectional else max(query - key, 0)
        half = count // 2
        large = half + int(math.log(max(far, 1) / half) / math.log(most / half) * half) if far >= half else far
        np.testing.assert_array_equal(found[0, :, query, key], table[first + min(large, count - 1)])


def test_a_verdict_mentions_the_reference_form_it_used() -> None:
    model = parsed(
        "g (float[N,3,8] x, float[8] b) => (float[N,3,4] y) { t = Relu(x) y = com.microsoft.BiasSplitGelu(t, b) }"
    )
    result = surgery.apply(model, single_step("decompose", {"ops": ["BiasSplitGelu"]}))
    assert result.ok
    verdict = result.steps[0].verdict
    assert verdict is not None
    assert "in the reference evaluator with our own form of com.microsoft::BiasSplitGelu, for " in verdict.message
