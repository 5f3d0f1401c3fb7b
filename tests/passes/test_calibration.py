"""Statistics that are gathered from one array at a time, against those of all numbers at once."""

import numpy as np
import pytest
from surgery.passes.precision._calibration import BINS, ChannelStatistics, Histogram, Statistics, choose_range
from surgery.passes.precision._integers import affine, integer_type

from surgery import Refusal

UINT8 = integer_type("uint8")


def draw(seed: int) -> list[np.ndarray]:
    """Draw arrays whose ranges grow, shrink and change their sign."""
    rng = np.random.default_rng(seed)
    sizes, scales, shifts = rng.integers(1, 4000, 9), 10.0 ** rng.uniform(-6, 6, 9), rng.normal(0, 3, 9)
    arrays = [rng.normal(shift, 1, size) * scale for size, scale, shift in zip(sizes, scales, shifts)]
    return [np.where(rng.random(each.shape) < 0.2, 0.0, each).astype(np.float32) for each in arrays]


def gathered(arrays: list[np.ndarray]) -> Statistics:
    found = Statistics()
    for array in arrays:
        found.add(array)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_histogram_counts_every_number_in_its_bin(seed: int) -> None:
    arrays = draw(seed)
    found = gathered(arrays)
    whole = np.concatenate(arrays).astype(np.float64)
    assert found.histogram is not None
    counts, edges = np.histogram(whole[whole != 0], bins=found.histogram.edges)
    np.testing.assert_array_equal(found.histogram.counts, counts)
    np.testing.assert_array_equal(found.histogram.edges, edges)
    assert found.histogram.counts.sum() + found.zeros == found.count == whole.size
    assert (found.low, found.high) == (whole.min(), whole.max())
    assert BINS // 4 < len(found.histogram.counts) <= BINS


@pytest.mark.parametrize("seed", range(20))
def test_a_histogram_does_not_depend_on_the_order(seed: int) -> None:
    arrays = draw(seed)
    shuffled = [arrays[place] for place in np.random.default_rng(seed).permutation(len(arrays))]
    one, other, whole = gathered(arrays), gathered(shuffled), gathered([np.concatenate(arrays)])
    for found in (other, whole):
        assert one.histogram is not None
        assert found.histogram is not None
        assert found.histogram.exponent == one.histogram.exponent
        assert found.histogram.first == one.histogram.first
        np.testing.assert_array_equal(found.histogram.counts, one.histogram.counts)


def test_bin_width_does_not_depend_on_the_order_of_arrays() -> None:
    histograms = []
    for arrays in ([63.99, 64.01], [64.01, 63.99]):
        histogram = Histogram()
        for number in arrays:
            histogram.add(np.array([number], np.float32))
        histograms.append((histogram.exponent, histogram.first, histogram.counts.tolist()))
    assert histograms[0] == histograms[1]


@pytest.mark.parametrize("percentile", [99.0, 99.9, 99.99])
@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_exact_within_one_bin(seed: int, percentile: float) -> None:
    rng = np.random.default_rng(seed)
    arrays = [np.maximum(rng.normal(-0.3, scale, 20_000), -2).astype(np.float32) for scale in (0.1, 1, 3)]
    found = gathered(arrays)
    low, high = choose_range(found, "percentile", UINT8, percentile=percentile)
    tail = (100 - percentile) / 2
    expected = np.percentile(np.concatenate(arrays), [tail, 100 - tail], method="inverted_cdf")
    assert found.histogram is not None
    assert np.abs(np.array([low, high]) - expected).max() <= found.histogram.width


def squared_error(numbers: np.ndarray, low: float, high: float) -> float:
    used = affine(low, high, UINT8)
    return float(((used.dequantize(used.quantize(numbers), np.dtype(np.float64)) - numbers) ** 2).sum())


@pytest.mark.parametrize("draws", ["normal", "laplace", "rectified", "outlier", "bounded"])
def test_mse_ranges_are_close_to_an_exhaustive_search(draws: str) -> None:
    rng = np.random.default_rng(5)
    numbers = {
        "normal": rng.normal(0.5, 1, 30_000),
        "laplace": rng.laplace(0, 1, 30_000),
        "rectified": np.maximum(rng.normal(0, 1, 30_000), 0),
        "outlier": np.append(rng.normal(0, 1, 30_000), 60.0),
        "bounded": np.clip(rng.normal(3, 4, 30_000), 0, 6),
    }[draws].astype(np.float32)
    low, high = choose_range(gathered([numbers[:11_000], numbers[11_000:]]), "mse", UINT8)
    ends = np.linspace(0.05, 1, 39)
    least = min(squared_error(numbers, numbers.min() * a, numbers.max() * b) for a in ends for b in ends)
    assert squared_error(numbers, low, high) <= 1.02 * least
    if draws != "bounded":
        assert squared_error(numbers, low, high) < squared_error(numbers, float(numbers.min()), float(numbers.max()))


def test_entropy_cuts_off_a_few_outliers_and_keeps_a_uniform_range() -> None:
    rng = np.random.default_rng(5)
    numbers = np.append(rng.normal(0, 1, 100_000), [400.0, -380.0]).astype(np.float32)
    low, high = choose_range(gathered([numbers]), "entropy", UINT8)
    assert -30 < low < -2
    assert 2 < high < 30
    even = rng.uniform(-1, 1, 100_000).astype(np.float32)
    assert choose_range(gathered([even]), "entropy", UINT8) == pytest.approx((-1, 1), abs=0.05)


def test_moving_ranges_are_the_mean_of_the_first_sets() -> None:
    found = gathered([np.array([-1, 2], np.float32), np.array([-3, 4], np.float32), np.array([-2, 9], np.float32)])
    assert choose_range(found, "moving", UINT8) == pytest.approx((-2, 5))


def test_ranges_include_zero() -> None:
    found = gathered([np.array([3, 4, 5], np.float32)])
    for method in ("minmax", "moving", "percentile", "mse", "entropy"):
        low, high = choose_range(found, method, UINT8)  # type: ignore[arg-type]
        assert low == 0
        assert 4 < high <= 5.01
        used = affine(low, high, UINT8)
        assert used.dequantize(used.quantize(np.zeros(1, np.float32)), np.dtype(np.float32)) == 0


def test_data_without_a_range_are_refused() -> None:
    for numbers, reason in (
        ([np.nan, 1], "NaN"),
        ([np.inf], "infinite"),
        ([0, 0], "zero"),
        ([], "no calibration input"),
    ):
        with pytest.raises(Refusal, match=reason):
            choose_range(gathered([np.array(numbers, np.float32)]), "minmax", UINT8)


def test_channel_statistics_cover_all_arrays() -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.normal(0, 2, (size, 5, 3)).astype(np.float32) for size in (1, 4, 7)]
    found = ChannelStatistics(1)
    for array in arrays:
        found.add(array)
    whole = np.concatenate(arrays)
    np.testing.assert_allclose(found.means, whole.mean(axis=(0, 2), dtype=np.float64), rtol=1e-12)
    np.testing.assert_array_equal(found.largest, np.abs(whole).max(axis=(0, 2)))
