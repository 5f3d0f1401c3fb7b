"""Limits of a budget as text, values against them, and the shares of the budget that these use."""

from __future__ import annotations

import math

import numpy as np
import pytest

from surgery.verification.accuracy.budget import against, by_output, describe, missing, read_argument, read_limit, use
from surgery.verification.accuracy.metrics import LOST, METRICS, SAME, OutputPair, measure, measure_value, share, tell
from surgery.verification.inputs.spec import MetricLimit

SNR, TOP1, ERROR = MetricLimit("snr", 20.0), MetricLimit("top1", 0.985, "y"), MetricLimit("max_rel", 0.1)


@pytest.mark.parametrize(
    ("limit", "value", "written", "measured"),
    [
        (SNR, 33.24, "snr >= 20 dB", "SNR 33.2 dB of 20 needed"),
        (TOP1, 0.99, "y: top1 >= 98.5 %", "'y': top-1 agreement 99.0% of 98.5 needed"),
        (ERROR, 0.04, "max_rel <= 0.1", "largest error 0.04 of the range, 0.1 allowed"),
        (MetricLimit("cosine", 0.999, "z"), 0.5, "z: cosine >= 0.999", "'z': cosine 0.5 of 0.999 needed"),
    ],
)
def test_a_limit_as_text_and_a_value_against_it(limit: MetricLimit, value: float, written: str, measured: str) -> None:
    assert describe(limit) == written and against(limit, value) == measured
    assert read_argument(written) == (limit,)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (" snr>=30 ", MetricLimit("snr", 30.0)),
        ("snr >= .5dB", MetricLimit("snr", 0.5)),
        ("snr >= 1e2 dB", MetricLimit("snr", 100.0)),
        ("top1 >= 100 %", MetricLimit("top1", 1.0)),
        ("top1 >= 1", MetricLimit("top1", 1.0)),
        ("cosine >= 0", MetricLimit("cosine", 0.0)),
        ("max_rel <= 7", MetricLimit("max_rel", 7.0)),
    ],
)
def test_limits_are_read(text: str, limit: MetricLimit) -> None:
    assert read_limit(text) == limit == read_limit(text, "all")
    assert read_limit(text, "y") == MetricLimit(limit.metric, limit.value, "y")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("snr > 30", "a limit has the form 'snr >= 30 dB'"),
        ("snr >= -1", "a limit has the form 'snr >= 30 dB'"),
        ("psnr >= 30", "there is no metric 'psnr'; the metrics are cosine, snr, max_rel, top1"),
        ("snr <= 30", "'snr' takes >=, not <="),
        ("max_rel >= 1", "'max_rel' takes <=, not >="),
        ("snr >= 30 %", "'snr' is not measured in %"),
        ("cosine >= 1 dB", "'cosine' is not measured in dB"),
        ("top1 >= 101 %", "'top1' must be between 0 and 1"),
        ("cosine >= 1.5", "'cosine' must be between 0 and 1"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_limit(text)
    assert str(caught.value) == words


def test_limits_of_the_command_line_and_of_recipes() -> None:
    limits = read_argument("my:out: top1 >= 99 %,snr >= 30")
    assert limits == (MetricLimit("top1", 0.99, "my:out"), MetricLimit("snr", 30.0, "my:out"))
    assert by_output([SNR, *limits, ERROR]) == {
        "all": ["snr >= 20 dB", "max_rel <= 0.1"],
        "my:out": ["top1 >= 99 %", "snr >= 30 dB"],
    }
    assert missing([SNR, *limits], ["y"]) == "my:out"
    assert missing([SNR, *limits], ["my:out"]) is None and missing([SNR], []) is None


@pytest.mark.parametrize(
    ("limit", "value", "used"),
    [
        # Ten times the power of the error is ten decibels.
        (SNR, 20.0, 1.0),
        (SNR, 30.0, 0.1),
        (SNR, 10.0, 10.0),
        (SNR, math.inf, 0.0),
        (SNR, -math.inf, math.inf),
        (ERROR, 0.05, 0.25),
        (ERROR, 0.2, 4.0),
        (MetricLimit("max_rel", 0.0), 0.0, 0.0),
        (MetricLimit("max_rel", 0.0), 0.1, math.inf),
        (MetricLimit("cosine", 0.5), 0.75, 0.5),
        (MetricLimit("top1", 0.5), 0.0, 2.0),
    ],
)
def test_shares_of_a_budget_refer_to_the_power_of_errors(limit: MetricLimit, value: float, used: float) -> None:
    assert use(limit, value) == pytest.approx(used)


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        # signal, changed, noise, product, peak, error, agreeing
        (OutputPair(4.0, 9.0, 1.0, 3.0, 2.0, 0.5, 0.75), (0.5, 10 * math.log10(4), 0.25, 0.75)),
        (OutputPair(4.0, 0.0, 4.0, 0.0, 2.0, 2.0, 0.0), (0.0, 0.0, 1.0, 0.0)),
        (OutputPair(4.0, 4.0, 0.0, 4.0, 2.0, 0.0, 1.0), (1.0, math.inf, 0.0, 1.0)),
        (OutputPair(0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0), (0.0, -math.inf, math.inf, 1.0)),
        (OutputPair(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0), (0.0, -math.inf, math.inf, 1.0)),
    ],
)
def test_metrics_of_sums(pair: OutputPair, expected: tuple[float, ...]) -> None:
    assert tuple(metric.compute(pair) for metric in METRICS.values()) == pytest.approx(expected)


