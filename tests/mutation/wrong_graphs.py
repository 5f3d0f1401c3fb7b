"""Wrong rewrites written by hand: windows, shapes, quantization, attention."""

from __future__ import annotations

from mutation.pairs import HEADS, IMAGE, KERNEL, NORM, SCALES, SQUARE, XZ, Pair, X, attention, c

CUBE = "(float[A,B,C] x) => (float[D,E,F] y)"

RESIZE = 'y = Resize<mode="linear", coordinate_transformation_mode="{}">(x, , k)'

WINDOWS = {
    "BatchNormalization in training folded": Pair(
        f"(float[N,2,4,4] x) => (float[N,2,4,4] y) {NORM}",
        "y, p, q = BatchNormalization<training_mode=1>(x, s, b, m, v)",
        "y = BatchNormalization(x, s, b, m, v)",
        "close",
    ),
    "epsilon of a folded BatchNormalization lost": Pair(
        f"(float[N,2,4,4] x) => (float[N,2,4,4] y) {NORM}",
        "y = BatchNormalization<epsilon=0.001>(x, s, b, m, v)",
        "y = BatchNormalization<epsilon=0.0>(x, s, b, m, v)",
        "close",
    ),
    "BatchNormalization moved before a Relu": Pair(
        f"(float[N,2,4,4] x) => (float[N,2,4,4] y) {NORM}",
        "r = Relu(x) y = BatchNormalization(r, s, b, m, v)",
        "r = BatchNormalization(x, s, b, m, v) y = Relu(r)",
        "close",
    ),
    "zero Pad in a MaxPool": Pair(
        IMAGE,
        c("p", "0,0,1,1,0,0,1,1", "int64[8]") + "a = Pad(x, p) y = MaxPool<kernel_shape=[2,2]>(a)",
        "y = MaxPool<kernel_shape=[2,2], pads=[1,1,1,1]>(x)",
    ),
    "Pad in an AveragePool that does not count it": Pair(
        IMAGE,
        c("p", "0,0,1,1,0,0,1,1", "int64[8]") + "a = Pad(x, p) y = AveragePool<kernel_shape=[3,3]>(a)",
        "y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(x)",
        "close",
    ),
    "reflecting Pad in a Conv": Pair(
        f"{IMAGE} {KERNEL}",
        c("p", "0,0,1,1,0,0,1,1", "int64[8]") + 'a = Pad<mode="reflect">(x, p) y = Conv(a, w)',
        "y = Conv<pads=[1,1,1,1]>(x, w)",
        "close",
    ),
    "Pad with ones in a Conv": Pair(
        f"{IMAGE} {KERNEL}",
        c("p", "0,0,1,1,0,0,1,1", "int64[8]") + c("k", 1) + "a = Pad(x, p, k) y = Conv(a, w)",
        "y = Conv<pads=[1,1,1,1]>(x, w)",
        "close",
    ),
    "Pad on the other side": Pair(
        f"{IMAGE} {KERNEL}",
        c("p", "0,0,0,0,0,0,2,2", "int64[8]") + "a = Pad(x, p) y = Conv(a, w)",
        "y = Conv<pads=[2,2,0,0]>(x, w)",
        "close",
    ),
    "groups of a Conv merged": Pair(
        "(float[N,4,5,5] x) => (float[N,4,5,5] y) <float[4,2,1,1] w = {1,2,3,4,5,6,7,8}>",
        "y = Conv<group=2>(x, w)",
        "k = Concat<axis=1>(w, w) y = Conv(x, k)",
        "close",
    ),
    "SAME_LOWER as SAME_UPPER": Pair(
        f"{IMAGE} {KERNEL}",
        'y = Conv<auto_pad="SAME_LOWER", strides=[2,2]>(x, w)',
        'y = Conv<auto_pad="SAME_UPPER", strides=[2,2]>(x, w)',
        "close",
    ),
    "dilation lost": Pair(
        f"{IMAGE} {KERNEL}",
        "y = Conv<dilations=[2,2], pads=[2,2,2,2]>(x, w)",
        "y = Conv<pads=[1,1,1,1]>(x, w)",
        "close",
    ),
    "stride moved into a later Conv": Pair(
        f"{IMAGE} {KERNEL}",
        "a = Conv<strides=[2,2], pads=[1,1,1,1]>(x, w) y = Conv<pads=[1,1,1,1]>(a, w)",
        "a = Conv<pads=[1,1,1,1]>(x, w) y = Conv<strides=[2,2], pads=[1,1,1,1]>(a, w)",
        "close",
    ),
    "half pixels as asymmetric": Pair(f"{IMAGE} {SCALES}", RESIZE.format("half_pixel"), RESIZE.format("asymmetric")),
    "depth to space by columns": Pair(
        "(float[N,8,3,3] x) => (float[N,C,H,W] y)",
        "y = DepthToSpace<blocksize=2>(x)",
        'y = DepthToSpace<blocksize=2, mode="CRD">(x)',
    ),
    "count of padding": Pair(
        IMAGE,
        "y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(x)",
        "y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(x)",
    ),
}

