"""Legal inputs for the operators of ONNX Runtime's own domain, run by it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from surgery.model.targets.kernels import registered
from surgery.verification.verdict.verifier import Verifier


def _prepared(body: str) -> Verifier:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> {body}')
    verifier = Verifier(model.SerializeToString())
    verifier.original.prepare()
    assert verifier.original.problem is None, verifier.original.problem
    assert verifier.original.engine == "onnxruntime"
    return verifier


def _refused(verifier: Verifier) -> list[str]:
    return [entry["refused"] for entry in verifier.original.bindings if "refused" in entry]


QKV = "float[8,24] w, float[24] b"


@pytest.mark.parametrize(
    "body",
    [
        f"g (float[2,5,8] x, {QKV}, int32[2,5] m) => (float[2,5,8] y) "
        "{ y = com.microsoft.Attention<num_heads = 2>(x, w, b, m) }",
        f"g (float[2,5,8] x, {QKV}, int32[2] m) => (float[2,5,8] y) "
        "{ y = com.microsoft.Attention<num_heads = 2>(x, w, b, m) }",
        f"g (float[2,5,8] x, {QKV}, int32[4] m) => (float[2,5,8] y) "
        "{ y = com.microsoft.Attention<num_heads = 2>(x, w, b, m) }",
        f"g (float[2,5,8] x, {QKV}, int32[2,9] m, float[2,2,2,4,4] p) => (float[2,5,8] y, float[2,2,2,9,4] r) "
        "{ y, r = com.microsoft.Attention<num_heads = 2, unidirectional = 1>(x, w, b, m, p) }",
        "g (float[2,5,8] q, float[2,7,8] k, float[2,7,8] v, int32[2,7] m) => (float[2,5,8] y) "
        "{ y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v, , m) }",
        "g (float[2,5,8] q, float[2,7,8] k, float[2,7,8] v, int32[2] m) => (float[2,5,8] y) "
        "{ y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v, , m) }",
        "g (int32[2,5] i, int32[2,5] s, float[11,8] w, float[9,8] p, float[2,8] t, float[8] a, float[8] b, "
        "int32[2,5] m) => (float[2,5,8] y, int32[2] n) "
        "{ y, n = com.microsoft.EmbedLayerNormalization(i, s, w, p, t, a, b, m) }",
        "g (float[2,5,8] x, int64[2,5] p, float[7,4] c, float[7,4] s) => (float[2,5,8] y) "
        "{ y = com.microsoft.RotaryEmbedding(x, p, c, s) }",
        "g (float[2,5,8] x, int64[1] p, float[7,4] c, float[7,4] s) => (float[2,5,8] y) "
        "{ y = com.microsoft.RotaryEmbedding(x, p, c, s) }",
        "g (uint8[2,5] a, float p, uint8 q, uint8[2,5] b, float r, uint8 s, float t, uint8 u) => (uint8[2,5] y) "
        "{ y = com.microsoft.QLinearAdd(a, p, q, b, r, s, t, u) }",
        "g (float[2,3,8,8] x, float[4,4] r, int32[4] b, int32[2] c) => (float[A,B,C,D] y) "
        "{ y = com.microsoft.CropAndResize(x, r, b, c) }",
        "g (float[2,1,64] q, float[2,1,32] k, float[2,1,32] v, float[2,2,5,16] pk, float[2,2,5,16] pv, int32[2] l, "
        "int32 t) => (float[2,1,64] y, float[2,2,6,16] nk, float[2,2,6,16] nv) "
        "{ y, nk, nv = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>(q, k, v, pk, pv, l, t) }",
        "g (float[2,3,64] q, float[2,3,32] k, float[2,3,32] v, int32[2] l, int32 t, float[9,8] c, float[9,8] s) "
        "=> (float[2,3,64] y, float[2,2,3,16] nk, float[2,2,3,16] nv) "
        "{ y, nk, nv = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2, do_rotary = 1>"
        "(q, k, v, , , l, t, c, s) }",
        "g (float[2,3,64] q, float[2,3,32] k, float[2,3,32] v, int32[2] l, int32 t, int64[2,3] p, float[4,8] c, "
        "float[4,8] s) => (float[2,3,64] y, float[2,2,3,16] nk, float[2,2,3,16] nv) "
        "{ y, nk, nv = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2, do_rotary = 1>"
        "(q, k, v, , , l, t, c, s, p) }",
        "g (float[2,1,64] q, float[2,1,32] k, float[2,1,32] v, float[2,2,8,16] pk, float[2,2,8,16] pv, int32[2] l, "
        "int32 t) => (float[2,1,64] y, float[2,2,8,16] nk, float[2,2,8,16] nv) "
        "{ y, nk, nv = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>(q, k, v, pk, pv, l, t) }",
        "g (float[2,5,8] q, float[2,5,8] k, float[2,5,8] v, int32[2] m, float[2,2,4,4] pk, float[2,2,4,4] pv) "
        "=> (float[2,5,8] y, float[2,2,9,4] nk, float[2,2,9,4] nv) "
        "{ y, nk, nv = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v, , m, , pk, pv) }",
        "g (float[3,4] x, int32 a) => (float[3,1,4] y) { y = com.microsoft.ExpandDims(x, a) }",
        "g (float[3,4] x, int64[4] p) => (float[N,M] y) { y = com.microsoft.Pad(x, p) }",
        "g (float[3,4] x, int64[5,2] i) => (float[5] y) { y = com.microsoft.GatherND(x, i) }",
        "g (float[1,2,4,4] x, float[2,3,3,3] w, int64[4] p) => (float[1,3,H,W] y) "
        "{ y = com.microsoft.ConvTransposeWithDynamicPads(x, w, p) }",
        "g (float[3,2,4] x, uint8[1,4,20] w, uint8[1,5,20] r, int32[2] l, float[1] ws, uint8[1] wz, float[1] rs, "
        "uint8[1] rz) => (float[3,1,2,5] y) "
        "{ y = com.microsoft.DynamicQuantizeLSTM<hidden_size = 5>(x, w, r, , l, , , , ws, wz, rs, rz) }",
        "g (float[2,32] x, uint8[8,2,8] b, float[16] s, int32[32] g) => (float[2,8] y) "
        "{ y = com.microsoft.MatMulNBits<K = 32, N = 8, bits = 4, block_size = 16>(x, b, s, , g) }",
        "g (float[2,1,8] q, float[2,1,8] k, float[2,1,8] v, float[2,2,5,4] pk, float[2,2,5,4] pv, int32[1] l, "
        "int32[1] b, int32[1,2,5] c) => (float[2,1,8] y, float[2,2,5,4] nk, float[2,2,5,4] nv) "
        "{ y, nk, nv = com.microsoft.DecoderMaskedMultiHeadAttention<num_heads = 2, past_present_share_buffer = 1>"
        "(q, k, v, , , pk, pv, l, b, c) }",
        "g (int64[7] s, int64[4] c, int64[1] p, int64[5] q) => (int64[N] t, int64[1] m) "
        "{ t, m = com.microsoft.BifurcationDetector(s, c, p, q) }",
    ],
    ids=[
        "mask", "lengths", "ends-and-starts", "past", "key-mask", "key-lengths", "embedding", "rotary", "rotary-offset",
        "quantized", "crop", "grouped-past", "grouped-prompt", "grouped-positions", "grouped-buffer",
        "lengths-and-past", "axis", "pads", "places", "dynamic-pads",
        "quantized-lengths", "blocks", "beams", "suffix",
    ],
)  # fmt: skip
def test_operators_of_the_runtime_get_legal_inputs(body):
    verifier = _prepared(body)
    assert _refused(verifier) == []
    assert not verifier.original.vacuous[next(iter(verifier.original.vacuous))], verifier.original.vacuous


@pytest.mark.parametrize(
    "body",
    [
        "g (int64[2,5] i, int64[3] m, int64[4] v) => (int64[A,B,C] y) "
        "{ y = com.microsoft.NGramHashMapping<max_ngram_size = 3, n_head_per_ngram = 2, pad_id = 0>(i, m, v) }",
        "g (float[6,4] x, float[4,1,3] w, int32[3] c, float[2,4,2] p) => (float[6,4] y, float[2,4,2] q) "
        "{ y, q = com.microsoft.VarlenCausalConvWithState(x, w, c, , p) }",
    ],
    ids=["moduli", "packed"],
)
def test_operators_of_newer_releases_get_legal_inputs(body):
    op = body.rpartition("com.microsoft.")[2].partition("<")[0].partition("(")[0]
    if all((domain, name) != ("com.microsoft", op) for domain, name, *_ in registered()):
        pytest.skip(f"the installed ONNX Runtime has no {op}")
    assert _refused(_prepared(body)) == []


DECODER = """
    g (float[batch,sequence,64] q, float[batch,sequence,32] k, float[batch,sequence,32] v, int64[batch,total] mask,
       float[batch,2,past,16] pk, float[batch,2,past,16] pv)
    => (float[batch,sequence,64] y, float[batch,2,n,16] nk, float[batch,2,n,16] nv)
    <int64[1] axis = {1}, int64 one = {1}> {
        sum = ReduceSum<keepdims = 0>(mask, axis)
        last = Sub(sum, one)
        l = Cast<to = 6>(last)
        size = Shape(mask)
        total = Gather<axis = 0>(size, one)
        t = Cast<to = 6>(total)
        y, nk, nv = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>(q, k, v, pk, pv, l, t)
    }
