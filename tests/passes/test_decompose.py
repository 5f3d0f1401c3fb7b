"""Every operator that `decompose` knows, in a call or two, against ONNX Runtime's own kernel."""

import pytest
from support import installed
from support.breadth import sampled
from surgery.passes.opset import _lowering
from surgery.passes.opset.decompose import HOMES

import surgery
from surgery.engine.recipe.loader import single_step
from surgery.model.graph import text

X = "(float[N,4] x) => (float[N,4] y)"
R = "(float[N,3,4] x) => (float[A,B,C] y) <int64[1] axes = {1}>"
Q = "<float scale = {0.1}, uint8 zero = {3}>"
CALLS = {
    "Attention": "(float[B,3,8] q, float[B,5,8] k, float[B,5,8] v) => (float[B,3,8] y) "
    "{ y = Attention<q_num_heads = 2, kv_num_heads = 2>(q, k, v) }",
    "Attention, causal": "(float[2,2,3,4] q, float[2,2,3,4] k, float[2,2,3,4] v) => (float[2,2,3,4] y) "
    "{ y = Attention<is_causal = 1>(q, k, v) }",
    "Attention, added mask": "(float[2,2,3,4] q, float[2,2,5,4] k, float[2,2,5,4] v, float[3,5] m) => "
    "(float[2,2,3,4] y) { y = Attention<scale = 0.3>(q, k, v, m) }",
    "BitwiseNot": "(int32[N] x) => (int32[N] y) { y = BitwiseNot(x) }",
    "BitwiseNot, unsigned": "(uint8[N] x) => (uint8[N] y) { y = BitwiseNot(x) }",
    "CastLike": "(float[N] x, int32[1] like) => (int32[N] y) { y = CastLike(x, like) }",
    "Celu": f"{X} {{ y = Celu<alpha = 2.0>(x) }}",
    "CenterCropPad": "(float[5,2] x) => (float[3,4] y) <int64[2] to = {3, 4}> { y = CenterCropPad(x, to) }",
    "Clip": f"{X} <float low = {{-0.5}}, float high = {{0.5}}> {{ y = Clip(x, low, high) }}",
    "DequantizeLinear": f"(uint8[N] x) => (float[N] y) {Q} {{ y = DequantizeLinear(x, scale, zero) }}",
    "Einsum": "(float[A,B] a, float[B,C] b, float[C,D] c) => (float[A,D] y) "
    '{ y = Einsum<equation = "ij,jk,kl->il">(a, b, c) }',
    "Einsum, ellipsis": "(float[2,A,3] a, float[2,3,B] b) => (float[2,A,B] y) "
    '{ y = Einsum<equation = "...ij,...jk->...ik">(a, b) }',
    "Einsum, outer": '(float[A] a, float[B] b) => (float[A,B] y) { y = Einsum<equation = "i,j->ij">(a, b) }',
    "Flatten": "(float[N,2,3] x) => (float[N,6] y) { y = Flatten(x) }",
    "Flatten, before": "(float[2,3,N] x) => (float[6,N] y) { y = Flatten<axis = -1>(x) }",
    "GatherND": "(float[2,3,4] x) => (float[2,1,4] y) <int64[2,1,2] i = {1, -1, -2, 0}> { y = GatherND(x, i) }",
    "GatherND, computed": "(float[2,3,4] x, float[N] z) => (float[M,4] y) <int64 one = {1}> "
    "{ o = NonZero(z)  n = Sub(o, o)  t = Transpose(n)  m = Sub(t, one)  i = Concat<axis = -1>(t, m) "
    "y = GatherND(x, i) }",
    "GatherND, one index": "(float[A,3] x) => (float[2,3] y) <int64[2,1] i = {0, -1}> { y = GatherND(x, i) }",
    "Gelu": f"{X} {{ y = Gelu(x) }}",
    "GreaterOrEqual": "(float[N] a, float[N] b) => (bool[N] y) { y = GreaterOrEqual(a, b) }",
    "GroupNormalization": "(float[2,4,3] x, float[4] w, float[4] b) => (float[2,4,3] y) "
    "{ y = GroupNormalization<num_groups = 2>(x, w, b) }",
    "HardSigmoid": f"{X} {{ y = HardSigmoid<alpha = 0.3>(x) }}",
    "HardSwish": f"{X} {{ y = HardSwish(x) }}",
    "InstanceNormalization": "(float[2,4,9] x, float[4] w, float[4] b) => (float[2,4,9] y) "
    "{ y = InstanceNormalization(x, w, b) }",
    "IsNaN": "(float[N] x) => (bool[N] y) { r = Sqrt(x)  y = IsNaN(r) }",
    "IsNaN, float64": "(double[N] x) => (bool[N] y) { r = Sqrt(x)  y = IsNaN(r) }",
    "LayerNormalization": "(float[N,3,4] x, float[3,4] w) => (float[N,3,4] y) "
    "{ y = LayerNormalization<axis = 1>(x, w) }",
    "LessOrEqual": "(int32[N] a, int32[N] b) => (bool[N] y) { y = LessOrEqual(a, b) }",
    "LogSoftmax": f"{X} {{ y = LogSoftmax<axis = 0>(x) }}",
    "Max": "(int32[N] a, int32[N] b) => (int32[N] y) { y = Max(a, b) }",
    "Mean": "(float[N] a, float[N] b, float[1] c) => (float[N] y) { y = Mean(a, b, c) }",
    "MeanVarianceNormalization": "(float[2,3,4,5] x) => (float[2,3,4,5] y) { y = MeanVarianceNormalization(x) }",
    "Min": "(int64[N] a, int64[N] b, int64[N] c) => (int64[N] y) { y = Min(a, b, c) }",
    "Mish": f"{X} {{ y = Mish(x) }}",
    "Neg": f"{X} {{ y = Neg(x) }}",
    "Not": "(bool[N] a) => (bool[N] y) { y = Not(a) }",
    "Or": "(bool[N,1] a, bool[M] b) => (bool[N,M] y) { y = Or(a, b) }",
    "Reciprocal": f"{X} {{ y = Reciprocal(x) }}",
    "Sum": "(float[N] a, float[N] b, float[1] c) => (float[N] y) { y = Sum(a, b, c) }",
    "Xor": "(bool[N,1] a, bool[M] b) => (bool[N,M] y) { y = Xor(a, b) }",
    "NegativeLogLikelihoodLoss": "(float[3,5] x, int64[3] t) => (float y) { y = NegativeLogLikelihoodLoss(x, t) }",
    "PRelu": f"{X} <float[4] s = {{0.1, 0.2, 0.3, 0.4}}> {{ y = PRelu(x, s) }}",
    "QLinearConv": "(uint8[N,1,4,4] x) => (uint8[N,2,4,4] y) <float s = {0.0513}, uint8 z = {3}, "
    "int8[2,1,2,2] w = {1, -2, 3, -4, 50, -60, 7, -80}, float[2] v = {0.0217, 0.0331}, int8 o = {0}, "
    "float t = {0.0937}, uint8 u = {120}, int32[2] b = {300, -200}> "
    "{ y = QLinearConv<pads = [1, 1, 0, 0]>(x, s, z, w, v, o, t, u, b) }",
    "QLinearConv, one scale": "(uint8[N,1,4,4] x) => (uint8[N,2,3,3] y) <float[1] s = {0.0513}, uint8[1] z = {3}, "
    "uint8[2,1,2,2] w = {1, 2, 3, 4, 50, 60, 7, 80}, float[1] v = {0.0217}, uint8[1] o = {9}, "
    "float t = {0.0937}, uint8 u = {120}> { y = QLinearConv(x, s, z, w, v, o, t, u) }",
    "QLinearMatMul": "(uint8[N,4] x) => (uint8[N,2] y) <float s = {0.0513}, uint8 z = {3}, "
    "int8[4,2] w = {1, -2, 3, -4, 50, -60, 7, -80}, float[2] v = {0.0217, 0.0331}, int8[2] o = {0, 5}, "
    "float t = {0.0937}, uint8 u = {120}> { y = QLinearMatMul(x, s, z, w, v, o, t, u) }",
    "QLinearMatMul, batch": "(int8[2,3,4] x, int8[2,4,5] w) => (int8[2,3,5] y) <float s = {0.0513}, int8 z = {3}, "
    "float t = {0.0937}, int8 u = {12}> { y = QLinearMatMul(x, s, z, w, s, z, t, u) }",
    "QuantizeLinear": f"(float[N] x) => (uint8[N] y) {Q} {{ y = QuantizeLinear(x, scale, zero) }}",
    "RMSNormalization": f"{X} <float[4] w = {{1, 2, 3, 4}}> {{ y = RMSNormalization(x, w) }}",
    "ReduceL1": f"{R} {{ y = ReduceL1<keepdims = 0>(x, axes) }}",
    "ReduceL2": f"{R} {{ y = ReduceL2(x, axes) }}",
    "ReduceLogSum": f"{R} {{ p = Abs(x) y = ReduceLogSum(p, axes) }}",
    "ReduceLogSumExp": f"{R} {{ y = ReduceLogSumExp<keepdims = 0>(x, axes) }}",
    "ReduceSumSquare": f"{R} {{ y = ReduceSumSquare(x, axes) }}",
    "Relu": f"{X} {{ y = Relu(x) }}",
    "RotaryEmbedding": "(float[1,3,8] x, float[9,2] c, float[9,2] s, int64[1,3] at) => (float[1,3,8] y) "
    "{ y = RotaryEmbedding<num_heads = 2>(x, c, s, at) }",
    "RotaryEmbedding, in part": "(float[1,2,3,8] x, float[1,3,2] c, float[1,3,2] s) => (float[1,2,3,8] y) "
    "{ y = RotaryEmbedding<rotary_embedding_dim = 4>(x, c, s) }",
    "Shrink": f"{X} {{ y = Shrink<bias = 0.1, lambd = 0.3>(x) }}",
    "SoftmaxCrossEntropyLoss": "(float[3,5] x, int64[3] t) => (float y) { y = SoftmaxCrossEntropyLoss(x, t) }",
    "Softplus": f"{X} {{ y = Softplus(x) }}",
    "Swish": f"{X} {{ y = Swish<alpha = 0.7>(x) }}",
    "ThresholdedRelu": f"{X} {{ y = ThresholdedRelu<alpha = 0.4>(x) }}",
    "Trilu": "(float[N,3,4] x, int64 k) => (float[N,3,4] y) { y = Trilu<upper = 0>(x, k) }",
    "Trilu, any dims": "(float[N,A,B] x) => (float[N,A,B] y) { y = Trilu(x) }",
    **{
        f"{name}Window": f"(float[N] x) => (float[N] y) {{ n = Size(x) w = {name}Window(n) y = Mul(x, w) }}"
        for name in ("Hamming", "Hann")
    },
}
# Of opset 28, which ONNX Runtime knows since 1.32 only: the calls are of opset 24.
# SimplifiedLayerNormalization is ONNX Runtime's: `test_decompose_contrib` has it.
NOT_RUN = {"SimplifiedLayerNormalization", "SwiGLU"}
# Their decompositions sum empty tensors on some inputs.
SUMS_NOTHING = {"GatherND, computed"}


def test_every_operator_is_called() -> None:
    assert HOMES
    known = {name for name in _lowering.parts() if "::" not in name}
    assert {name.partition(",")[0] for name in CALLS} == known - NOT_RUN


@pytest.mark.parametrize("name", sampled(CALLS, 6))
def test_a_decomposition_computes_what_its_operator_does(name: str) -> None:
    if name in SUMS_NOTHING and not installed.reduces_nothing():
        pytest.skip("ReduceSum of the installed runtime keeps the axes of empty tensors")
    op = name.partition(",")[0]
    model = text.parse(f'<ir_version: 11, opset_import: ["" : 24]> g {CALLS[name]}')
    result = surgery.apply(model, single_step("decompose", {"ops": [op]}))
    assert result.ok, [step.message for step in result.steps]
    assert [step.status for step in result.steps] == ["committed"], result.steps[0].refusals
    assert op not in {node.op_type for node in result.proto.graph.node}