def test_metrics_of_arrays() -> None:
    x = np.array([[3.0, 4.0], [1.0, 0.0]])
    found = measure(x, x * 2)
    assert found["cosine"] == pytest.approx(1.0) and found["snr"] == pytest.approx(0.0)
    assert (found["max_rel"], found["top1"]) == (1.0, 1.0)
    assert measure(x, x[:, ::-1])["top1"] == 0.0
    # The class axis of images is the second.
    image = np.zeros((1, 2, 1, 2))
    image[0, 1, 0, 0] = 1.0
    other = image.copy()
    other[0, 0, 0, 1] = 1.0
    assert measure(image, other)["top1"] == 1.0
    other[0, 1, 0, 1] = 2.0
    assert measure(image, other)["top1"] == 0.5
    assert measure(x, x) == SAME == measure(x * 0, x * 0) and measure(np.float32(2), np.float32(3))["top1"] == 1.0


def test_elements_that_are_not_finite() -> None:
    nan, inf = np.nan, np.inf
    assert measure(np.array([1.0, 2.0]), np.array([1.0, nan])) == LOST
    assert measure(np.array([1.0, inf]), np.array([1.0, -inf])) == LOST == measure(np.array([inf]), np.array([1.0]))
    # Where the original is NaN, anything will do.
    assert (
        measure(np.array([1.0, nan]), np.array([1.0, 7.0]))
        == SAME
        == measure(np.array([1.0, inf]), np.array([1.0, inf]))
    )


def test_elements_that_are_no_floats_are_right_or_wrong() -> None:
    found = measure(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 9]))
    assert (found["cosine"], found["max_rel"], found["top1"]) == (0.75, 1.0, 0.75)
    assert found["snr"] == pytest.approx(10 * math.log10(4))
    assert measure(np.array([], np.int64), np.array([], np.int64)) == SAME


def test_values_of_unlike_form_are_lost() -> None:
    one, two = np.ones(1), np.ones(2)
    assert measure_value([one, two], [one]) == LOST == measure_value(one, two)
    assert measure_value(one, np.array([1])) == LOST
    worse = measure_value([one, two, one], [one, two * 2, one])
    assert worse["max_rel"] == 1.0 and worse["snr"] == pytest.approx(0.0)
    assert measure_value([], []) == SAME


def test_metrics_as_text() -> None:
    assert tell(SAME) == "no difference to measure"
    text = tell({"cosine": 0.5, "snr": 12.345, "max_rel": 0.123, "top1": 0.5})
    assert text == "cosine 0.5, SNR 12.3 dB, largest error 0.12 of the range, top-1 agreement 50.0%"
    assert (share(1.0, 4.0), share(0.0, 0.0), share(1.0, 0.0)) == (0.25, 0.0, math.inf)
