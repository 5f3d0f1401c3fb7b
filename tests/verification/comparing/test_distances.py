"""Distances of two results from float64, and their typical size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surgery.base.promises import Parity
from surgery.verification.comparing.compare import ComparisonRules, TensorPair
from surgery.verification.comparing.distances import (
    Distances,
    Float64Case,
    Float64Output,
    _distinct,
    _largest,
    _limit,
    _mean,
    _power,
    _ratio,
    cases,
    typical,
)
from surgery.verification.comparing.tolerance import Tolerance
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding

TOLERANCE = Tolerance(rtol=0.01, atol=0.001)
EPS = 2.0**-24
"""Half a rounding step of float32 at 1."""


def _f32(*values: float) -> Any:
    return np.array(values, np.float32)


def test_quotients_by_zero() -> None:
    values = np.array([0.0, 2.0, 3.0, np.inf])
    assert _ratio(values, np.array([0.0, 4.0, 0.0, 2.0])).tolist() == [0.0, 0.5, np.inf, np.inf]
    assert _ratio(values, 2.0).tolist() == [0.0, 1.0, 1.5, np.inf]
    assert _ratio(np.array([np.inf]), np.inf).tolist() == [0.0]
    assert _largest(np.array([1.0, 3.0]), np.array([1.0, 2.0])) == 1.5
    assert 0 < _largest(np.zeros(2), np.ones(2)) < 1e-300
    assert _mean(np.array([1.0, 4.0])) == pytest.approx(2.0) and _mean(np.array([])) == 1.0


def test_distances_of_both_sides() -> None:
    original, changed, truth = _f32(1.0, 2.0, 4.0, 0.0), _f32(1.25, 2.0, 3.0, 0.5), np.array([1.5, 2.0, 4.0, 0.25])
    found = Distances.of(original, changed, truth, TOLERANCE)
    # An element that is right to the last bit has half a rounding step.
    assert found.near.tolist() == [0.5, 2 * EPS, 4 * EPS, 0.25]
    assert found.far.tolist() == [0.25, 2 * EPS, 1.0, 0.25]
    # The tolerance is scaled by the largest element, 4.
    assert found.allowed.tolist() == pytest.approx([0.014, 0.024, 0.044, 0.004])
    assert (found.share, found.lost) == (0.125, False)
    assert found.ratios.tolist() == [0.5, 1.0, 1.0 / (4 * EPS), 1.0]


def test_distances_of_what_is_not_finite() -> None:
    nan, inf = np.nan, np.inf
    found = Distances.of(_f32(1, nan, 1, 1), _f32(1, 1, inf, 1), np.array([1.5, 1, 1, 1.25]), TOLERANCE)
    assert found.near.tolist() == [0.5, 0.0, 0.0, 0.25] and found.far.tolist() == [0.5, 0.0, 0.0, 0.25]
    assert not found.lost
    assert Distances.of(_f32(1, 1), _f32(1, 1), np.array([1, nan]), TOLERANCE).lost
    assert not Distances.of(_f32(1, nan), _f32(1, nan), np.array([1, nan]), TOLERANCE).lost
    # A share of nothing.
    assert Distances.of(_f32(0), _f32(0), np.zeros(1), TOLERANCE).share == 0.0
    assert Distances.of(_f32(0), _f32(0), np.ones(1), TOLERANCE).share == 1.0


def test_the_distance_of_weights_that_are_rounded_again_counts_for_the_original() -> None:
    other = [_f32(1.75, 2.0), _f32(np.nan, 2.5)]
    found = Distances.of(_f32(1.0, 2.0), _f32(1.0, 2.0), np.array([1.5, 2.0]), TOLERANCE, other)
    assert found.near.tolist() == [0.5, 0.5] and found.far.tolist() == [0.5, 2 * EPS]


def test_the_typical_size_of_equal_errors_is_theirs() -> None:
    rng = np.random.default_rng(0)
    magnitudes = rng.uniform(1, 2, (16, 16))
    assert typical(np.full((16, 16), 0.25), magnitudes) == pytest.approx(0.25)
    assert typical(np.zeros((2, 3)), np.ones((2, 3))).tolist() == [[0.0] * 3] * 2
    # Errors of 0 are ignored, and repeated rows count once.
    errors = np.where(rng.random((16, 16)) < 0.5, 0.25, 0.0)
    assert typical(errors, magnitudes) == pytest.approx(0.25)
    errors = np.array([[1.0, 4.0]] + [[2.0, 2.0]] * 30)
    assert typical(errors, np.ones((31, 2)))[30] == pytest.approx(typical(errors[:2], np.ones((2, 2)))[1])


def test_a_noisy_row_is_judged_by_its_own_size() -> None:
    rng = np.random.default_rng(1)
    errors = np.exp(rng.normal(0, 0.1, (16, 64)))
    errors[3] *= 100
    found = typical(errors, rng.uniform(1, 2, (16, 64)))
    assert found[3].min() > 15 and found[[0, 1, 2, 4]].max() < 3
    # And the columns that it crosses are not.
    assert found[0].max() / found[0].min() < 2


def test_errors_that_grow_with_the_magnitude() -> None:
    magnitudes = np.exp(np.random.default_rng(2).uniform(-3, 3, 512))
    known = np.ones(512, bool)
    for exponent in (0.0, 0.5, 1.0):
        assert np.exp(_power(exponent * np.log(magnitudes), magnitudes, known)) == pytest.approx(magnitudes**exponent)
    # Not faster than the magnitude, and not against it.
    steep, falling = (_power(factor * np.log(magnitudes), magnitudes, known) for factor in (2.0, -1.0))
    assert np.ptp(steep) == pytest.approx(np.ptp(np.log(magnitudes))) and np.ptp(falling) == 0.0
    # Of fewer errors, the mean.
    few = known & (np.arange(512) < 255)
    assert _power(np.log(magnitudes), magnitudes, few).tolist() == [float(np.log(magnitudes)[few].mean())] * 512
    zero = np.where(np.arange(512) < 255, magnitudes, 0.0)
    assert np.ptp(_power(np.log(magnitudes), zero, known)) == 0.0


def test_slices_with_equal_sums_are_one() -> None:
    errors = np.array([[1.0, 2.0], [2.0, 1.0], [5.0, 0.0]])
    first, places = _distinct(errors, np.ones((3, 2)), 0)
    assert first.tolist() == [0, 2] and places.tolist() == [0, 0, 1]
    first, places = _distinct(errors, np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 1.0]]), 0)
    assert first.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("near", "limit"),
    [
        (np.ones(32), 4.0),
        (np.ones(31), 8.0),
        (np.array([1.0] * 40 + [32.0]), 4.0),
        (np.array([1.0] * 40 + [33.0]), 16.0),
    ],
)
def test_how_many_times_the_largest_error_is_allowed(near: Any, limit: float) -> None:
    assert _limit(Distances(near, near, np.ones(near.shape), near, 0.0, False)) == limit


def _case(original: Any, changed: Any, truth: Any) -> Float64Case:
    run = Run(Binding({"N": 2}), {}, {})
    return Float64Case(run, TensorPair("y", (), original, changed, run.binding.as_json()), truth, TOLERANCE)


def _kinds(*cases: Float64Case, doubt: float = 0.25) -> list[str]:
    return [finding.kind for finding in Float64Output(cases, doubt).findings()]


def test_without_float64_the_tolerance_decides() -> None:
    original = _f32(*range(1, 9))
    near, far = original * np.float32(1.005), original * np.float32(1.05)
    assert _kinds(_case(original, near, None), _case(original, far, None)) == ["right", "wrong"]
    assert _kinds(_case(original, original, None)) == []
    (finding,) = Float64Output([_case(original, original + _f32(*[0] * 6, 1, 0), None)], 0.25).findings()
    assert finding.element is not None and finding.element.index == (6,)


def test_an_error_is_measured_by_those_of_the_original() -> None:
    rng = np.random.default_rng(3)
    truth = rng.uniform(1, 2, 64)
    original = (truth + rng.normal(0, 0.02, 64)).astype(np.float32)
    changed = (truth + rng.normal(0, 0.02, 64)).astype(np.float32)
    # Both are as far from float64, whatever the tolerance says.
    assert _kinds(_case(original, changed, truth)) == ["right"]
    wrong = changed.copy()
    wrong[5] += 1.0
    case = _case(original, wrong, truth)
    (finding,) = Float64Output([case], 0.25).findings()
    assert finding.kind == "wrong" and finding.element is not None and finding.element.index == (5,)
    assert finding.times > 4 and finding.truth == truth[5]
    # The original's own errors leave nothing to compare.
    noisy = (truth * (1 + rng.normal(0, 0.2, 64))).astype(np.float32)
    noisier = noisy.copy()
    noisier[5] += 100
    assert _kinds(_case(noisy, noisier, truth)) == ["noise"]
    lost = truth.copy()
    lost[9] = np.nan
    assert _kinds(_case(original, wrong, lost)) == ["noise"]


def test_an_error_within_the_tolerance_is_suspicious_if_the_original_is_much_nearer() -> None:
    truth = np.random.default_rng(4).uniform(1, 2, 64)
    original, changed = truth.astype(np.float32), truth.astype(np.float32)
    changed[5] *= np.float32(1.006)
    assert _kinds(_case(original, changed, truth)) == ["suspicious"]
    assert _kinds(_case(original, changed, truth), doubt=0.75) == ["right"]
    # Too few errors to know their size.
    few = truth[:4].astype(np.float32), np.append(truth[:3], truth[3] * 1.006).astype(np.float32)
    assert _kinds(_case(*few, truth[:4])) == ["right"]
    enough = [_case(few[0], few[0], truth[:4])] * 7
    assert _kinds(*enough, _case(*few, truth[:4])) == ["suspicious"]
    worse = _case(few[0], (truth[:4] * 1.05).astype(np.float32), truth[:4])
    assert _kinds(worse) == ["wrong"]


def test_errors_that_are_larger_over_all_runs_are_suspicious_above_the_doubt() -> None:
    rng = np.random.default_rng(5)
    truth = rng.uniform(1, 2, 64)
    original = (truth + rng.normal(0, 1e-5, 64)).astype(np.float32)
    changed = (truth + rng.normal(0, 1.5e-4, 64)).astype(np.float32)
    output = Float64Output([_case(original, changed, truth)], 0.01)
    assert output.count == 64 and 4 < output.ratio < 40
    assert [finding.kind for finding in output.findings()] == ["suspicious"]
    # Of fewer errors, the mean shows nothing.
    few = _case(original[:60], changed[:60], truth[:60])
    assert Float64Output([few], 0.01).ratio > 4


def test_which_outputs_are_measured() -> None:
    one, wide = np.ones(3, np.float32), np.ones(3)
    outputs = {
        "y": one,
        "random": one,
        "gone": one,
        "whole": np.ones(3, np.int64),
        "wide": wide,
        "empty": one[:0],
        "s": [one, one],
    }
    run = Run(Binding({"N": 2}), {}, outputs)
    rules = ComparisonRules(Parity.CLOSE, random=frozenset({"random"}))
    given = {**outputs, "s": [one, one]}
    del given["gone"]
    again = [{"y": one * 2, "s": [one]}, {"y": np.ones(2, np.float32)}]
    found = [*cases(run, given, {"y": wide, "wide": wide, "s": [wide, np.ones(2)]}, rules, again)]
    assert [len(case.rerounded) for case in found] == [1, 0, 1, 0]
    assert [(case.pair.name, case.pair.item, case.truth is None) for case in found] == [
        ("y", (), False), ("wide", (), True), ("s", (0,), False), ("s", (1,), True),
    ]  # fmt: skip
    assert found[0].pair.binding == run.binding.as_json()
