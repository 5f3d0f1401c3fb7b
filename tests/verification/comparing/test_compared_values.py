"""What the comparison of two values finds, in numbers and in words."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from surgery.base.promises import Parity
from surgery.verification.comparing import compare as module
from surgery.verification.comparing import tolerance as tolerances
from surgery.verification.comparing.compare import (
    ComparisonRules,
    OutputDistances,
    compare,
    describe,
    exceeds,
    factors,
    place,
    placed_tensors,
    plain,
    same_bits,
    total_bytes,
)
from surgery.verification.comparing.details import Element
from surgery.verification.comparing.saturation import Saturation, _number
from surgery.verification.comparing.spread import Spread, all_errors
from surgery.verification.comparing.tolerance import FLOOR, Scales, Tolerance, blocks, magnitudes
from surgery.verification.inputs.spec import VerifySpec

NAN, INF = np.nan, np.inf
ONE = ComparisonRules(Parity.CLOSE, rtol=0.0, atol=1.0)
"""A tolerance of the scale of each element: |a - b| <= max(|a|)."""


def _f32(*values: float) -> Any:
    return np.array(values, np.float32)


def _found(one: Any, other: Any, rules: ComparisonRules = ONE) -> OutputDistances:
    total = OutputDistances(binding={"seed": 1}, spreads={})
    compare({"y": one}, {"y": other}, rules, total)
    return total


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (None, _f32(1), "output 'y' is not empty, unlike the original's"),
        (_f32(1), None, "output 'y' is empty, unlike the original's"),
        ([_f32(1), None], [_f32(1), _f32(1)], "output 'y'[1] is not empty, unlike the original's"),
        ([_f32(1)], _f32(1), "output 'y' is a sequence of a different length"),
        ([_f32(1)], [_f32(1)] * 2, "output 'y' is a sequence of a different length"),
        ([[_f32(1)]], [[]], "output 'y'[0] is a sequence of a different length"),
        (_f32(1), np.ones(1), "output 'y' is float64, not float32"),
        (_f32(1), _f32(1, 1), "output 'y' has shape [2], not [1]"),
        (_f32(1), np.float32(1).reshape(()), "output 'y' has shape [], not [1]"),
        (np.array([[1, 2], [3, 4]]), np.array([[1, 2], [5, 6]]), "output 'y'[1, 0]: 5 instead of 3 (2 of 4 differ)"),
        (np.array(1), np.array(2), "output 'y': 2 instead of 1 (1 of 1 differ)"),
        (np.array(["a"], object), np.array(["b"], object), "output 'y'[0]: 'b' instead of 'a' (1 of 1 differ)"),
        (_f32(1, NAN, 2), _f32(1, 1, 2), "output 'y'[1]: 1 instead of nan"),
        (_f32(1, 1, INF), _f32(1, 3, -INF), "output 'y'[2]: -inf instead of inf"),
    ],
)
def test_what_no_tolerance_covers(one: Any, other: Any, words: str) -> None:
    found = _found(one, other)
    assert found.message == words and found.beyond and found.as_needed() is None
    assert found.hopeless and found.bits


def test_equal_values() -> None:
    for value in (None, [], [_f32(1), None], _f32(NAN, 1), np.array(["a"], object), np.array(3)):
        found = _found(value, value if value is None else np.copy(value) if isinstance(value, np.ndarray) else [*value])
        assert not found.bits and not found.message and found.as_needed() == {"rtol": 0.0, "atol": 0.0, "factor": 0.0}
    total = OutputDistances()
    compare({"y": _f32(1), "z": _f32(1)}, {"y": _f32(1), "w": _f32(1)}, ONE, total)
    # The first difference is reported.
    assert total.message == "output 'z' is missing"
    total = OutputDistances()
    compare({"y": _f32(1)}, {"y": _f32(1), "w": _f32(1)}, ONE, total)
    assert total.message == "output 'w' is new"


def test_differences_in_numbers() -> None:
    found = _found(_f32(1, 2, 4, 4), _f32(1, 3, 5, 10))
    assert (found.elements, found.differing, found.count_beyond) == (4, 3, 1)
    assert found.needed == pytest.approx(1.5) == found.overall and found.message == "output 'y'[3]: 10 instead of 4"
    # An rtol of 0 means one rounding step.
    needed = {"rtol": 1.5 * 2**-23, "atol": 1.5, "factor": 1.5}
    assert found.as_needed() == pytest.approx(needed, rel=1e-6) and found.beyond
    # The unit of 10 is 2 ** -20.
    assert found.ulp == found.worst.ulp == 6 / 2**-20 and found.worst.binding == {"seed": 1}  # type: ignore[union-attr]
    small = {"rtol": 0.5 * 2**-23, "atol": 0.5, "factor": 0.5}
    assert _found(_f32(4), _f32(6)).as_needed() == pytest.approx(small, rel=1e-6)
    # The worst of several outputs, and counts over all of them.
    compare({"z": _f32(2, 2)}, {"z": _f32(2, 4)}, ONE, found)
    assert (found.elements, found.differing, found.count_beyond, found.message[:10]) == (6, 4, 1, "output 'y'")
    compare({"z": _f32(2)}, {"z": _f32(6)}, ONE, found)
    assert found.message == "output 'z'[0]: 6 instead of 2" and found.needed == pytest.approx(2.0)
    assert not _found(_f32(4), _f32(8)).beyond and _found(_f32(4), _f32(8)).needed == pytest.approx(1.0)


def test_a_slice_has_a_scale_of_its_own() -> None:
    # Within the tolerance by the scale of the whole output, and beyond it by that of its row.
    one = np.ones((2, 8), np.float32)
    one[1] = 100
    other = one.copy()
    other[0, 3] += 50
    found = _found(one, other)
    assert found.needed == pytest.approx(50.0) and found.overall == pytest.approx(0.5) and not found.beyond
    assert exceeds(one, other, ONE)


def test_elements_that_are_not_finite_are_counted() -> None:
    found = _found(_f32(NAN, 1, INF, 1, NAN, INF), _f32(1, NAN, 1, -INF, NAN, INF))
    assert found.nan is not None and (found.nan.count, found.nan.first.index) == (2, (0,))
    assert found.infinite is not None and (found.infinite.count, found.infinite.first.index) == (2, (2,))
    assert found.message == "output 'y'[0]: 1 instead of nan"
    # Infinities next to NaN are no infinities of one side.
    assert _found(_f32(NAN), _f32(INF)).infinite is None
    assert _found(_f32(1), _f32(2)).nan is None


def test_the_parts_of_complex_numbers_are_compared() -> None:
    found = _found(np.array([1 + 2j], np.complex64), np.array([1 + 8j], np.complex64))
    assert found.message == "output 'y'[0, 1]: 8 instead of 2" and found.needed == pytest.approx(3.0)
    assert exceeds(np.array([1 + 2j], np.complex64), np.array([1 + 8j], np.complex64), ONE)
    assert not exceeds(np.array([1 + 2j], np.complex64), np.array([1 + 3j], np.complex64), ONE)


@pytest.mark.parametrize(
    ("one", "other", "beyond"),
    [
        ([_f32(1)], [_f32(1), _f32(1)], True),
        (_f32(1), _f32(2), False),
        (_f32(1), _f32(2.5), True),
        (_f32(1), np.ones(1), True),
        (_f32(1), _f32(1, 1), True),
        (np.array([1]), np.array([2]), True),
        (np.array([1]), np.array([1]), False),
        (_f32(NAN), _f32(NAN), False),
        (_f32(NAN), _f32(1), True),
        (None, [], False),
    ],
)
def test_a_difference_beyond_the_tolerance(one: Any, other: Any, beyond: bool) -> None:
    assert exceeds(one, other, ONE) is beyond


def test_large_tensors_are_compared_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tolerances, "BLOCK", 4)
    monkeypatch.setattr(module, "BLOCK", 4)
    one = np.ones((3, 2, 5), np.float32)
    other = one.copy()
    other[1, 1, 4], other[2, 0, 0], other[0, 0, 1], other[2, 1, 3] = 5.0, 3.0, NAN, NAN
    found = _found(one, other)
    assert (found.differing, found.count_beyond, found.message) == (4, 4, "output 'y'[0, 0, 1]: nan instead of 1")
    assert found.nan is not None and (found.nan.count, found.nan.first.index) == (2, (0, 0, 1))
    other[0, 0, 1] = other[2, 1, 3] = 1.0
    found = _found(one, other)
    assert (found.differing, found.count_beyond, found.message) == (2, 2, "output 'y'[1, 1, 4]: 5 instead of 1")
    assert exceeds(one, other, ONE) and not same_bits(one, other) and same_bits(one, one.copy())
    assert found.spreads is not None and found.spreads["y"].equal == 28


def test_blocks_cover_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tolerances, "BLOCK", 6)
    for shape in ((), (6,), (7,), (2, 3), (3, 3), (2, 7), (4, 2, 3), (2, 2, 13), (0, 7), (3, 0)):
        marked = np.zeros(shape, int)
        for block in blocks(shape):
            marked[block] += 1
            assert marked[block].size <= 6
        assert (marked == 1).all()
    assert [*blocks((2, 3))] == [()] and len([*blocks((4, 2, 3))]) == 4
    assert place((1, slice(4, 8)), (4,), 2) == (1, 6) and place((), (2, 3), 4) == (1, 1)


def test_factors_of_the_tolerance() -> None:
    tolerance = Tolerance(rtol=0.5, atol=1.0)
    x, y = np.array([2.0, 0.0, NAN, INF, INF, 1.0]), np.array([6.0, 0.5, NAN, INF, 1.0, NAN])
    assert factors(x, y, 1.0, tolerance).tolist() == [2.0, 0.5, 0.0, 0.0, INF, INF]
    # Where nothing is allowed, equal elements are within it.
    nothing = Tolerance(rtol=0.0, atol=1.0)
    assert factors(np.array([0.0, 0.0]), np.array([0.0, 1e-30]), 0.0, nothing).tolist() == [0.0, INF]
    assert factors(np.array([2.0, 2.0]), np.array([6.0, 6.0]), np.array([1.0, 3.0]), tolerance).tolist() == [2.0, 1.0]
    assert factors(np.zeros(0), np.zeros(0), 1.0, tolerance).tolist() == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (_f32(NAN), np.array([0x7FC00001], np.uint32).view(np.float32), True),
        (_f32(0.0), _f32(-0.0), False),
        (np.array([complex(1, NAN)]), np.array([complex(2, NAN)]), True),
        (np.array([complex(1, NAN)]), np.array([complex(2, 1)]), False),
        (np.array([1 + 2j]), np.array([1 + 3j]), False),
        (np.array([1 + 2j]), np.array([1 + 2j]), True),
        (np.array([1, 2], ml_dtypes.int4), np.array([1, 2], ml_dtypes.int4), True),
        (np.array([1, 2], ml_dtypes.int4), np.array([1, 3], ml_dtypes.int4), False),
        (np.array([1], np.int32), np.array([1], np.uint32), False),
        (np.array(["a", "b"], object), np.array(["a", "c"], object), False),
        (np.array(["a"], object), np.array(["a"], object), True),
        (np.zeros((0, 2)), np.zeros((0, 2)), True),
        (np.zeros((0, 2)), np.zeros((2, 0)), False),
    ],
)
def test_the_same_bits(one: Any, other: Any, same: bool) -> None:
    assert same_bits(one, other) is same and same_bits(one, one)


@pytest.mark.parametrize(
    ("free", "actual", "fits"),
    [
        (frozenset(), (2, 3), True),
        (frozenset(), (2, 4), False),
        (frozenset({1}), (2, 4), True),
        (frozenset({1}), (3, 4), False),
        (frozenset({0, 1}), (3,), False),
        (None, (3,), True),
    ],
)
def test_shapes_of_random_outputs(free: Any, actual: tuple[int, ...], fits: bool) -> None:
    rules = ComparisonRules(Parity.CLOSE, random=frozenset("y"), extents={"y": free, "z": None})
    assert rules.fits("y", (2, 3), actual) is fits
    # Only those of random outputs.
    assert not rules.fits("z", (2, 3), (2, 4)) and rules.fits("z", (2, 3), (2, 3))
    assert rules.may_have("y", 2, 2) and rules.may_have("y", 2, 3) is (free is None)
    assert rules.may_have("y", 2, 1) is (free is None)
    assert not rules.may_have("y", 2, 0) and rules.may_have("y", 0, 0) and not rules.may_have("z", 2, 3)


def test_a_random_output_has_elements_in_some_run() -> None:
    rules = ComparisonRules(Parity.CLOSE, random=frozenset("y"), extents={"y": frozenset({0})})
    for runs, filled, fails in ((2, 0, False), (3, 0, True), (3, 1, False)):
        total = OutputDistances()
        for run in range(runs):
            compare({"y": _f32(1)}, {"y": _f32(*[2] * (run < filled))}, rules, total)
            compare({"y": _f32()}, {"y": _f32(1)}, rules, total)
        total.require_elements()
        assert total.message == ("output 'y' is empty in all 3 runs, unlike the original's" if fails else "")
        assert total.elements == 0


def test_tolerances_of_types() -> None:
    plain_rules, coarse = ComparisonRules(Parity.CLOSE), ComparisonRules(Parity.CLOSE, coarse=True)
    single, half = np.dtype(np.float32), np.dtype(np.float16)
    assert plain_rules.tolerance(single) == Tolerance(2.0**10 * 2.0**-23, 2.0**7 * 2.0**-23)
    assert plain_rules.tolerance(half) == Tolerance(8 * 2.0**-10, 4 * 2.0**-10) == coarse.tolerance(single)
    assert coarse.tolerance(half) == plain_rules.tolerance(half)
    byte = np.dtype(ml_dtypes.float8_e4m3fn)
    assert coarse.tolerance(byte) == plain_rules.tolerance(byte) == Tolerance(2 * 2.0**-3, 2.0**-4 * 2.0**-3)
    # An output may be computed in a narrower type than its own.
    narrow = ComparisonRules(Parity.CLOSE, precision={"y": half})
    assert narrow.tolerance(single, "y") == plain_rules.tolerance(half) != narrow.tolerance(single, "z")
    # No number of a recipe is below a rounding step.
    given = ComparisonRules(Parity.CLOSE, rtol=0.0, atol=0.5)
    assert given.tolerance(half) == Tolerance(2.0**-10, 0.5) and not given.is_default and plain_rules.is_default
    assert not ComparisonRules(Parity.CLOSE, rtol=0.0).is_default
    assert ComparisonRules.of(VerifySpec(rtol=0.25), Parity.EXACT) == ComparisonRules(Parity.EXACT, rtol=0.25)


def test_scales_of_elements() -> None:
    values = np.ones((2, 8))
    values[1] = 4.0
    found = Scales.of(values)
    assert found.whole == 4.0 and found.floor == 4 * FLOOR and FLOOR == 2.0**-20
    assert found.at((2, 8), ())[:, 0].tolist() == [1.0, 4.0]
    # Columns have too few elements, and a row of zeros has the least scale.
    assert len(found.parts) == 1 and len(Scales.of(np.ones((8, 8))).parts) == 2
    values[0] = 0.0
    assert Scales.of(values).at((2, 8), ())[0, 0] == 4 * FLOOR
    assert Scales.of(np.zeros((8, 8))).parts == () == Scales.of(np.ones(8)).parts == Scales.of(np.ones((1, 7))).parts
    assert magnitudes(_f32(-2, INF, NAN)).tolist() == [2, 0, 0]
    rules = ComparisonRules(Parity.CLOSE, ranges={"y": 2.0})
    small = rules.scales("y", _f32(0.5))
    assert (small.whole, small.floor) == (2.0, 2.0)
    assert rules.scales("y", _f32(3)).whole == 3.0 and rules.scales("z", _f32(0.5)).whole == 0.5


def test_elements_as_text() -> None:
    assert describe(Element("y", (), (), 1.0, 1.5)) == "output 'y': 1.5 instead of 1"
    assert (
        describe(Element("y", (2, 0), (3,), 1.0, 1.0 + 1e-12)) == "output 'y'[2][0][3]: 1.0000000000010001 instead of 1"
    )
    assert describe(Element("y", (), (3,), 0.123456789123, 7.0)) == "output 'y'[3]: 7 instead of 0.123456789"
    found = [plain(value) for value in (np.float16(0.5), np.int8(3), np.bool_(True), "a", b"\xff", ml_dtypes.int4(2))]
    assert found == [0.5, 3, True, "a", "�", 2] and plain(1 + 2j) == 1 + 2j


def test_tensors_of_a_value() -> None:
    value = [_f32(1), [None, _f32(1, 2)]]
    assert [(item, len(tensor)) for item, tensor in placed_tensors(value)] == [((0,), 1), ((1, 1), 2)]
    assert total_bytes({"y": value, "z": None}) == 12


def test_the_worst_element_of_a_spread() -> None:
    found = Spread()
    element, other, third = (Element("y", (), (n,), 0, 0) for n in range(3))
    for share, one in ((0.0, element), (0.0, other), (0.5, third), (0.25, other)):
        found.record(share, one)
    assert (found.worst, found.largest) == (third, 0.5)
    found = Spread()
    found.record(0.0, element)
    found.record(0.0, other)
    assert found.worst is element
    found.add(np.array([[0.0, 2.0**30], [INF, 2.0**-50]]))
    errors = found.errors("y")
    assert (errors.elements, errors.equal, errors.endless, errors.first, len(errors.counts)) == (4, 1, 1, -41, 65)
    assert (errors.counts[0], errors.counts[-1], sum(errors.counts)) == (1, 1, 2)
    assert found.errors("y", "rms").unit == "rms" and errors.unit == "tolerance"
    worse, worst = Spread(largest=1.0), Spread(endless=1)
    assert [one.name for one in all_errors({"b": worse, "a": Spread(), "c": worst, "d": worse})] == ["c", "b", "d", "a"]
    assert all_errors(None) == ()


def test_when_an_output_is_saturated() -> None:
    rules = ComparisonRules(Parity.EXACT)
    found = Saturation((0.0, 1.0), rules)
    for count, saturated in ((15, False), (1, True), (984, True)):
        found.add(np.ones(count, np.float32))
        assert bool(found) is saturated
    # One of a thousand may be between.
    found.between = 1
    assert found
    found.between = 2
    assert not found
    found.between = 0
    found.add(np.ones(5, np.int64))
    assert not found and found.total == 1000


def test_a_bound_is_a_single_stored_number() -> None:
    from onnx import TensorProto, numpy_helper

    assert _number(numpy_helper.from_array(np.float32(2))) == 2.0 == _number(numpy_helper.from_array(np.float32([[2]])))
    assert _number(numpy_helper.from_array(np.float32([1, 2]))) is None is _number(numpy_helper.from_array(np.int64(2)))
    outside = TensorProto(data_type=1, data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="w")
    assert _number(None) is None is _number(outside) and _number(TensorProto()) is None