"""


@pytest.mark.slow
def test_a_decoder_with_a_cache_gets_lengths_that_add_up():
    """ONNX Runtime takes several new positions after a past for a batch of one only."""
    points = [entry["dims"] for entry in _prepared(DECODER).original.bindings if "refused" not in entry]
    assert all(point["total"] == point["past"] + point["sequence"] for point in points)
    for name in ("batch", "sequence", "past"):
        assert len({point[name] for point in points}) > 1, name


@pytest.mark.slow
def test_a_mask_that_is_summed_to_lengths_pads_on_the_right():
    for run in _prepared(DECODER).original.runs:
        mask = run.feed["mask"]
        assert np.all(np.diff(mask, axis=1) <= 0) and np.all(mask[0] == 1)
        assert mask.sum(axis=1).min() >= run.feed["q"].shape[1]


HEADS = """
    g (float[batch,queries,8] q, float[batch,keys,8] x, float[8,8] w, float[batch,2,past,4] pk,
       float[batch,2,past,4] pv, float[one,2,queries,total] b, int32[batch,total] m)
    => (float[batch,queries,8] y, float[batch,2,n,4] nk, float[batch,2,n,4] nv) {
        k = com.microsoft.FusedMatMul<alpha = 0.5>(x, w)
        y, nk, nv = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, k, , m, b, pk, pv)
    }
"""


@pytest.mark.slow
def test_biases_and_masks_of_attention_are_as_long_as_all_keys():
    points = [entry["dims"] for entry in _prepared(HEADS).original.bindings if "refused" not in entry]
    assert all(point["total"] == point["past"] + point["keys"] for point in points)
    for name in ("batch", "queries", "keys", "past"):
        assert len({point[name] for point in points}) > 1, name


UNDECLARED = """
    g (float[batch,sequence,64] x, float[64,128] w, int32[batch] l, int32 t) => (float[batch,sequence,64] y) {
        q = com.microsoft.FusedMatMul<alpha = 0.1>(x, w)
        y = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>(q, , , , , l, t)
    }
"""


def test_lengths_are_derived_from_other_runtime_operators():
    """Nothing declares the shape of the packed queries; without it the lengths would be any integers."""
    verifier = _prepared(UNDECLARED)
    assert _refused(verifier) == []
    for run in verifier.original.runs:
        assert run.feed["t"] == run.feed["x"].shape[1] == run.feed["l"][0] + 1
