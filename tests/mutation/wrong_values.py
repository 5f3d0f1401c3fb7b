"""Wrong rewrites written by hand: zeros, rounding, thresholds, control flow, chance."""

from __future__ import annotations

from mutation.pairs import XZ, Pair, X, c

COUNT = "(int32[N] x) => (int32[N] y)"


def _if(condition: str, then: str, otherwise: str) -> str:
    return (
        f"y = If({condition}) <then_branch = p () => (float[N,S] u) {{ u = {then}(x) }}, "
        f"else_branch = q () => (float[N,S] r) {{ r = {otherwise}(x) }}>"
    )


def _loop(trips: str, body: str, start: str = "x") -> str:
    return c("n", trips, "int64") + (
        f"y = Loop(n, , {start}) <body = b (int64 i, bool go, float[N,S] a) => (bool on, float[N,S] o) "
        f"{{ on = Identity(go) {body} }}>"
    )


ZEROS = {
    "zero added dropped": Pair(X, c("o", 0.0) + "y = Add(x, o)", "y = Identity(x)"),
    "minus zero merged with zero": Pair(
        X,
        c("o", 0.0) + c("m", -0.0) + "a = Add(x, o) b = Add(x, m) p = Reciprocal(a) q = Reciprocal(b) y = Sub(p, q)",
        c("o", 0.0) + "a = Add(x, o) b = Add(x, o) p = Reciprocal(a) q = Reciprocal(b) y = Sub(p, q)",
    ),
    "reciprocal of merged zeros": Pair(
        X,
        c("o", 0.0) + c("m", -0.0) + "a = Max(x, o) d = Sign(a) e = Mul(d, m) k = Reciprocal(e) y = Add(x, k)",
        c("o", 0.0) + "a = Max(x, o) d = Sign(a) e = Mul(d, o) k = Reciprocal(e) y = Add(x, k)",
    ),
    "zero minus x as Neg": Pair(X, c("o", 0.0) + "y = Sub(o, x)", "y = Neg(x)"),
    "times zero folded": Pair(
        XZ,
        c("o", 0.0) + "a = Mul(x, o) b = Div(z, a) y = Sign(b)",
        "s = Shape(x) a = ConstantOfShape(s) b = Div(z, a) y = Sign(b)",
    ),
    "x over x as one": Pair(XZ, "a = Div(x, x) y = Mul(a, z)", "y = Identity(z)"),
    "root by Pow as Sqrt": Pair(X, c("h", 0.5) + "y = Pow(x, h)", "y = Sqrt(x)"),
    "Max of zeros exchanged": Pair(
        X,
        c("o", 0.0) + "a = Neg(x) b = Max(a, o) y = Reciprocal(b)",
        c("o", 0.0) + "a = Neg(x) b = Relu(a) d = Neg(b) k = Neg(d) l = Abs(k) e = Neg(l) y = Reciprocal(e)",
    ),
}

