"""Points for dims that demands tie together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surgery.verification.inputs.admissible import EXTENTS
from surgery.verification.inputs.demands import Demand
from surgery.verification.inputs.joint import _GRID, _closest, _first, joint, written


def _points(*demands: Demand, names: str = "HW", admitted: Any = None) -> list[tuple[int, ...]]:
    holds = {name: np.isin(EXTENTS, extents) for name, extents in (admitted or {}).items()}
    groups = joint([*names], {demand: f"node {place}" for place, demand in enumerate(demands)}, {}, holds)
    assert len(groups) <= 1
    return [tuple(point[name] for name in names) for group in groups for point in group["points"]]


PATCHES = Demand("floor(H/16)*floor(W/16)", 576)


def test_a_square_comes_first_then_extents_with_the_same_product() -> None:
    # 24 * 24 patches, and 18 * 32, which is the nearest; then odd ones.
    assert _points(PATCHES) == [(384, 384), (288, 512), (385, 387), (512, 288), (387, 385)]


def test_what_no_square_meets_is_met_by_other_extents() -> None:
    assert _points(Demand("H*W", 75)) == [(5, 15), (15, 5)]
    # More demands than any square meets.
    assert _points(Demand("H*W", 75), Demand("H", "2*W", least=True))[0] == (15, 5)
    # Nothing fits, or everything does.
    assert _points(Demand("H + W", 1)) == []
    assert _points(Demand("H*W", "W*H")) == []


def test_a_square_is_large_enough_for_a_deep_network() -> None:
    assert _points(Demand("H*W", 5000, least=True))[0] == (71, 71)
    assert _points(Demand("floor(H/2)*floor(W/2)", 9))[0] == (6, 6)


def test_further_dims_have_an_extent_of_their_own() -> None:
    assert _points(Demand("T*H*W", 75), names="THW")[:3] == [(3, 5, 5), (3, 1, 25), (3, 25, 1)]
    # Frames of which the graph admits few.
    for frames in (3, 8, 32):
        wanted = Demand("T*H*W", frames * 49 * 49)
        assert _points(wanted, names="THW", admitted={"T": [frames]})[0] == (frames, 49, 49)
    assert _points(Demand("T*H*W", 49), names="THW", admitted={"T": [5]})[0] == (1, 7, 7)


def test_of_contradictory_demands_the_earlier_are_met() -> None:
    assert _points(Demand("H*W", 49), Demand("H + W", 15), Demand("H", "W"))[0] == (7, 7)
    assert _points(PATCHES, admitted={"H": [*range(1, 300)]})[0] == (288, 512)
    # An extent of 1 is not broadcast here.
    assert _points(Demand("H*W", 49, broadcast=True))[0] == (7, 7)


@pytest.mark.parametrize(
    ("extents", "first"),
    [
        ([6, 7], 6),
        ([7, 8], 8),
        ([40, 41, 50], 40),
        ([5, 6, *range(33, 49)], 48),
        ([20, 21, 40, 41], 40),
        ([30, 31, 32], 32),
        ([5, 31], 31),
        ([*range(7, 4097)], 32),
        ([*range(100, 4097)], 100),
    ],
)
def test_the_extent_that_is_tried_of_a_run_of_extents(extents: list[int], first: int) -> None:
    assert _first(np.array(extents)) == first


@pytest.mark.parametrize(
    ("pairs", "side", "closest"),
    [
        ([], None, ()),
        ([(4, 9), (5, 7), (2, 18)], 6, (5, 7)),
        ([(20, 20), (31, 33)], None, (31, 33)),
        ([(33, 40), (20, 20)], None, (33, 40)),
        # A distance from the square counts twice as much as one between the two.
        ([(10, 10), (12, 24)], 16, (12, 24)),
        ([(12, 12), (9, 27)], 16, (12, 12)),
    ],
)
def test_the_closest_extents(pairs: list[tuple[int, int]], side: int | None, closest: tuple[int, ...]) -> None:
    allowed = np.zeros((len(_GRID), len(_GRID)), bool)
    for first, second in pairs:
        allowed[first - 1, second - 1] = True
    assert _closest(allowed, side) == closest


def test_what_is_written_stays_readable() -> None:
    chain = {f"a{number}": f"a{number + 1}" for number in range(9)}
    assert written(Demand("a0", 3), chain) == f"{'(' * 8}a8{')' * 8} = 3"
    assert written(Demand("N", "c"), {"c": "x" * 194}) == f"N = ({'x' * 194})"
    assert written(Demand("N", "c"), {"c": "x" * 195}) == "N = c"
