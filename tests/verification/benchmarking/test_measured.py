"""What a measurement shows, and which models it finds slower."""

from __future__ import annotations

from pathlib import Path

import pytest

from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.benchmarking.measurements import Comparison, Measured, Memory, _row
from surgery.verification.benchmarking.statistics import Interval

BASE = Measured("folder/a.onnx", Path("folder/a.onnx"), 0.0123456, None, 0.5)
FAST = Measured("b.onnx", None, 0.01, Interval(1.25, 1.2, 1.3125), 0.5, memory=Memory(12_345_678, 1))
SLOW = Measured("c.onnx", None, 0.02, Interval(0.5, 0.4, 0.6), 0.5)


def _comparison(*models: Measured) -> Comparison:
    return Comparison(models, BenchSpec(), 6, 1, 2, 1.5, "narrow")


def test_models_as_rows_of_text() -> None:
    assert _row(BASE) == ("folder/a.onnx", "12.35", "", "", "")
    assert _row(FAST) == ("b.onnx", "10", "1.250", "1.200 to 1.312", "12.3")


def test_a_line_for_a_prompt() -> None:
    assert repr(_comparison(BASE)) == "<Comparison with 'a.onnx' (12.3 ms)>"
    line = "<Comparison with 'a.onnx' (12.3 ms): times as fast as it: 'b.onnx' 1.250, 'c.onnx' 0.500>"
    assert repr(_comparison(BASE, FAST, BASE, SLOW)) == line
    assert "b.onnx" in _comparison(BASE, FAST)._repr_html_() and "95 % interval" in _comparison(BASE)._repr_html_()


def test_models_relative_to_the_first() -> None:
    found = _comparison(BASE, FAST, SLOW)
    assert (found.baseline, found.others) == (BASE, (FAST, SLOW))
    assert _comparison(BASE, SLOW).speed == SLOW.speed
    with pytest.raises(ValueError):
        _ = found.speed
    # Evidence is the lower end of the interval.
    assert found.slower_than(1.2) == (SLOW,) and found.slower_than(1.25) == (FAST, SLOW)
    assert _comparison(BASE, BASE).slower_than(0.0) == (BASE,) and found.slower_than(0.4) == ()


def test_an_interval() -> None:
    found = Interval(2.0, 1.5, 3.0)
    assert found.half_width == 0.375
    assert found.holds(1.5) and not found.holds(1.6)
    assert found.reaches(3.0) and not found.reaches(3.1)
    assert [found.excludes(ratio) for ratio in (1.4, 1.5, 3.0, 3.1)] == [True, False, False, True]


@pytest.mark.parametrize(
    ("spec", "clock"),
    [
        (BenchSpec(), "processor"),
        (BenchSpec(threads=2), "wall"),
        (BenchSpec(threads=0), "wall"),
        (BenchSpec(threads=2, clock="processor"), "processor"),
        (BenchSpec(clock="wall"), "wall"),
        (BenchSpec(providers=("CUDAExecutionProvider",)), "wall"),
        (BenchSpec(providers=("CPUExecutionProvider",)), "processor"),
    ],
)
def test_the_clock_of_a_measurement(spec: BenchSpec, clock: str) -> None:
    assert spec.used_clock == clock


def test_the_usual_settings() -> None:
    spec = BenchSpec()
    assert (spec.level, spec.width, spec.seconds, spec.warmup, spec.seed, spec.timeout) == (
        0.95,
        0.01,
        15.0,
        3,
        0,
        300.0,
    )
