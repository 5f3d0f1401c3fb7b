"""Outputs that are computed in less precision than their type has, or rounded at another size than their own."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from surgery import Parity
from surgery.model.graph import text
from surgery.verification.comparing.details import Verdict
from surgery.verification.comparing.saturation import unit_ranges
from surgery.verification.running.precision import may_be_narrower, narrowest
from surgery.verification.verdict.verifier import Verifier


def verdict(before: str, after: str, promise: Parity = Parity.CLOSE) -> Verdict:
    verifier = Verifier(text.parse(before).SerializeToString())
    try:
        return verifier.verify(text.parse(after).SerializeToString(), promise)
    finally:
        verifier.close()


TWICE = """g (float[N,8] x) => (double[N,8] y) <float a = {0.1}, float b = {3.0}>
    { m = Mul(x, a) n = Mul(m, b) y = Cast<to=11>(n) }"""


@pytest.mark.parametrize(("factor", "status"), [("0.3", "close"), ("0.3003", "different")])
def test_a_double_computed_in_float32_has_the_tolerance_of_float32(factor, status):
    once = TWICE.replace("m = Mul(x, a) n = Mul(m, b)", "n = Mul(x, a)").replace("0.1", factor)
    found = verdict(TWICE, once)
    assert found.status == status, found.message
    assert status != "close" or "'y' by the tolerance of float32, in which it is computed" in found.message


def test_element_types_are_known_for_data_dependent_shapes():
    head = "g (float[N,8] x) => (double[M] y) <float a = {0.1}, float b = {3}, float c = {0.3}, int64[1] flat = {-1}>"
    chosen = "d = Greater(x, c) e = Reshape(d, flat) f = Compress(x, e)"
    twice, once = (
        f"{head} {{ {chosen} {how} y = Cast<to=11>(n) }}" for how in ("m = Mul(f, a) n = Mul(m, b)", "n = Mul(f, c)")
    )
    found = verdict(twice, once)
    assert found.status == "close" and "by the tolerance of float32" in found.message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Cast first: what is computed is computed in double.
        ("d = Cast<to=11>(x) y = Mul(d, a)", "d = Cast<to=11>(x) y = Mul(d, b)"),
        ("r = Reshape(x, s) d = Cast<to=11>(r) y = Mul(d, a)", "r = Reshape(x, s) d = Cast<to=11>(r) y = Mul(d, b)"),
        # What is computed of constants is a number like any other.
        (
            "n = Neg(c) e = Cast<to=11>(n) d = Cast<to=11>(x) f = Mul(d, e) y = Mul(f, a)",
            "n = Neg(c) e = Cast<to=11>(n) d = Cast<to=11>(x) f = Mul(d, e) y = Mul(f, b)",
        ),
    ],
)
def test_a_double_computed_in_double_has_the_tolerance_of_double(before, after):
    constants = "double a = {0.1}, double b = {0.1000000001}, float c = {2}, int64[2] s = {-1, 8}"
    head = f"g (float[N,8] x) => (double[N,8] y) <{constants}>"
    assert verdict(f"{head} {{ {before} }}", f"{head} {{ {after} }}").status == "different"
    assert verdict(f"{head} {{ {before} }}", f"{head} {{ {before.replace('y =', 'z =')} y = Identity(z) }}").passed


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("n = Neg(x) m = Mul(n, n) y = Cast<to=11>(m)", "float32"),
        ("h = Cast<to=10>(x) y = Cast<to=11>(h)", None),
        ("n = Mul(x, x) h = Cast<to=10>(n) y = Cast<to=11>(h)", "float16"),
        ("d = Cast<to=11>(x) s = Shape(x) f = Cast<to=1>(s) r = Sqrt(f) e = Cast<to=11>(r) y = Mul(d, e)", None),
        ("h = Cast<to=10>(x) s = Softmax(h) f = Cast<to=1>(s) e = Exp(f) y = Cast<to=11>(e)", "float16"),
        ("n = Neg(x) y = Cast<to=11>(n)", None),
        ("d = Cast<to=11>(x) y = Exp(d)", None),
        ("b = Greater(x, x) y = Cast<to=11>(b)", None),
    ],
)
def test_the_narrowest_float_that_rounds_counts(body, expected):
    model = text.parse(f"g (float[N,8] x) => (double[N,8] y) {{ {body} }}")
    inferred = onnx.shape_inference.infer_shapes(model)
    types = {value.name: value.type.tensor_type.elem_type for value in (*inferred.graph.value_info, *model.graph.input)}
    types["y"] = 11
    assert may_be_narrower(model)
    assert narrowest(model, types) == ({"y": np.dtype(expected)} if expected else {})


def test_a_model_of_a_single_float_type_is_not_analysed():
    assert not may_be_narrower(text.parse("g (float[N] x, int64[N] i) => (float[N] y) { y = Neg(x) }"))
    assert not may_be_narrower(text.parse("g (double[N] x) => (float[N] y) { y = Cast<to=1>(x) }"))


FAINT = "g (float[N,16] x) => (float[N,16] y) <float c = {-16}> { z = Add(x, c) y = Sigmoid(z) }"


def test_a_faint_sigmoid_is_rounded_like_1():
    model = text.parse(FAINT)
    assert unit_ranges(model) == {"y": 1.0}
    other = "z = Add(x, c) n = Neg(z) s = Sigmoid(n) y = Sub(o, s)"
    assert verdict(
        FAINT, FAINT.replace("z = Add(x, c) y = Sigmoid(z)", other).replace("-16}", "-16}, float o = {1}")
    ).passed
    assert verdict(FAINT, FAINT.replace("-16", "-7")).status == "different"


@pytest.mark.parametrize("op", ["Exp", "Softmax", "Tanh"])
def test_other_operators_have_no_unit_range(op):
    assert unit_ranges(text.parse(FAINT.replace("Sigmoid", op))) == {}
