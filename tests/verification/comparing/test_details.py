"""What a verdict tells: the worst element, units in the last place, NaN and infinities, metrics, as plain values."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import onnx
import pytest

from surgery.base.promises import Parity
from surgery.verification.accuracy.metrics import SAME
from surgery.verification.comparing import tolerance as tolerance_module
from surgery.verification.comparing.compare import ComparisonRules, OutputDistances, compare, ulps
from surgery.verification.comparing.details import Details, Element, Status, Verdict
from surgery.verification.comparing.tolerance import Scales, blocks
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.verdict.verifier import Verifier

IR = '<ir_version: 10, opset_import: ["": 21]>'
X = "(float[N,24] x) => (float[N,24] y)"


def _difference(a, b, promise=Parity.CLOSE, **rules) -> OutputDistances:
    total = OutputDistances(binding={"dims": {"N": 2}})
    compare({"y": a}, {"y": b}, ComparisonRules(promise, **rules), total)
    return total


def _f32(*values):
    return np.array(values, np.float32)


def _verdict(before: str, after: str, promise=Parity.CLOSE, spec: VerifySpec | None = None, io: str = X) -> Verdict:
    one, other = (onnx.parser.parse_model(f"{IR}\ng {io} {{ {body} }}").SerializeToString() for body in (before, after))
    return Verifier(one, None, spec).verify(other, promise)


def _scaled(factor: float) -> str:
    return f"c = Constant<value=float {{{factor}}}>() y = Mul(x, c)"


# Units in the last place


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
)
@pytest.mark.parametrize("value", [1.0, 1.5, 12.0, 0.0])
def test_neighbouring_floats_are_one_ulp_apart(dtype, value):
    a = np.array([value], dtype)
    step = ml_dtypes.finfo(dtype).smallest_subnormal if value == 0 else ml_dtypes.finfo(dtype).eps
    scale = 1.0 if value in (0.0, 1.0, 1.5) else 8.0
    b = np.array([value + float(step) * scale], dtype)
    assert a != b
    assert _difference(a, b).details().ulp == 1.0


def test_ulps_are_those_of_the_larger_number():
    eps = float(np.finfo(np.float32).eps)
    np.testing.assert_array_equal(
        ulps(np.array([1.0, -1.0, 0.0, np.nan, 1.0]), np.array([1 + 2 * eps, 1.0, 1.0, 1.0, np.inf]), np.dtype("f4")),
        [2.0, 2 / eps, 1 / eps, 0.0, 0.0],
    )


# The worst element, and counts


def test_the_worst_element_has_its_place_both_values_and_the_inputs():
    a = np.ones((2, 3), np.float32)
    b = a.copy()
    b[0, 1], b[1, 2] = 1.001, 1.25
    found = _difference(a, b).details()
    assert found.worst == Element(
        "y", (), (1, 2), 1.0, 1.25, 0.25 / float(np.finfo(np.float32).eps), {"dims": {"N": 2}}
    )
    assert (found.elements, found.differing, found.beyond) == (6, 2, 2)


def test_elements_of_sequences_have_a_position():
    found = _difference([_f32(1), _f32(2, 3)], [_f32(1), _f32(2, 4)])
    assert found.message == "output 'y'[1][1]: 4 instead of 3"
    worst = found.details().worst
    assert worst is not None
    assert (worst.output, worst.item, worst.index) == ("y", (1,), (1,))


@pytest.mark.parametrize(
    ("a", "b", "original", "changed"),
    [
        (np.array([1, 2]), np.array([1, 3]), 2, 3),
        (np.array([True]), np.array([False]), True, False),
        (np.array(["a"], object), np.array(["b"], object), "a", "b"),
        (np.array([1 + 1j], np.complex64), np.array([1 + 2j], np.complex64), 1.0, 2.0),
        (np.array([-1], ml_dtypes.int4), np.array([1], ml_dtypes.int4), -1, 1),
    ],
    ids=str,
)
def test_elements_of_all_types_are_plain(a, b, original, changed):
    worst = _difference(a, b).details().worst
    assert worst is not None
    assert (worst.original, worst.changed) == (original, changed)
    assert json.loads(json.dumps(worst.to_json()))["original"] == original


def test_nan_and_infinities_are_counted_and_the_first_is_shown():
    a, b = _f32(1, np.nan, 3, np.inf, np.inf, np.nan), _f32(np.nan, np.nan, 3, 4, -np.inf, 6)
    found = _difference(a, b)
    details = found.details()
    assert details.nan is not None and details.infinite is not None
    assert (details.nan.count, details.nan.first.index) == (2, (0,))
    assert (details.infinite.count, details.infinite.first.index) == (2, (3,))
    assert found.message == "output 'y'[0]: nan instead of 1"


def test_a_misplaced_nan_is_reported_even_next_to_an_output_of_zeros():
    found = _difference(_f32(0, 0), _f32(1, np.nan))
    assert found.hopeless
    assert found.message == "output 'y'[1]: nan instead of 0"


def test_next_to_zeros_no_tolerance_helps_but_float64_may():
    found = _difference(_f32(0, 0), _f32(0, 1e-30))
    assert (found.beyond, found.hopeless, found.as_needed()) == (True, False, None)


def test_a_verdict_is_plain_json():
    verdict = _verdict("y = Relu(x)", "y = Identity(x)")
    told = json.loads(json.dumps(verdict.to_json(), allow_nan=False))
    assert told["verdict"] == "different"
    assert told["details"]["worst"]["output"] == "y"
    assert told["details"]["worst"]["binding"]["dims"]
    assert told["details"]["differing"] > 0
    strange = Details(
        worst=Element("y", (), (0,), float("nan"), float("-inf")),
        metrics=SAME,
    )
    told = json.loads(json.dumps(strange.to_json(), allow_nan=False))
    assert (told["worst"]["original"], told["worst"]["changed"], told["metrics"]["snr"]) == ("nan", "-inf", "inf")
    assert Verdict(Status.EQUAL).to_json()["details"] is None


# Scales


def test_a_small_row_or_channel_is_measured_by_its_own_size():
    a = np.random.default_rng(0).standard_normal((4, 16, 9)).astype(np.float32)
    a[:, 3] *= np.float32(1e6)
    b = a.copy()
    b[1, 5, 2] += np.float32(1e-3)
    found = _difference(a, b)
    assert found.needed > 1.0 > found.overall
    assert not found.beyond


def test_slices_of_few_elements_have_the_size_of_the_whole():
    a = _f32(1e6, 1.0).reshape(1, 2)
    b = a + _f32(0.0, 1e-3)
    found = _difference(a, b)
    assert found.needed == found.overall < 1.0


def test_a_channel_of_zeros_has_a_size_too():
    a = np.ones((2, 16), np.float32)
    a[1] = 0
    scales = Scales.of(a)
    np.testing.assert_array_equal(scales.at(a.shape, ())[:, 0], [1.0, tolerance_module.FLOOR])
    b = a.copy()
    b[1, 3] = 1e-30
    assert _difference(a, b).needed < 1e-6


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (2, 3, 4), (1, 1, 9), (0, 4), (40,)])
def test_blocks_cover_an_array_once(monkeypatch, shape):
    monkeypatch.setattr(tolerance_module, "BLOCK", 4)
    seen = np.zeros(shape, int)
    for block in blocks(shape):
        seen[block] += 1
    assert (seen == 1).all()


def test_the_worst_element_is_found_in_any_block(monkeypatch):
    monkeypatch.setattr(tolerance_module, "BLOCK", 8)
    a = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32)
    for index in np.ndindex(a.shape):
        b = a.copy()
        b[index] += 1
        worst = _difference(a, b).details().worst
        assert worst is not None and worst.index == index