QUANT = "<float s = {0.05}, float t = {0.2}, uint8 z = {120}, uint8 o = {90}, int8 i = {0}>"

SHAPES = {
    "Squeeze of all that is one": Pair(
        "(float[N,1,S] x) => (float[N,S] y)", c("a", 1, "int64[1]") + "y = Squeeze(x, a)", "y = Squeeze(x)"
    ),
    "Slice to the end pinned": Pair(
        "(float[N,S] x) => (float[N,T] y)",
        c("b", 1, "int64[1]")
        + c("e", 9223372036854775807, "int64[1]")
        + c("a", 1, "int64[1]")
        + "y = Slice(x, b, e, a)",
        c("b", 1, "int64[1]") + c("e", 8, "int64[1]") + c("a", 1, "int64[1]") + "y = Slice(x, b, e, a)",
    ),
    "Slice to the end pinned far out": Pair(
        "(float[N,S] x) => (float[N,T] y)",
        c("b", 1, "int64[1]")
        + c("e", 9223372036854775807, "int64[1]")
        + c("a", 1, "int64[1]")
        + "y = Slice(x, b, e, a)",
        c("b", 1, "int64[1]") + c("e", 512, "int64[1]") + c("a", 1, "int64[1]") + "y = Slice(x, b, e, a)",
    ),
    "last element pinned": Pair(
        "(float[N,S] x) => (float[N] y)",
        c("i", -1, "int64") + "y = Gather<axis=1>(x, i)",
        c("i", 4, "int64") + "y = Gather<axis=1>(x, i)",
    ),
    "batch pinned in a Reshape": Pair(
        "(float[N,2,4] x) => (float[N,8] y)",
        c("k", "0, -1", "int64[2]") + "y = Reshape(x, k)",
        c("k", "2, -1", "int64[2]") + "y = Reshape(x, k)",
    ),
    "rows and columns mixed by a Reshape": Pair(
        "(float[N,4,6] x) => (float[N,6,4] y)",
        "y = Transpose<perm=[0,2,1]>(x)",
        c("k", "0, 6, 4", "int64[3]") + "y = Reshape(x, k)",
    ),
    "chain of Reshapes with a zero": Pair(
        "(float[2,3,4] x) => (float[A,B,C] y)",
        c("k", "6, 4", "int64[2]") + c("l", "0, 2, 2", "int64[3]") + "a = Reshape(x, k) y = Reshape(a, l)",
        c("l", "0, 6, 2", "int64[3]") + "y = Reshape(x, l)",
    ),
    "perms multiplied the wrong way": Pair(
        CUBE, "a = Transpose<perm=[1,2,0]>(x) y = Transpose<perm=[1,0,2]>(a)", "y = Transpose<perm=[0,2,1]>(x)"
    ),
    "turn taken twice as none": Pair(
        CUBE, "a = Transpose<perm=[1,2,0]>(x) y = Transpose<perm=[1,2,0]>(a)", "y = Identity(x)"
    ),
    "Transpose of a square weight dropped": Pair(
        f"(float[N,3] x) => (float[N,3] y) {SQUARE}", "t = Transpose(w) y = MatMul(x, t)", "y = MatMul(x, w)", "close"
    ),
    "transB of a Gemm wrong": Pair(
        f"(float[N,3] x) => (float[N,3] y) {SQUARE}", "y = Gemm(x, w)", "y = Gemm<transB=1>(x, w)", "close"
    ),
    "alpha of a Gemm lost": Pair(
        f"(float[N,3] x) => (float[N,3] y) {SQUARE}", "y = Gemm<alpha=0.5>(x, w)", "y = Gemm(x, w)", "close"
    ),
    "bias along the wrong axis": Pair(
        "(float[N,4,4] x) => (float[N,4,4] y) <float[4] b = {1, 2, 3, 4}, float[4,1] k = {1, 2, 3, 4}>",
        "y = Add(x, k)",
        "y = Add(x, b)",
    ),
    "slope along the wrong axis": Pair(
        "(float[N,4,4] x) => (float[N,4,4] y) <float[4] b = {1, 2, 3, 4}, float[4,1] k = {1, 2, 3, 4}>",
        "y = PRelu(x, k)",
        "y = PRelu(x, b)",
    ),
    "Softmax of opset 11 kept at 13": Pair(
        "(float[N,3,4] x) => (float[N,3,4] y)", "y = Softmax(x)", "y = Softmax(x)", "exact", 11, 13
    ),
    "Softmax of opset 11 with its axis at 13": Pair(
        "(float[N,3,4] x) => (float[N,3,4] y)", "y = Softmax(x)", "y = Softmax<axis=1>(x)", "exact", 11, 13
    ),
    "Hardmax of opset 11 at 13": Pair(
        "(float[N,3,4] x) => (float[N,3,4] y)", "y = Hardmax(x)", "y = Hardmax<axis=1>(x)", "exact", 11, 13
    ),
    "reduction over no axes": Pair(
        X,
        "a = Constant<value = int64[0] {}>() t = ReduceSum<noop_with_empty_axes=1>(x, a) y = Add(x, t)",
        "t = ReduceSum(x) y = Add(x, t)",
    ),
    "parts of a Split exchanged": Pair(
        "(float[N,6] x) => (float[N,3] y)",
        "a, b = Split<axis=1, num_outputs=2>(x) y = Sub(a, b)",
        "a, b = Split<axis=1, num_outputs=2>(x) y = Sub(b, a)",
    ),
    "Einsum with a side turned": Pair(
        "(float[N,N] x, float[N,N] z) => (float[N,N] y)",
        'y = Einsum<equation="ij,jk->ik">(x, z)',
        'y = Einsum<equation="ij,kj->ik">(x, z)',
        "close",
    ),
    "ScatterND that adds as one that sets": Pair(
        "(float[6,S] x, float[2,S] z) => (float[6,S] y)",
        c("i", "1, 4", "int64[2,1]") + 'y = ScatterND<reduction="add">(x, i, z)',
        c("i", "1, 4", "int64[2,1]") + "y = ScatterND(x, i, z)",
    ),
    "ScatterND that adds twice as once": Pair(
        "(float[6,S] x, float[2,S] z) => (float[6,S] y)",
        c("i", "4, 4", "int64[2,1]") + 'y = ScatterND<reduction="add">(x, i, z)',
        c("i", "4, 4", "int64[2,1]") + "g = GatherND(x, i) t = Add(g, z) y = ScatterND(x, i, t)",
    ),
    "sequence in another order": Pair(
        XZ.replace("float[N,S] y", "seq(float[N,S]) y"), "y = SequenceConstruct(x, z)", "y = SequenceConstruct(z, x)"
    ),
    "outputs swapped": Pair(
        "(float[N,S] x) => (float[N,S] y, float[N,S] z)", "y = Relu(x) z = Sigmoid(x)", "z = Relu(x) y = Sigmoid(x)"
    ),
    "an output for another": Pair(
        "(float[N,S] x) => (float[N,S] y, float[N,S] z)", "y = Relu(x) z = Sigmoid(x)", "y = Relu(x) z = Identity(y)"
    ),
    "pair of Quantize and Dequantize dropped": Pair(
        f"{X} {QUANT}", "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)", "y = Identity(x)", "close"
    ),
    "zero point dropped": Pair(
        f"{X} {QUANT}",
        "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)",
        "q = QuantizeLinear(x, s) y = DequantizeLinear(q, s)",
    ),
    "scales of two quantizations swapped": Pair(
        f"(float[N,S] x, float[N,S] u) => (float[N,S] y) {QUANT}",
        "q = QuantizeLinear(x, s, o) a = DequantizeLinear(q, s, o) r = QuantizeLinear(u, t, o) "
        "b = DequantizeLinear(r, t, o) y = Add(a, b)",
        "q = QuantizeLinear(x, t, o) a = DequantizeLinear(q, t, o) r = QuantizeLinear(u, s, o) "
        "b = DequantizeLinear(r, s, o) y = Add(a, b)",
    ),
    "quantized twice with different scales merged": Pair(
        f"{X} {QUANT}",
        "q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) r = QuantizeLinear(a, t, z) "
        "y = DequantizeLinear(r, t, z)",
        "q = QuantizeLinear(x, t, z) y = DequantizeLinear(q, t, z)",
    ),
    "signed for unsigned": Pair(
        f"{X} {QUANT}",
        "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)",
        "q = QuantizeLinear(x, s, i) y = DequantizeLinear(q, s, i)",
    ),
}

