"""Legal inputs for the operators of ONNX Runtime's own domain, run by it."""

from __future__ import annotations

import onnx
import pytest

from surgery.verification.verdict.verifier import Verifier


def _prepared(body: str) -> Verifier:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> {body}')
    verifier = Verifier(model.SerializeToString())
    verifier.prepare()
    assert verifier._original.problem is None, verifier._original.problem
    assert verifier._original.engine == "onnxruntime"
    return verifier


def _refused(verifier: Verifier) -> list[str]:
    return [entry["refused"] for entry in verifier.bindings if "refused" in entry]


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
    ],
    ids=[
        "mask", "lengths", "ends-and-starts", "past", "key-mask", "key-lengths", "embedding", "rotary", "rotary-offset",
        "quantized", "crop", "grouped-past", "grouped-prompt",
    ],
)  # fmt: skip
def test_operators_of_the_runtime_get_what_they_accept(body):
    verifier = _prepared(body)
    assert _refused(verifier) == []
    assert not verifier._original.vacuous[next(iter(verifier._original.vacuous))], verifier._original.vacuous


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


def test_a_decoder_with_a_cache_gets_lengths_that_add_up():
    """ONNX Runtime takes several new positions after a past for a batch of one only."""
    points = [entry["dims"] for entry in _prepared(DECODER).bindings if "refused" not in entry]
    assert all(point["total"] == point["past"] + point["sequence"] for point in points)
    for name in ("batch", "sequence", "past"):
        assert len({point[name] for point in points}) > 1, name
