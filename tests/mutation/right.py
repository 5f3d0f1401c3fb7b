"""Right rewrites: what must not be refused.

Pairs by hand, the transformations of `mutation.rebuilt` on the bundled models, the case files, and the standard passes.
"""

from __future__ import annotations

from mutation.pairs import HEADS, IMAGE, KERNEL, NORM, SQUARE, XZ, Pair, X, attention, c

MATRIX = f"(float[N,3] x) => (float[N,3] y) {SQUARE}"
TENSOR = "(float[N,2,4,4] x) => (float[N,2,4,4] y)"
LAYER = "(float[N,4] x) => (float[N,4] y) <float[4] s = {1, 2, 0.5, 1}, float[4] b = {0.1, 0, -2, 1}>"
LAST = c("a", -1, "int64[1]")
COUNT = "(int32[N] x) => (int32[N] y)"

SAME = {
    "minus zero added dropped": Pair(X, c("m", -0.0) + "y = Add(x, m)", "y = Identity(x)"),
    "times one dropped": Pair(X, c("m", 1) + "y = Mul(x, m)", "y = Identity(x)"),
    "doubled by a sum": Pair(X, c("m", 2) + "y = Mul(x, m)", "y = Add(x, x)"),
    "half as a quotient": Pair(X, c("m", 0.5) + "y = Mul(x, m)", c("m", 2) + "y = Div(x, m)"),
    "two halvings": Pair(X, c("m", 0.5) + "a = Mul(x, m) y = Mul(a, m)", c("m", 0.25) + "y = Mul(x, m)"),
    "Relu twice": Pair(X, "a = Relu(x) y = Relu(a)", "y = Relu(x)"),
    "Relu after a Sigmoid": Pair(X, "a = Sigmoid(x) y = Relu(a)", "y = Sigmoid(x)"),
    "Clip of a Clip": Pair(
        X,
        c("l", -1) + c("h", 5) + c("k", 2) + "a = Clip(x, l, h) y = Clip(a, l, k)",
        c("l", -1) + c("k", 2) + "y = Clip(x, l, k)",
    ),
    "Abs of Neg": Pair(X, "a = Neg(x) y = Abs(a)", "y = Abs(x)"),
    "perms multiplied": Pair(
        "(float[A,B,C] x) => (float[D,E,F] y)",
        "a = Transpose<perm=[1,2,0]>(x) y = Transpose<perm=[1,0,2]>(a)",
        "y = Transpose<perm=[2,1,0]>(x)",
    ),
    "Reshapes merged": Pair(
        "(float[N,2,4] x) => (float[N,4,2] y)",
        c("k", "0, -1", "int64[2]") + c("l", "0, 4, 2", "int64[3]") + "a = Reshape(x, k) y = Reshape(a, l)",
        c("l", "0, 4, 2", "int64[3]") + "y = Reshape(x, l)",
    ),
    "Split and Concat dropped": Pair(
        "(float[N,6] x) => (float[N,6] y)",
        "a, b = Split<axis=1, num_outputs=2>(x) y = Concat<axis=1>(a, b)",
        "y = Identity(x)",
    ),
    "If on a constant": Pair(
        X,
        c("b", 1, "bool") + "y = If(b) <then_branch = p () => (float[N,S] u) { u = Relu(x) }, "
        "else_branch = q () => (float[N,S] r) { r = Neg(x) }>",
        "y = Relu(x)",
    ),
    "Where with a turned condition": Pair(
        XZ,
        c("o", 0.0) + "b = Greater(x, o) y = Where(b, x, z)",
        c("o", 0.0) + "b = Greater(x, o) n = Not(b) y = Where(n, z, x)",
        "close",  # ONNX Runtime keeps the sign of a zero of one branch only
    ),
    "Squeeze and Unsqueeze dropped": Pair(
        X, c("k", 1, "int64[1]") + "a = Unsqueeze(x, k) b = Relu(a) y = Squeeze(b, k)", "y = Relu(x)"
    ),
    "int twice by a shift of a sum": Pair(COUNT, c("k", 2, "int32") + "y = Mul(x, k)", "y = Add(x, x)"),
    "wider int and back dropped": Pair(COUNT, "a = Cast<to=7>(x) y = Cast<to=6>(a)", "y = Identity(x)"),
    "wider float and back dropped": Pair(X, "a = Cast<to=11>(x) y = Cast<to=1>(a)", "y = Identity(x)"),
    "negative axis": Pair(X, "y = Softmax<axis=-1>(x)", "y = Softmax<axis=1>(x)"),
    "Flatten as Reshape": Pair(
        "(float[N,2,4] x) => (float[N,8] y)", "y = Flatten(x)", c("k", "0, 8", "int64[2]") + "y = Reshape(x, k)"
    ),
    "Gather as Slice": Pair(
        "(float[N,5] x) => (float[N,1] y)",
        c("i", 3, "int64[1]") + "y = Gather<axis=1>(x, i)",
        c("i", 3, "int64[1]") + c("e", 4, "int64[1]") + c("k", 1, "int64[1]") + "y = Slice(x, i, e, k)",
    ),
    "zero Pad in a MaxPool after a Relu": Pair(
        IMAGE,
        c("p", "0,0,1,1,0,0,1,1", "int64[8]") + "r = Relu(x) a = Pad(r, p) y = MaxPool<kernel_shape=[2,2]>(a)",
        "r = Relu(x) y = MaxPool<kernel_shape=[2,2], pads=[1,1,1,1]>(r)",
        "close",  # a minus zero that passes the Relu is less than the zero of the Pad
    ),
    "Dropout of inference dropped": Pair(X, c("r", 0.5) + "y = Dropout(x, r)", "y = Identity(x)"),
    "Softmax of opset 11 at 13": Pair(
        "(float[N,3,4] x) => (float[N,3,4] y)",
        "y = Softmax(x)",
        "f = Flatten(x) p = Softmax(f) t = Shape(x) y = Reshape(p, t)",
        "exact",
        11,
        13,
    ),
}

