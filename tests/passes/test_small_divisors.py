"""Divisors, and arguments of logarithms, that float16 would make 0: the result stays as finite as in float32."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator
from support.calibrated import run_passes

Array = np.ndarray[Any, Any]

HEAD = '<ir_version: 10, opset_import: ["" : 18]>\n'
SMALL = np.array([[-20, -19, -21, -20], [0.5, 1, 2, 3]], np.float32)
PEAK = np.array([[9, -9, -9, -9], [0, 1, 2, 3]], np.float32)
NEAR = np.array([[1, 1.0001, 1.0002, 0.9999], [1, 2, 3, 4]], np.float32)
FAR = np.array([[1000.1, 1000.0, 999.95, 1000.05], [1000, 999.9, 1000.2, 1000.1]], np.float32)
TINY = np.array([[1e-4, 2e-4, -1e-4, 3e-4], [1, 2, 3, 4]], np.float32)
PLAIN = np.array([[1, 2, -1, 3], [0.5, 1, 2, 3]], np.float32)
MASKED = np.array([[1, 1, 0, 0], [0, 1, 1, 1]], np.float32)

PLANTED = {
    "the difference of a mean": ("m = ReduceMean<keepdims=0>(x) z = Sub(x, m) s = Abs(z) y = Div(x, s)", NEAR),
    "the difference of two products": (
        "a = Mul(x, c) b = Mul(c, x) r = Add(b, e5) z = Sub(r, a) y = Div(x, z)",
        np.abs(PLAIN),
    ),
    "a variance as a difference of squares": (
        "q = Mul(x, x) m = ReduceMean(q, axes) h = ReduceMean(x, axes) k = Mul(h, h) v = Sub(m, k) d = Sqrt(v) "
        "y = Div(x, d)",
        np.array([[1, 1.01, 0.99, 1]], np.float32),
    ),
    "the norm of a small difference": (
        "m = ReduceMean(x, axes) z = Sub(x, m) n = ReduceL2(z, axes) y = Div(z, n)",
        FAR,
    ),
    "the complement of a probability": ("p = Sigmoid(x) z = Sub(one, p) y = Log(z)", PEAK),
    "the complement of a probability, negated": ("p = Sigmoid(x) n = Neg(p) z = Add(n, one) y = Log(z)", PEAK),
    "odds": ("p = Sigmoid(x) z = Sub(one, p) y = Div(p, z)", PEAK),
    "an exponential": ("p = Exp(x) y = Log(p)", SMALL),
    "a sum of exponentials": ("p = Exp(x) s = ReduceSum(p, axes) y = Log(s)", SMALL),
    "a division by an exponential": ("p = Exp(x) q = Exp(x) y = Div(q, p)", SMALL),
    "a softplus": ("p = Exp(x) s = Add(p, one) l = Log(s) y = Reciprocal(l)", np.array([[-7.7, 1, 2, 3]], np.float32)),
    "the logarithm of a Softmax": ("p = Softmax(x) y = Log(p)", PEAK),
    "the complement of a Softmax": ("p = Softmax(x) z = Sub(one, p) y = Log(z)", np.array([[9, 0, 0, 0]], np.float32)),
    "a division by a Softmax": (
        "p = Softmax(x) t = Transpose(p) y = Reciprocal(t)",
        np.array([[19, 0, 0, 0]], np.float32),
    ),
    "a product of small numbers": ("p = Mul(x, c5) q = Mul(p, c5) y = Reciprocal(q)", np.abs(PLAIN)),
    "the root of a small product": ("p = Mul(x, c4) q = Mul(p, p) r = Sqrt(q) y = Div(x, r)", np.abs(PLAIN)),
    "the root of a small mean": ("q = Mul(x, x) m = ReduceMean(q, axes) r = Sqrt(m) y = Div(x, r)", TINY),
    "a root and an epsilon": ("q = Mul(x, x) m = ReduceMean(q, axes) r = Sqrt(m) d = Add(r, e5) y = Div(x, d)", TINY),
    "a geometric mean": ("p = ReduceProd(x, axes) r = Pow(p, tenth) y = Log(r)", np.full((1, 4), 1e-2, np.float32)),
    "a small power": ("p = Pow(x, ten) r = Pow(p, tenth) y = Div(x, r)", np.full((1, 4), 0.1, np.float32)),
    "a product that grows again": (
        "p = Mul(x, c5) q = Mul(p, c4) r = Mul(q, c) s = Mul(r, c) y = Reciprocal(s)",
        np.abs(PLAIN),
    ),
    "an inverse hyperbolic tangent": ("p = Tanh(x) y = Atanh(p)", np.array([[5, 1, -5, 0]], np.float32)),
}
"""Nodes, and the input for which float32 gives finite numbers."""

UNSEEN = {
    "a bound of a probability": ("p = Softmax(x) q = Clip(p, e12) y = Log(q)", PLAIN, 9 * PLAIN),
    "a maximum": ("p = Softmax(x) q = Max(p, e12) y = Log(q)", PLAIN, 9 * PLAIN),
    "an epsilon in a logarithm": ("p = Relu(x) q = Add(p, e12) y = Log(q)", np.abs(PLAIN), PLAIN),
    "an epsilon under a masked mean": (
        "s = ReduceSum(x, axes) t = Add(s, e12) y = Div(x, t)",
        MASKED,
        np.zeros((2, 4), np.float32),
    ),
    "a maximum under a norm": (
        "n = ReduceL2(x, axes) t = Max(n, e12) y = Div(x, t)",
        PLAIN,
        np.zeros((2, 4), np.float32),
    ),
}
"""Nodes, inputs for the calibration, and others that reach a bound the author gave."""


def model(body: str) -> onnx.ModelProto:
    constants = (
        "float one = {1}, float c = {1000}, float c5 = {1e-5}, float c4 = {1e-4}, float e5 = {1e-3}, "
        "float e12 = {1e-12}, float tenth = {0.1}, float ten = {10}, int64[1] axes = {1}"
    )
    words = set(re.findall(r"\w+", body))
    used = [one for one in constants.split(", ") if one.split()[1] in words]
    return onnx.parser.parse_model(f"{HEAD} g (float[N,4] x) => (float[A,B] y) <{', '.join(used)}> {{ {body} }}")


def run(proto: onnx.ModelProto, x: Array) -> Array:
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(proto).run(None, {"x": x})[0]


@pytest.mark.parametrize(("body", "x"), PLANTED.values(), ids=PLANTED)
def test_small_divisors_stay_in_float32(body: str, x: Array) -> None:
    proto = model(body)
    made, _ = run_passes(proto, ("to-float16", {"runtime": "any"}), feeds=[{"x": x}])
    expected, got = run(proto, x), run(made, x)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(got, expected, rtol=0.1, atol=1e-3)


@pytest.mark.parametrize(("body", "seen", "x"), UNSEEN.values(), ids=UNSEEN)
def test_bounds_of_divisors_stay_in_float32(body: str, seen: Array, x: Array) -> None:
    proto = model(body)
    made, _ = run_passes(proto, ("to-float16", {"runtime": "any"}), feeds=[{"x": seen}])
    assert np.isfinite(run(proto, x)).all()
    assert np.isfinite(run(made, x)).all()