NUMBERS = {
    "root of a square as x": Pair(X, "a = Mul(x, x) y = Sqrt(a)", "y = Identity(x)", "close"),
    "log of exp as x": Pair(X, "a = Exp(x) y = Log(a)", "y = Identity(x)", "close"),
    "exact division by reciprocal": Pair(X, c("k", 3.0) + "y = Div(x, k)", c("k", 0.333333343) + "y = Mul(x, k)"),
    "exact sum in another order": Pair(
        XZ, c("k", 0.7) + "a = Add(x, z) y = Add(a, k)", c("k", 0.7) + "a = Add(z, k) y = Add(x, a)"
    ),
    "x times x as Pow 3": Pair(X, "y = Mul(x, x)", c("k", 3.0) + "y = Pow(x, k)", "close"),
    "twice and half of an int": Pair(COUNT, c("k", 2, "int32") + "a = Mul(x, k) y = Div(a, k)", "y = Identity(x)"),
    "int division reordered": Pair(
        COUNT,
        c("k", 2, "int32") + c("t", 3, "int32") + "a = Mul(x, t) y = Div(a, k)",
        c("k", 2, "int32") + c("t", 3, "int32") + "a = Div(x, k) y = Mul(a, t)",
    ),
    "int division by floor": Pair(
        COUNT,
        c("k", 2, "int32") + "y = Div(x, k)",
        c("k", 1, "int32") + c("t", 2, "int32") + "r = Mod(x, t) d = Sub(x, r) y = Div(d, t)",
    ),
    "mean of bytes in a wide type": Pair(
        "(uint8[N] x, uint8[N] z) => (uint8[N] y)",
        c("k", 2, "uint8") + "a = Add(x, z) y = Div(a, k)",
        c("k", 2, "int32") + "p = Cast<to=6>(x) q = Cast<to=6>(z) a = Add(p, q) b = Div(a, k) y = Cast<to=2>(b)",
    ),
    "Mod with the sign of the dividend": Pair(
        COUNT, c("k", 5, "int32") + "y = Mod(x, k)", c("k", 5, "int32") + "y = Mod<fmod=1>(x, k)"
    ),
    "float to int and back dropped": Pair(X, "a = Cast<to=7>(x) y = Cast<to=1>(a)", "y = Identity(x)"),
    "wide to narrow int and back dropped": Pair(
        "(int64[N] x) => (int64[N] y)", "a = Cast<to=3>(x) y = Cast<to=7>(a)", "y = Identity(x)"
    ),
    "double to float and back dropped": Pair(
        "(double[N] x) => (double[N] y)", "a = Cast<to=1>(x) y = Cast<to=11>(a)", "y = Identity(x)", "close"
    ),
    "float to bool and back dropped": Pair(X, "a = Cast<to=9>(x) y = Cast<to=1>(a)", "y = Abs(x)"),
    "Round as Floor of half more": Pair(X, "y = Round(x)", c("h", 0.5) + "a = Add(x, h) y = Floor(a)"),
    "Sign without zero": Pair(
        X, "y = Sign(x)", c("o", 0.0) + c("p", 1.0) + c("m", -1.0) + "a = Greater(x, o) y = Where(a, p, m)"
    ),
    "Softmax without the largest": Pair(
        X, "y = Softmax(x)", c("a", -1, "int64[1]") + "e = Exp(x) t = ReduceSum(e, a) y = Div(e, t)", "close"
    ),
    "Sigmoid by exp of x": Pair(X, "y = Sigmoid(x)", c("p", 1.0) + "e = Exp(x) t = Add(e, p) y = Div(e, t)", "close"),
    "Softplus by log of exp": Pair(X, "y = Softplus(x)", c("p", 1.0) + "e = Exp(x) t = Add(e, p) y = Log(t)", "close"),
    "Tanh by exp": Pair(
        X, "y = Tanh(x)", c("p", 1.0) + "d = Add(x, x) e = Exp(d) t = Add(e, p) b = Sub(e, p) y = Div(b, t)", "close"
    ),
    "variance by the mean of squares": Pair(
        X,
        c("a", -1, "int64[1]") + "m = ReduceMean(x, a) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, a) y = Add(v, q)",
        c("a", -1, "int64[1]") + "m = ReduceMean(x, a) d = Sub(x, m) q = Mul(d, d) p = Mul(x, x) "
        "s = ReduceMean(p, a) r = Mul(m, m) v = Sub(s, r) y = Add(v, q)",
        "close",
    ),
    "LogSoftmax as Log of Softmax": Pair(X, "y = LogSoftmax(x)", "s = Softmax(x) y = Log(s)", "close"),
    "a small term lost": Pair(
        X, c("k", 0.00001) + "a = Sin(x) b = Mul(a, k) y = Add(x, b)", "y = Identity(x)", "close"
    ),
    "a small row wrong": Pair(
        "(float[N,S] x) => (float[M,S] y)",
        c("k", 0.000001) + c("l", 1000) + "t = Tanh(x) a = Mul(t, k) b = Mul(x, l) y = Concat<axis=0>(a, b)",
        c("k", 0.000001) + c("l", 1000) + "t = Sin(x) a = Mul(t, k) b = Mul(x, l) y = Concat<axis=0>(a, b)",
        "close",
    ),
    "like weights merged": Pair(
        f"{X} <float k = {{0.7}}, float l = {{0.70000005}}>",
        "a = Mul(x, k) b = Mul(x, l) d = Sin(a) y = Mul(b, d)",
        "a = Mul(x, k) b = Mul(x, k) d = Sin(a) y = Mul(b, d)",
    ),
    "weights alike to a thousandth merged": Pair(
        f"{X} <float k = {{0.7}}, float l = {{0.7005}}>",
        "a = Mul(x, k) b = Mul(x, l) d = Sin(a) y = Mul(b, d)",
        "a = Mul(x, k) b = Mul(x, k) d = Sin(a) y = Mul(b, d)",
        "close",
    ),
}

THRESHOLDS = {
    "Clip as Relu": Pair(X, c("o", 0.0) + c("k", 6.0) + "y = Clip(x, o, k)", "y = Relu(x)"),
    "far bounds of a Clip lost": Pair(X, c("o", -1000) + c("k", 1000) + "y = Clip(x, o, k)", "y = Identity(x)"),
    "Relu after a Clip dropped": Pair(
        X, c("o", -1) + c("k", 1) + "a = Clip(x, o, k) y = Relu(a)", c("o", -1) + c("k", 1) + "y = Clip(x, o, k)"
    ),
    "threshold beyond the usual": Pair(XZ, c("k", 1000) + "b = Greater(x, k) y = Where(b, x, z)", "y = Identity(z)"),
    "or equal lost": Pair(
        XZ, c("k", 3.7) + "b = LessOrEqual(x, k) y = Where(b, x, z)", c("k", 3.7) + "b = Less(x, k) y = Where(b, x, z)"
    ),
    "or equal gained": Pair(
        XZ,
        c("k", 0.3) + "b = Greater(x, k) y = Where(b, x, z)",
        c("k", 0.3) + "b = GreaterOrEqual(x, k) y = Where(b, x, z)",
    ),
    "a token that is compared with lost": Pair(
        "(int64[N,S] x, float[N,S] z) => (float[N,S] y)",
        c("k", 4217, "int64") + c("o", 0.0) + "b = Equal(x, k) y = Where(b, o, z)",
        "y = Identity(z)",
    ),
    "last of equal maxima": Pair(
        "(float[N,S] x) => (int64[N,T] y)", "y = ArgMax<axis=1>(x)", "y = ArgMax<axis=1, select_last_index=1>(x)"
    ),
    "Shrink with its bias lost": Pair(X, "y = Shrink<lambd=1.5, bias=0.5>(x)", "y = Shrink<lambd=1.5>(x)"),
    "ThresholdedRelu as Relu": Pair(X, "y = ThresholdedRelu<alpha=0.01>(x)", "y = Relu(x)"),
}