ROUNDED = {
    "Pad in a Conv": Pair(
        f"{IMAGE} {KERNEL}",
        c("p", "0,0,1,1,0,0,1,1", "int64[8]") + "a = Pad(x, p) y = Conv(a, w)",
        "y = Conv<pads=[1,1,1,1]>(x, w)",
        "close",
    ),
    "BatchNormalization as scale and shift": Pair(
        f"{TENSOR} {NORM}",
        "y = BatchNormalization(x, s, b, m, v)",
        c("e", 0.00001)
        + c("k", "2, 1, 1", "int64[3]")
        + "t = Add(v, e) r = Sqrt(t) f = Div(s, r) p = Mul(m, f) d = Sub(b, p) g = Reshape(f, k) h = Reshape(d, k) "
        "q = Mul(x, g) y = Add(q, h)",
        "close",
    ),
    "MatMul and Add as Gemm": Pair(
        "(float[N,3] x) => (float[N,3] y) <float[3,3] w = {1,2,3,4,5,6,7,8,10}, float[3] b = {1,-1,0.5}>",
        "t = MatMul(x, w) y = Add(t, b)",
        "y = Gemm(x, w, b)",
        "close",
    ),
    "MatMul by a turned weight": Pair(MATRIX, "t = Transpose(w) y = MatMul(x, t)", "y = Gemm<transB=1>(x, w)", "close"),
    "two MatMuls by one": Pair(
        MATRIX, "a = MatMul(x, w) y = MatMul(a, w)", "q = MatMul(w, w) y = MatMul(x, q)", "close"
    ),
    "distributed product": Pair(
        XZ,
        c("k", 3.3) + "a = Add(x, z) y = Mul(a, k)",
        c("k", 3.3) + "a = Mul(x, k) b = Mul(z, k) y = Add(a, b)",
        "close",
    ),
    "sum in another order": Pair(
        XZ, c("k", 0.7) + "a = Add(x, z) y = Add(a, k)", c("k", 0.7) + "a = Add(z, k) y = Add(x, a)", "close"
    ),
    "Sum in another order": Pair(
        "(float[N,S] x, float[N,S] z, float[N,S] u) => (float[N,S] y)", "y = Sum(x, z, u)", "y = Sum(u, z, x)", "close"
    ),
    "total in two stages": Pair(
        "(float[N,S,4] x) => (float[N] y)",
        c("a", "1, 2", "int64[2]") + "y = ReduceSum<keepdims=0>(x, a)",
        c("a", 2, "int64[1]")
        + c("b", 1, "int64[1]")
        + "t = ReduceSum<keepdims=0>(x, a) y = ReduceSum<keepdims=0>(t, b)",
        "close",
    ),
    "mean of squares, far from zero": Pair(
        X,
        LAST + c("k", 100) + "u = Add(x, k) y = ReduceMean(u, a)",
        LAST + c("k", 100) + "u = ReduceMean(x, a) y = Add(u, k)",
        "close",
    ),
    "Softmax spelled out": Pair(
        X,
        "y = Softmax(x)",
        LAST + "m = ReduceMax(x, a) d = Sub(x, m) e = Exp(d) t = ReduceSum(e, a) y = Div(e, t)",
        "close",
    ),
    "LogSoftmax spelled out": Pair(
        X,
        "y = LogSoftmax(x)",
        LAST + "m = ReduceMax(x, a) d = Sub(x, m) e = Exp(d) t = ReduceSum(e, a) l = Log(t) y = Sub(d, l)",
        "close",
    ),
    "LayerNormalization spelled out": Pair(
        LAYER,
        "y = LayerNormalization(x, s, b)",
        LAST + c("e", 0.00001) + "m = ReduceMean(x, a) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, a) t = Add(v, e) "
        "r = Sqrt(t) n = Div(d, r) p = Mul(n, s) y = Add(p, b)",
        "close",
    ),
    "RMSNormalization spelled out": Pair(
        LAYER,
        "y = RMSNormalization(x, s)",
        LAST + c("e", 0.00001) + "q = Mul(x, x) v = ReduceMean(q, a) t = Add(v, e) r = Sqrt(t) n = Div(x, r) "
        "y = Mul(n, s)",
        "close",
        23,
    ),
    "root as reciprocal": Pair(
        LAYER, "t = Abs(s) r = Sqrt(t) y = Div(x, r)", "t = Abs(s) r = Sqrt(t) q = Reciprocal(r) y = Mul(x, q)", "close"
    ),
    "square as Pow": Pair(X, "y = Mul(x, x)", c("k", 2) + "y = Pow(x, k)", "close"),
    "cube as Pow": Pair(X, "a = Mul(x, x) y = Mul(a, x)", c("k", 3) + "y = Pow(x, k)", "close"),
    "Gelu spelled out": Pair(
        X,
        "y = Gelu(x)",
        c("r", 1.41421356) + c("p", 1) + c("h", 0.5) + "d = Div(x, r) e = Erf(d) t = Add(e, p) q = Mul(x, t) "
        "y = Mul(q, h)",
        "close",
    ),
    "Gelu by tanh spelled out": Pair(
        X,
        'y = Gelu<approximate="tanh">(x)',
        c("k", 0.044715) + c("r", 0.797884561) + c("p", 1) + c("h", 0.5) + "s = Mul(x, x) u = Mul(s, x) v = Mul(u, k) "
        "t = Add(x, v) g = Mul(t, r) e = Tanh(g) f = Add(e, p) q = Mul(x, f) y = Mul(q, h)",
        "close",
    ),
    "Sigmoid spelled out": Pair(
        X, "y = Sigmoid(x)", c("p", 1) + "n = Neg(x) e = Exp(n) t = Add(e, p) y = Reciprocal(t)", "close"
    ),
    "Swish": Pair(X, "s = Sigmoid(x) y = Mul(x, s)", "y = Swish(x)", "close", 24),
    "Mish": Pair(X, "y = Mish(x)", "s = Softplus(x) t = Tanh(s) y = Mul(x, t)", "close"),
    "HardSwish": Pair(
        X,
        "y = HardSwish(x)",
        c("t", 3) + c("o", 0.0) + c("k", 6) + "a = Add(x, t) b = Clip(a, o, k) q = Mul(x, b) y = Div(q, k)",
        "close",
    ),
    "fused attention": Pair(HEADS, attention(0.5), "y = Attention(q, k, v)", "close", 23),
    "fused attention with a scale": Pair(HEADS, attention(0.7), "y = Attention<scale=0.7>(q, k, v)", "close", 23),
    "attention spelled out": Pair(HEADS, "y = Attention<scale=0.25>(q, k, v)", attention(0.25), "close", 23),
    "scale of an attention moved": Pair(
        HEADS,
        attention(0.5),
        "t = Transpose<perm=[0,1,3,2]>(k) " + c("s", 0.5) + "o = Mul(q, s) m = MatMul(o, t) "
        "p = Softmax(m) y = MatMul(p, v)",
        "close",
    ),
    "Einsum as MatMul": Pair(
        "(float[N,N] x, float[N,N] z) => (float[N,N] y)",
        'y = Einsum<equation="ij,jk->ik">(x, z)',
        "y = MatMul(x, z)",
        "close",
    ),
    "GlobalAveragePool as ReduceMean": Pair(
        "(float[N,2,4,4] x) => (float[N,2,A,B] y)",
        "y = GlobalAveragePool(x)",
        c("a", "2, 3", "int64[2]") + "y = ReduceMean(x, a)",
        "close",
    ),
    "AveragePool as Conv": Pair(
        "(float[N,1,8,8] x) => (float[N,1,H,W] y) <float[1,1,2,2] w = {0.25, 0.25, 0.25, 0.25}>",
        "y = AveragePool<kernel_shape=[2,2]>(x)",
        "y = Conv(x, w)",
        "close",
    ),
    "groups of a Conv by zeros": Pair(
        "(float[N,2,5,5] x) => (float[N,2,5,5] y) <float[2,1,1,1] w = {2, 3}, float[2,2,1,1] k = {2, 0, 0, 3}>",
        "y = Conv<group=2>(x, w)",
        "y = Conv(x, k)",
        "close",
    ),
}

