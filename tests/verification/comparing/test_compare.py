"""Comparison: what is the same, what is close, and which tolerance was needed."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from surgery.base.promises import Parity
from surgery.verification.comparing.compare import ComparisonRules, OutputDistances, Tolerance, compare, same_bits

NAN2 = np.array([0xFFC00001], np.uint32).view(np.float32)


def _difference(a, b, promise=Parity.CLOSE, **rules) -> OutputDistances:
    total = OutputDistances()
    compare({"y": a}, {"y": b}, ComparisonRules(promise, **rules), total)
    return total


def _f32(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (_f32(1, 2), _f32(1, 2), True),
        (_f32(0.0), _f32(-0.0), False),
        (_f32(np.nan), NAN2, True),
        (_f32(np.nan, 1), _f32(1, np.nan), False),
        (_f32(np.inf), _f32(-np.inf), False),
        (_f32(1), _f32(np.nextafter(np.float32(1), np.float32(2))), False),
        (_f32(1), np.array([1.0]), False),
        (_f32(1), _f32(1).reshape(1, 1), False),
        (np.array(["a"], object), np.array(["a"], object), True),
        (np.array(["a"], object), np.array(["b"], object), False),
        (np.zeros((0, 3)), np.zeros((0, 3)), True),
        (np.array([1.0], ml_dtypes.bfloat16), np.array([1.0], ml_dtypes.bfloat16), True),
        (np.array([-1], ml_dtypes.int4), np.array([1], ml_dtypes.int4), False),
        (np.array([np.nan + 1j]), np.array([np.nan + 1j]), True),
        (np.arange(6.0)[::2], np.array([0.0, 2.0, 4.0]), True),
    ],
    ids=str,
)
def test_the_same_bits(a, b, same):
    assert same_bits(a, b) is same
    assert same_bits(b, a) is same
    assert _difference(a, b).bits is not same


def test_a_difference_far_into_a_large_tensor_is_found():
    a = np.zeros(3_000_001, np.float32)
    b = a.copy()
    b[-1] = -0.0
    assert not same_bits(a, b)
    b[-1], a[0] = 1, 1
    total = _difference(a, b)
    assert total.beyond
    assert "[3000000]: 1 instead of 0" in total.message


def test_the_sign_of_a_zero_is_within_any_tolerance_but_not_the_same():
    total = _difference(_f32(0.0, 1), _f32(-0.0, 1))
    assert (total.bits, total.beyond) == (True, False)
    assert total.as_needed() == {"rtol": 0.0, "atol": 0.0, "factor": 0.0}


@pytest.mark.parametrize("scale", [1e-29, 1.0, 1e9])
def test_the_tolerance_follows_the_range_of_the_output(scale):
    a = _f32(1, -1, 0.5, 0) * np.float32(scale)
    assert not _difference(a, a * np.float32(1 + 1e-5)).beyond
    assert _difference(a, a * np.float32(1 + 1e-3)).beyond
    assert not _difference(a, a + np.float32(1e-5 * scale)).beyond
    assert _difference(a, a + np.float32(1e-3 * scale)).beyond


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (_f32(1, np.nan), _f32(1, 2)),
        (_f32(1, 2), _f32(1, np.nan)),
        (_f32(1, np.inf), _f32(1, 3e38)),
        (_f32(np.inf, 1), _f32(-np.inf, 1)),
        (_f32(0, 0), _f32(0, 1e-30)),
        (np.array([1, 2]), np.array([1, 3])),
        (np.array([True]), np.array([False])),
        (np.array(["a"], object), np.array(["b"], object)),
        (_f32(1), np.array([1.0])),
        (_f32(1, 1), _f32(1)),
        ([_f32(1)], [_f32(1), _f32(1)]),
        ([_f32(1)], _f32(1)),
        (None, _f32(1)),
        (_f32(1), None),
    ],
    ids=str,
)
def test_some_differences_exceed_any_tolerance(a, b):
    total = _difference(a, b, rtol=1e6, atol=1e6)
    assert total.beyond
    assert total.as_needed() is None
    assert total.message.startswith("output 'y'")


def test_sequences_and_optionals_are_compared_inside():
    assert not _difference([_f32(1), _f32(2)], [_f32(1), _f32(2)]).bits
    assert "output 'y'[1][0]: 3 instead of 2" in _difference([_f32(1), _f32(2)], [_f32(1), _f32(3)]).message
    assert not _difference(None, None).bits


def test_missing_and_new_outputs_are_named():
    total = OutputDistances()
    compare({"y": _f32(1)}, {"z": _f32(1)}, ComparisonRules(Parity.CLOSE), total)
    assert "output 'y' is missing" in total.message


def test_outputs_of_random_operators_are_compared_by_shape_and_type():
    random = frozenset({"y"})
    assert not _difference(_f32(1, 2), _f32(3, 4), random=random).bits
    assert _difference(_f32(1, 2), _f32(3), random=random).beyond
    assert _difference(_f32(1, 2), np.array([1.0, 2.0]), random=random).beyond


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_the_needed_tolerance_is_the_smallest_that_passes(dtype):
    rng = np.random.default_rng(0)
    a = rng.standard_normal(1000).astype(dtype)
    b = (a.astype(np.float64) * (1 + 0.05 * rng.standard_normal(1000))).astype(dtype)
    needed = _difference(a, b).as_needed()
    assert needed is not None
    assert not _difference(a, b, rtol=needed["rtol"] * 1.001, atol=needed["atol"] * 1.001).beyond
    assert _difference(a, b, rtol=needed["rtol"] * 0.999, atol=needed["atol"] * 0.999).beyond


def test_the_worst_element_is_shown():
    a = np.ones((2, 3), np.float32)
    b = a.copy()
    b[0, 1], b[1, 2] = 1.001, 1.25
    total = _difference(a, b)
    assert total.message == "output 'y'[1, 2]: 1.25 instead of 1"


def test_complex_numbers_are_judged_by_their_parts():
    a = np.array([1 + 1j], np.complex64)
    assert not _difference(a, a + np.complex64(1e-6j)).beyond
    assert _difference(a, a + np.complex64(1e-2j)).beyond


def test_a_tolerance_is_at_least_one_rounding_step():
    assert Tolerance.of(np.dtype(np.float16), rtol=1e-6, atol=0.0) == Tolerance(2.0**-10, 2.0**-10)
    assert Tolerance.of(np.dtype(np.float32), rtol=1e-6, atol=1e-6) == Tolerance(1e-6, 1e-6)


def test_defaults_grow_with_the_rounding_step_():
    order = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
    limits = [Tolerance.of(np.dtype(dtype)) for dtype in order]
    assert [item.rtol for item in limits] == sorted(item.rtol for item in limits)
    assert 1e-4 < limits[1].rtol < 2e-4
    assert 1e-5 < limits[1].atol < 2e-5
