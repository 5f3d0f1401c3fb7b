"""How the sites of a lossy step compete for a budget: prices, guesses, groups, and failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import onnx
import pytest

from surgery.base.errors import SurgeryError
from surgery.engine.pipeline import sensitivity
from surgery.engine.pipeline.candidate import Candidate
from surgery.engine.pipeline.sensitivity import Cost, Sensitivity, SiteChooser, Unit, _extent, _fitting, _guess, _price
from surgery.engine.recipe import PassStep
from surgery.model.graph.state import Site
from surgery.verification.accuracy.loss_evaluation import Loss
from surgery.verification.accuracy.metrics import SAME
from surgery.verification.inputs.spec import MetricLimit

LIMITS = [MetricLimit("snr", 20.0)]  # the power of an error of 0.01


def loss(noise: float) -> Loss:
    return Loss({"y": [{**SAME, "snr": -10 * math.log10(noise) if noise else math.inf}]})


def unit(use: float, number: int = 1, macs: float = 0.0, noise: float = 1e-4) -> Unit:
    return Unit((Site(number, f"s{number}", (), ()),), loss(noise), use, {number: Cost(macs)})


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (0.0, "uses 0 % of the budget alone"),
        (0.123456, "uses 12 % of the budget alone"),
        (0.999, "uses 1e+02 % of the budget alone"),
        (1.0, "uses 1 times the budget alone"),
        (12.3456, "uses 12.3 times the budget alone"),
        (999.0, "uses 999 times the budget alone"),
        (1000.0, "uses over 1,000 times the budget alone"),
        (math.inf, "cannot be converted"),
    ],
)
def test_the_share_of_a_site_in_words(use: float, words: str) -> None:
    found = Sensitivity(Site(3, "n", (), ()), use, SAME, 5.0)
    assert str(found) == f"site 3 at 'n' {words}"
    assert "metric" not in found.to_json() and replace(found, score=0.5).to_json()["metric"] == 0.5


def test_the_power_of_an_error_follows_from_its_ratio_to_the_signal() -> None:
    assert unit(0.1, noise=1e-3).noise == pytest.approx(1e-3) and unit(0.1, noise=0.0).noise == 0.0
    assert Unit((), Loss({"y": [{**SAME, "snr": -math.inf}]}), 1.0, {}).noise == math.inf


def test_sites_of_a_group_share_what_it_uses() -> None:
    sites = tuple(Site(number, "", (), ()) for number in (1, 2))
    group = Unit(sites, loss(1e-3), 0.5, {1: Cost(7.0), 2: Cost(9.0)})
    assert [(one.site.number, one.use, one.macs) for one in group.sites()] == [(1, 0.25, 7.0), (2, 0.25, 9.0)]


def test_what_uses_least_for_what_it_saves_comes_first() -> None:
    units = [unit(0.2, 1, 100.0), unit(0.1, 2, 10.0), unit(0.2, 3, 200.0), unit(0.0, 4, noise=1e-3), unit(0.0, 5)]
    assert [one.members[0].number for one in sorted(units, key=_price)] == [5, 4, 3, 1, 2]
    assert _price(unit(0.5, 7)) == (0.5, pytest.approx(1e-4), 7)  # what saves nothing
    assert Cost(3.0, 2.0).saved == 3.0 + 256.0 * 2.0


@pytest.mark.parametrize(
    ("uses", "count"), [([], 1), ([0.5], 1), ([0.5, 0.5], 2), ([0.5, 0.5, 0.1], 2), ([2.0, 0.1], 1), ([0.3] * 9, 3)]
)
def test_how_many_fit_is_guessed(uses: list[float], count: int) -> None:
    assert _guess([unit(use) for use in uses]) == count


def test_what_still_fits_is_taken_in_order() -> None:
    units = [unit(use) for use in (0.5, 0.6, 0.25, 0.25, 0.01)]
    assert [one.use for one in _fitting(units, 1.0)] == [0.5, 0.25, 0.25]
    assert _fitting(units, 0.0) == []


@pytest.mark.parametrize(("dim", "extent"), [(3, 3.0), (None, 16.0), ("N", 16.0), ("2*N", 32.0), ("N - 20", 0.0)])
def test_a_free_dim_counts_as_sixteen(dim: Any, extent: float) -> None:
    assert _extent(dim) == extent


class Chosen:
    """A pass over sites whose errors have these powers; together they lose less by a factor."""

    def __init__(
        self, noise: Mapping[int, float], factor: float = 1.0, costs: Mapping[str, Cost] | None = None
    ) -> None:
        self.sites = tuple(Site(number, f"s{number}", (), ()) for number in noise)
        self.noise = noise
        self.factor = factor
        self.measured: list[tuple[list[int], tuple[int, ...], bool]] = []
        self.notes: list[str] = []
        self.chooser = SiteChooser(self.run, self.measure, LIMITS, costs or {}, self.notes.append)

    def run(self, skip: frozenset[int]) -> Candidate:
        found = tuple(replace(site, skipped=site.number in skip) for site in self.sites)
        return Candidate(PassStep("quantize"), onnx.ModelProto(), sites=found)

    def measure(self, candidate: Candidate, *, optimized: bool = False, sets: tuple[int, ...] = ()) -> Loss:
        numbers = [site.number for site in candidate.applied]
        self.measured.append((numbers, sets, optimized))
        total = sum(self.noise[number] for number in numbers)
        return loss(total * (self.factor if len(numbers) > 1 else 1.0))

    def choose(self) -> list[int]:
        found = self.chooser.choose(self.sites).candidate
        return [] if found is None else [site.number for site in found.applied]


def test_a_site_is_measured_once_on_the_sets_that_lose_most() -> None:
    chosen = Chosen({1: 1e-3, 2: 2e-3})
    found = chosen.chooser.sensitivities(chosen.sites)
    assert [one.site.number for one in found] == [2, 1]
    assert chosen.measured == [([1, 2], (), False), ([1], (0,), False), ([2], (0,), False)]
    assert chosen.notes == ["sensitivity of site 1 of 2", "sensitivity of site 2 of 2"]
    chosen.chooser.sensitivities(chosen.sites)
    assert len(chosen.measured) == 3


@pytest.mark.parametrize(
    ("noise", "factor", "expected"),
    [
        ({1: 1e-3, 2: 2e-3, 3: 3e-3}, 1.0, [1, 2, 3]),
        ({1: 4e-3, 2: 2e-2, 3: 5e-3}, 1.0, [1, 3]),  # one exceeds the budget alone
        ({1: 6e-3, 2: 6e-3, 3: 3e-3}, 1.0, [1, 3]),
        ({1: 2e-2, 2: 3e-2}, 1.0, []),
        # Together they lose less than the sum of what each loses alone.
        ({1: 6e-3, 2: 6e-3, 3: 6e-3, 4: 9e-3}, 0.3, [1, 2, 3, 4]),
        ({1: 6e-3, 2: 6e-3, 3: 6e-3, 4: 9e-3}, 0.5, [1, 2, 3]),
        (dict.fromkeys(range(1, 9), 2.1e-3), 1.0, [1, 2, 3, 4]),
    ],
)
def test_the_largest_part_within_the_budget_is_chosen(
    noise: dict[int, float], factor: float, expected: list[int]
) -> None:
    chosen = Chosen(noise, factor)
    converted = chosen.choose()
    assert converted == expected
    kept = chosen.chooser.choose(chosen.sites).kept
    assert sorted(one.site.number for one in kept) == [number for number in noise if number not in expected]
    assert [one.use for one in kept] == sorted((one.use for one in kept), reverse=True)


def test_a_costly_site_is_converted_rather_than_two_cheap_ones() -> None:
    costs = {"s1": Cost(1.0), "s2": Cost(1.0), "s3": Cost(1e6)}
    assert Chosen({1: 4e-3, 2: 4e-3, 3: 8e-3}, costs=costs).choose() == [3]
    assert Chosen({1: 4e-3, 2: 4e-3, 3: 8e-3}).choose() == [1, 2]


def test_sites_that_lose_nothing_together_are_all_chosen() -> None:
    assert Chosen({1: 4e-3, 2: 5e-3, 3: 2e-2}, 0.0).choose() == [1, 2]


class Quirky(Chosen):
    """Three of its sites lose twice as much together."""

    def measure(self, candidate: Candidate, **how: Any) -> Loss:
        found = super().measure(candidate, **how)
        numbers = [site.number for site in candidate.applied]
        return loss(2 * sum(self.noise[number] for number in numbers)) if numbers == [1, 3, 4] else found


def test_the_most_sensitive_of_those_that_do_not_fit_is_given_up() -> None:
    costs = {"s1": Cost(1e6), "s2": Cost(1e6)}
    chosen = Quirky({1: 5e-3, 2: 6e-3, 3: 2e-3, 4: 2.5e-3}, costs=costs)
    assert chosen.choose() == [1, 3]
    assert [numbers for numbers, _, _ in chosen.measured].count([1, 3, 4]) == 1


def failing(measure: Callable[..., Loss], complaint: str = "", proto: onnx.ModelProto | None = None) -> Loss:
    candidate = Candidate(PassStep("quantize"), proto, complaint=complaint)
    return SiteChooser(lambda skip: candidate, measure, LIMITS, {}, lambda what: None)._measured(candidate)


def test_a_model_that_fails_uses_up_the_budget() -> None:
    def broken(*_: Any, **__: Any) -> Loss:
        raise SurgeryError("it crashed")

    model = onnx.ModelProto()
    found = [failing(pytest.fail), failing(pytest.fail, "wrong", model), failing(broken, "", model)]
    assert [one.failure for one in found] == ["the pass failed", "wrong", "it crashed"]
    assert all(one.use(LIMITS) == math.inf for one in found)


def test_many_sites_are_measured_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensitivity, "_MOST_UNITS", 4)
    noise = dict.fromkeys(range(1, 10), 1e-5)
    chosen = Chosen(noise)
    assert chosen.choose() == list(noise)
    groups = [numbers for numbers, sets, _ in chosen.measured if sets]
    assert groups == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert chosen.notes[:3] == [f"sensitivity of sites {first} to {first + 2} of 9" for first in (1, 4, 7)]
    chosen = Chosen({**noise, 5: 2e-2})
    assert chosen.choose() == [1, 2, 3, 4, 6, 7, 8, 9]
    groups = [numbers for numbers, sets, _ in chosen.measured if sets]
    assert groups == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [4], [5, 6], [5], [6]]