NOISE = {
    "Identity before noise dropped": Pair(
        X, "a = Identity(x) n = RandomNormalLike(a) y = Add(a, n)", "n = RandomNormalLike(x) y = Add(x, n)"
    ),
    "spread of a noise as a factor": Pair(
        X, "y = RandomNormalLike<scale=2.0>(x)", c("k", 2) + "n = RandomNormalLike(x) y = Mul(n, k)", "close"
    ),
    "range of a noise as a factor": Pair(
        X,
        "y = RandomUniformLike<low=1.0, high=4.0>(x)",
        c("k", 3) + c("l", 1) + "n = RandomUniformLike(x) p = Mul(n, k) y = Add(p, l)",
        "close",
    ),
    "noises commuted": Pair(
        X,
        "a = RandomNormalLike(x) b = RandomUniformLike(x) y = Add(a, b)",
        "a = RandomNormalLike(x) b = RandomUniformLike(x) y = Add(b, a)",
    ),
    "Dropout in training after an Identity": Pair(
        X,
        c("r", 0.4) + c("t", 1, "bool") + "a = Identity(x) y = Dropout(a, r, t)",
        c("r", 0.4) + c("t", 1, "bool") + "y = Dropout(x, r, t)",
    ),
    "noise before a Relu": Pair(
        X,
        "n = RandomNormalLike<scale=0.1>(x) a = Add(x, n) b = Relu(a) y = Relu(b)",
        "n = RandomNormalLike<scale=0.1>(x) a = Add(x, n) y = Relu(a)",
    ),
    "odds": Pair(
        "(float[N,S] x) => (float[N,S] y)",
        "p = Sigmoid(x) q = Identity(p) y = Bernoulli(q)",
        "p = Sigmoid(x) y = Bernoulli(p)",
    ),
}

RIGHT: dict[str, Pair] = SAME | ROUNDED | NOISE