BRANCHES = "(bool b, float[N,S] x) => (float[N,S] y)"

CONTROL = {
    "branches of an If": Pair(BRANCHES, _if("b", "Relu", "Neg"), _if("b", "Neg", "Relu")),
    "If taken for its first branch": Pair(BRANCHES, _if("b", "Relu", "Neg"), "y = Relu(x)"),
    "If taken for its second branch": Pair(BRANCHES, _if("b", "Relu", "Neg"), "y = Neg(x)"),
    "If on a sum that is seldom large": Pair(
        X, c("k", 1000) + "s = ReduceSum<keepdims=0>(x) b = Greater(s, k) " + _if("b", "Relu", "Neg"), "y = Neg(x)"
    ),
    "Loop with a trip less": Pair(X, _loop("3", "o = Sin(a)"), _loop("2", "o = Sin(a)")),
    "Loop unrolled without its last trip": Pair(X, _loop("3", "o = Sin(a)"), "p = Sin(x) y = Sin(p)"),
    "what a Loop carries lost": Pair(X, _loop("3", "t = Sin(a) o = Add(t, x)"), _loop("3", "o = Add(a, x)")),
    "overridable initializer as a constant": Pair(
        "(float[N,S] x, float[1] w) => (float[N,S] y) <float[1] w = {2}>",
        "y = Mul(x, w)",
        c("k", 2, "float[1]") + "y = Mul(x, k)",
    ),
    "overridable condition as a constant": Pair(
        "(float[N,S] x, bool b) => (float[N,S] y) <bool b = {1}>", _if("b", "Relu", "Neg"), "y = Relu(x)"
    ),
    "overridable bias folded into another": Pair(
        "(float[N,S] x, float w) => (float[N,S] y) <float w = {2}>",
        c("k", 1) + "a = Add(x, w) y = Mul(a, k)",
        c("k", 2) + "y = Add(x, k)",
    ),
}

CHANCE = {
    "Dropout in training removed": Pair(X, c("r", 0.5) + c("t", 1, "bool") + "y = Dropout(x, r, t)", "y = Identity(x)"),
    "ratio of a Dropout in training changed": Pair(
        X,
        c("r", 0.5) + c("t", 1, "bool") + "y = Dropout(x, r, t)",
        c("r", 0.2) + c("t", 1, "bool") + "y = Dropout(x, r, t)",
    ),
    "two noises merged": Pair(
        X,
        "a = RandomNormalLike(x) b = RandomNormalLike(x) d = Sub(a, b) y = Add(x, d)",
        "a = RandomNormalLike(x) d = Sub(a, a) y = Add(x, d)",
    ),
    "two noises merged in a sum": Pair(
        X,
        "a = RandomUniformLike(x) b = RandomUniformLike(x) d = Add(a, b) y = Add(x, d)",
        "a = RandomUniformLike(x) d = Add(a, a) y = Add(x, d)",
    ),
    "noise folded": Pair(
        "(float[N,4] x) => (float[N,4] y)",
        "a = RandomNormal<shape=[4]>() y = Add(x, a)",
        c("a", "0.3, -1.1, 0.4, 0.8", "float[4]") + "y = Add(x, a)",
    ),
    "noise left out": Pair(X, "a = RandomNormalLike<scale=0.1>(x) y = Add(x, a)", "y = Identity(x)"),
    "spread of a noise changed": Pair(X, "y = RandomNormalLike<scale=2.0>(x)", "y = RandomNormalLike<scale=1.0>(x)"),
    "mean of a noise changed": Pair(X, "y = RandomNormalLike<mean=1.0>(x)", "y = RandomNormalLike(x)"),
    "range of a noise changed": Pair(X, "y = RandomUniformLike<high=3.0>(x)", "y = RandomUniformLike(x)"),
    "input after a noise lost": Pair(
        X, "a = RandomUniformLike(x) b = Relu(x) y = Add(b, a)", "a = RandomUniformLike(x) y = Add(x, a)"
    ),
    "odds inverted": Pair(
        "(float[N,S] x) => (float[N,S] y)",
        c("k", 0.1) + "z = Sub(x, x) p = Add(z, k) y = Bernoulli(p)",
        c("k", 0.9) + "z = Sub(x, x) p = Add(z, k) y = Bernoulli(p)",
    ),
    "seed lost": Pair(X, "a = RandomNormalLike<seed=7.0>(x) y = Add(x, a)", "a = RandomNormalLike(x) y = Add(x, a)"),
}
