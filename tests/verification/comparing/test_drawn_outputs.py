"""The statistics in which the distributions of drawn outputs are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surgery.verification.comparing.moments import (
    REPEATS,
    _flat,
    _joint,
    _numbers,
    _scores,
    _stacked,
    _standardized,
    _summary,
    compare,
)

RUNS = 80 * REPEATS
"""The largest score of 80 seeds is the root of 80."""


def _runs(seed: int, size: int = 6) -> Any:
    return np.random.default_rng(seed).standard_normal((RUNS, size))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (lambda values: values + np.array([0, 0, 1, 0, 0, 0]), "the mean of an element of output 'y' differs: 8."),
        (lambda values: values * np.array([1, 1, 3, 1, 1, 1]), "the variance of an element of output 'y' differs: "),
        (lambda values: values, ""),
    ],
)
def test_the_first_statistic_that_differs_is_named(changed: Any, words: str) -> None:
    found = compare({"y": [*_runs(1)]}, {"y": [*changed(_runs(2))]})
    assert found.startswith(words) and bool(found) is bool(words)
    # Of 26 statistics: the means and variances of 6 elements, and 14 of the whole output.
    assert not words or found.endswith(f"standard errors over {RUNS} runs, where chance allows 7.0")


def test_outputs_that_move_together_in_one_model_only() -> None:
    first, second, third = (_runs(seed) for seed in (1, 2, 3))
    apart, together = {"y": [*first], "z": [*second]}, {"y": [*third], "z": [*third]}
    found = compare(apart, together)
    assert found.startswith("the correlation of the means of outputs 'y' and 'z' differs: 8.")
    assert found.endswith("where chance allows 7.1")
    # Text is not compared.
    text = {"y": [np.array(["a"])] * 4}
    assert compare(text, text) == "" == compare({"y": apart["y"], "z": text["y"]}, {"y": apart["y"], "z": text["y"]})


def test_statistics_of_an_output() -> None:
    a, b = np.array([[1.0, -1.0]]), np.array([[0.5, 2.0]])
    found = [
        (what, value.tolist()) for what, value in _numbers(a, b, np.array([[3.0, 3.0]]), np.array([[np.nan, np.inf]]))
    ]
    assert found == [
        ("the mean of an element", [[0.5, -3.0]]),
        ("the variance of an element", [[0.75, -3.0]]),
        ("the mean", [[-1.25]]),
        ("the spread", [[-1.125]]),
        # The mean magnitude, and the shares up to -2, -1, -0.5, 0, 0.5, 1 and 2.
        ("the distribution", [[-0.25]]),
        *(("the distribution", [[share]]) for share in (0.0, 0.5, 0.5, 0.5, 0.0, 0.5, 0.0)),
        ("the dependence between elements", [[-1.5625]]),
        ("the number of distinct values", [[-0.5]]),
        ("the share of NaN", [[-0.5]]),
        ("the share of infinities", [[-0.5]]),
    ]


def test_statistics_of_two_outputs() -> None:
    standard = {
        "y": (np.array([[1.0, 3.0]]), np.array([[2.0, 0.0]])),
        "z": (np.array([[5.0, -1.0]]), np.array([[4.0, 2.0]])),
    }
    raw = {"y": (np.array([[7, 8]]), np.array([[7, 8]])), "z": (np.array([[7, 9]]), np.array([[6, 9]]))}
    found = [(what, value.tolist()) for what, value in _joint(raw, standard, "y", "z")]
    means = ("the correlation of the means", [[2.0 * 2.0 - 1.0 * 3.0]])
    assert found == [means, ("the correlation", [[-3.0]]), ("the share of equal elements", [[0.5]])]
    # Outputs of unlike size are compared by their means.
    longer = {**standard, "z": (np.array([[5.0, -1.0, 2.0]]), np.array([[4.0, 2.0, 3.0]]))}
    assert [(what, value.tolist()) for what, value in _joint(raw, longer, "y", "z")] == [means]


def test_values_of_all_runs_as_one_array() -> None:
    ones = [np.full((2, 3), n) for n in range(4)]
    stacked = _stacked(ones, ones[::-1])
    assert stacked is not None and [side.shape for side in stacked] == [(4, 6), (4, 6)]
    assert stacked[0][:, 0].tolist() == [0, 1, 2, 3] and stacked[1][:, 0].tolist() == [3, 2, 1, 0]
    # Sequences are joined, and complex numbers are two.
    assert _flat([np.array([1 + 2j, 3]), np.array(4)]).tolist() == [1, 3, 2, 0, 4]
    assert _flat([]).tolist() == []
    assert _stacked([np.zeros(0)], [np.zeros(0)]) is None
    assert _stacked([np.array([b"a"])], [np.array([b"a"])]) is None
    # Of a large output, elements from one end to the other.
    large = [np.arange(100_000)]
    chosen = _stacked(large, large)
    assert chosen is not None and chosen[0].shape == (1, 2048)
    assert chosen[0][0, 0] == 0 and chosen[0][0, -1] == 99_999 and np.ptp(np.diff(chosen[0][0])) <= 1


def test_outputs_of_varying_size_as_a_summary() -> None:
    found = _summary(np.array([4.0, -1.0, np.nan, 0.0]))
    assert found[:4].tolist() == pytest.approx([4, 1, 17 / 3, 5 / 3])
    assert (found[4], found[9], found[14], len(found)) == (-1.0, 0.0, 4.0, 15)
    assert _summary(np.array([np.inf])).tolist() == [0.0] * 15
    stacked = _stacked([np.ones(2), np.ones(3)], [np.ones(2), np.ones(2)])
    assert stacked is not None and stacked[0][:, 0].tolist() == [2, 3]


def test_elements_are_scaled_over_both_models() -> None:
    nan = np.nan
    a, b = _standardized(np.array([[1.0, 5.0, nan]]), np.array([[3.0, 5.0, 2.0]]))
    assert (a.tolist(), b.tolist()) == ([[-1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0]])


def test_a_score_is_a_sum_over_seeds_in_units_of_the_root_of_squares() -> None:
    # The sums over the runs with a seed are 3 and -4; the second statistic is always 0.
    differences = np.zeros((2 * REPEATS, 2))
    differences[0, 0], differences[1, 0], differences[-1, 0] = 1.0, 2.0, -4.0
    assert _scores(differences).tolist() == [1 / 5, 0.0]
