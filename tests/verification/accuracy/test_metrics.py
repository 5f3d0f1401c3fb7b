"""How near outputs are as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surgery.verification.accuracy.metrics import LOST, METRICS, SAME, measure, measure_value


def _f32(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


def test_metrics_of_known_vectors() -> None:
    x = _f32(3, 4)
    assert measure(x, x) == SAME
    found = measure(x, _f32(3, 3))
    assert found["cosine"] == pytest.approx(21 / (5 * 18**0.5))
    assert found["snr"] == pytest.approx(10 * np.log10(25))
    assert found["max_rel"] == pytest.approx(0.25)
    assert measure(_f32(0, 0), _f32(0, 0)) == SAME
    nothing = {"cosine": 0.0, "snr": float("-inf"), "max_rel": float("inf"), "top1": 0.0}
    assert measure(_f32(0, 0), _f32(0, 1)) == nothing
    assert measure(x, -x)["cosine"] == pytest.approx(-1.0)
    assert measure(x, x * 0)["snr"] == pytest.approx(0.0)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_metrics_do_not_overflow(scale: float) -> None:
    x = _f32(3, 4) * np.float32(scale)
    assert measure(x, x * np.float32(0.75))["snr"] == pytest.approx(20 * np.log10(4))


def test_elements_not_finite_on_both_sides_are_left_out() -> None:
    assert measure(_f32(np.inf, 1, np.nan), _f32(np.inf, 1, np.nan)) == SAME


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_elements_that_become_nan_or_infinite_are_lost(odd: float) -> None:
    assert measure(_f32(1, 2, 3), _f32(1, 2, odd)) == LOST


@pytest.mark.parametrize("changed", [-np.inf, 3.0, np.nan])
def test_an_infinity_must_be_kept(changed: float) -> None:
    assert measure(_f32(1, 2, np.inf), _f32(1, 2, changed)) == LOST


@pytest.mark.parametrize(
    ("shape", "agreeing"),
    [((2, 6), 0.5), ((12,), 1.0), ((1, 3, 2, 2), 0.75)],
)
def test_top1_compares_the_largest_element_per_class(shape: tuple[int, ...], agreeing: float) -> None:
    x = np.arange(12, dtype=np.float32).reshape(shape)
    y = x.copy()
    y[(0, 0)[: len(shape)] if len(shape) < 4 else (0, 0, 0, 0)] = 9.5
    assert measure(x, y)["top1"] == pytest.approx(agreeing)


@pytest.mark.parametrize(
    ("before", "after"),
    [([1, 2, 3, 4], [1, 2, 3, 5]), ([True] * 4, [True] * 3 + [False]), (["a"] * 4, ["a"] * 3 + ["b"])],
)
def test_non_float_elements_are_equal_or_wrong(before: list[Any], after: list[Any]) -> None:
    assert measure(np.array(before), np.array(before)) == SAME
    found = measure(np.array(before), np.array(after))
    assert found == {"cosine": 0.75, "snr": pytest.approx(10 * np.log10(4)), "max_rel": 1.0, "top1": 0.75}
    assert measure(np.array(before), np.array(["c"] * 4))["cosine"] == 0.0


def test_another_shape_is_lost() -> None:
    assert measure_value(_f32(1, 2), _f32(1, 2, 3)) == LOST
    assert measure_value([_f32(1)], [_f32(1), _f32(2)]) == LOST
    assert measure_value(_f32(1, 2), np.array([1, 2])) == LOST


def test_the_worst_tensor_of_a_sequence_counts() -> None:
    found = measure_value([_f32(1, 0), _f32(1, 1)], [_f32(1, 0), _f32(1, 0)])
    assert found["cosine"] == pytest.approx(0.5**0.5)


@pytest.mark.parametrize(
    ("metric", "limit", "value"),
    [("snr", 30.0, 30.0), ("cosine", 0.99, 0.99), ("max_rel", 0.1, 0.1), ("top1", 0.9, 0.9)],
)
def test_a_limit_that_is_reached_uses_all_of_the_budget(metric: str, limit: float, value: float) -> None:
    assert METRICS[metric].use(value, limit) == pytest.approx(1.0)


def test_errors_of_twice_the_power_use_twice_as_much() -> None:
    x, rng = np.ones(1000), np.random.default_rng(0)
    noise = rng.standard_normal(1000) * 1e-3
    for name, limit, near in (("snr", 30.0, 1e-6), ("cosine", 0.999, 0.1)):
        use = METRICS[name].use
        once, twice = (use(measure(x, x + noise * factor)[name], limit) for factor in (1.0, 2**0.5))
        assert twice == pytest.approx(2 * once, rel=max(near, 1e-3)), name