CAUSAL = "h = Shape(a) o = ConstantOfShape<value = float[1] {-10000}>(h) u = Trilu<upper=1>(o, d) n = Add(a, u)"
ATTENTION = {
    "scale of an attention off by a percent": Pair(HEADS, attention(0.5), attention(0.505), "close"),
    "scale of an attention not taken the root of": Pair(HEADS, attention(0.5), attention(0.25), "close"),
    "fused attention with another scale": Pair(HEADS, attention(0.7), "y = Attention(q, k, v)", "close", 23),
    "fused attention that became causal": Pair(
        HEADS, attention(0.5), "y = Attention<is_causal=1>(q, k, v)", "close", 23
    ),
    "causal mask lost": Pair(HEADS, c("d", 1, "int64") + attention(0.5, CAUSAL), "y = Attention(q, k, v)", "close", 23),
    "causal mask that hides the diagonal": Pair(
        HEADS, c("d", 1, "int64") + attention(0.5, CAUSAL), c("d", 0, "int64") + attention(0.5, CAUSAL), "close"
    ),
    "keys and values exchanged": Pair(HEADS, "y = Attention(q, k, v)", "y = Attention(q, v, k)", "close", 23),
    "Softmax over the queries": Pair(
        HEADS, attention(0.5), attention(0.5).replace("Softmax(", "Softmax<axis=2>("), "close"
    ),
    "RMSNormalization as LayerNormalization": Pair(
        "(float[N,4] x) => (float[N,4] y) <float[4] s = {1, 2, 0.5, 1}>",
        "y = RMSNormalization(x, s)",
        "y = LayerNormalization(x, s)",
        "close",
        23,
    ),
    "Gelu by tanh, exact": Pair(X, "y = Gelu(x)", 'y = Gelu<approximate="tanh">(x)'),
    "Gelu by tanh, close": Pair(X, "y = Gelu(x)", 'y = Gelu<approximate="tanh">(x)', "close"),
    "Gelu by a sigmoid": Pair(X, "y = Gelu(x)", c("k", 1.702) + "a = Mul(x, k) b = Sigmoid(a) y = Mul(x, b)", "close"),
    "epsilon of a LayerNormalization times ten": Pair(
        "(float[N,4] x) => (float[N,4] y) <float[4] s = {1, 2, 0.5, 1}>",
        "y = LayerNormalization<epsilon=0.00001>(x, s)",
        "y = LayerNormalization<epsilon=0.0001>(x, s)",
        "close",
    ),
    "tiny epsilon of a LayerNormalization times ten": Pair(
        "(float[N,4] x) => (float[N,4] y) <float[4] s = {1, 2, 0.5, 1}>",
        "y = LayerNormalization<epsilon=0.000000000001>(x, s)",
        "y = LayerNormalization<epsilon=0.00000000001>(x, s)",
        "close",
    ),
    "half float through bfloat16": Pair(
        "(float16[N,S] x) => (float16[N,S] y)",
        "t = Tanh(x) y = Sin(t)",
        "t = Tanh(x) a = Cast<to=16>(t) b = Cast<to=10>(a) y = Sin(b)",
        "close",
    ),
}
