"""Outputs that are constant in a region are recognized without the outputs of earlier runs."""

from __future__ import annotations

import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.regions.tally import _Constants

LONG = 300_000


def _holds(*pairs: tuple[Any, Any], dims: list[dict[str, int]] | None = None) -> bool:
    found = _Constants(["y"])
    for number, (mine, theirs) in enumerate(pairs):
        binding = Binding(dims[number] if dims else {"N": 1}, seed=number)
        found.add(Run(binding, {}, {"y": mine}), {"y": theirs}, ["y"])
    return found.holds("y")


def _changed(dtype: Any, place: int, value: float) -> Any:
    array = np.zeros(LONG, dtype)
    array[place] = value
    return array


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16, np.int64])
def test_any_element_that_moves_counts(dtype: Any) -> None:
    same = _changed(dtype, 7, 1.0)
    assert _holds((same, same), (same.copy(), same.copy()))
    for place in (0, 7, LONG // 2, LONG - 1):
        moved = _changed(dtype, place, 2.0)
        assert not _holds((same, same), (moved, same))
        assert not _holds((same, same), (same, moved))


def test_zeros_of_both_signs_are_equal() -> None:
    zero, negative = np.zeros(3, np.float32), -np.zeros(3, np.float32)
    assert _holds((zero, negative), (negative, zero))
    nan = np.array([np.nan, 0.0], np.float32)
    assert _holds((nan, nan), (nan.copy(), nan.copy()))
    assert not _holds((nan, nan), (nan, np.array([0.0, np.nan], np.float32)))


def test_one_run_of_each_size_shows_nothing() -> None:
    one = np.ones(3, np.float32)
    assert not _holds((one, one), (one, one), dims=[{"N": 1}, {"N": 2}])
    assert _holds((one, one), (one[:2], one[:2]), (one, one), dims=[{"N": 1}, {"N": 2}, {"N": 1}])
    assert not _holds((one, one), (one.reshape(1, 3), one))


def test_texts_and_sequences_are_compared() -> None:
    text, other = np.array(["a", "b"], dtype=object), np.array(["a", "c"], dtype=object)
    assert _holds((text, text), (text.copy(), text))
    assert not _holds((text, text), (other, text))
    assert _holds(([text, text], [text, text]), ([text, text], [text, text]))
    assert not _holds(([text], [text]), ([text, text], [text]))


def test_outputs_are_not_kept() -> None:
    mine = np.ones(LONG, np.float32)
    watched = weakref.ref(mine)
    found = _Constants(["y"])
    found.add(Run(Binding({"N": 1}), {}, {"y": mine}), {"y": mine}, ["y"])
    del mine
    assert watched() is None
