"""Which steps and groups of sites are kept, decided on timings that are made up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from surgery.base.errors import UsageError, WorkerError
from surgery.base.frozen_dict import FrozenDict
from surgery.engine.recipe import PassStep
from surgery.features.tuning.optional_steps import OptionalStep
from surgery.features.tuning.site_groups import SiteGroup
from surgery.features.tuning.tuning import StepOutcome, Surroundings, Trial, Tuner, TuneSpec
from surgery.verification.benchmarking.statistics import Interval

SITES = {"quantize-dynamic": ("a", "b", "c"), "quantize-static": ("d", "e"), "to-float16": ("f",)}
WIDTH = 0.01


@dataclass
class World:
    """Models that are known by their seconds alone: those of the nodes, and for each node what converting it saves.

    `width` is half the width of all intervals. What runs and measurements are asked for is kept.
    """

    saves: Mapping[str, float]
    complaints: Mapping[str, str] = field(default_factory=dict)
    sensitive: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    width: float = WIDTH
    seconds: float = 10.0
    runs: list[list[str]] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    refuses: Callable[[], None] = lambda: None

    def model(self, seconds: float) -> Any:
        return SimpleNamespace(proto=round(seconds, 6), seconds=seconds)

    def excluded(self, step: PassStep) -> set[str]:
        given = step.options.get("exclude", step.options.get("keep", []))
        return {name for one in given for name in one["name"]}

    def run(self, chosen: Mapping[int, PassStep], number: int | None) -> StepOutcome:
        """Convert all nodes of the chosen steps but for those excluded and those there is no room for."""
        converted: dict[int, tuple[str, ...]] = {}
        for place, step in chosen.items():
            left = self.excluded(step) | set(self.sensitive.get(step.name, ()))
            converted[place] = tuple(name for name in SITES[step.name] if name not in left)
        assert number is not None
        step = chosen[number]
        self.runs.append([name for nodes in converted.values() for name in nodes])
        if step.name in self.complaints:
            return StepOutcome(None, complaint=self.complaints[step.name])
        seconds = self.seconds - sum(self.saves[name] for nodes in converted.values() for name in nodes)
        kept = tuple(name for name in self.sensitive.get(step.name, ()) if name not in self.excluded(step))
        return StepOutcome(self.model(seconds), None, converted[number], kept)

    def measure(self, before: Any, after: Any, ratio: float) -> Interval:
        self.refuses()
        self.ratios.append(ratio)
        speed = before.seconds / after.seconds
        return Interval(speed, speed * (1 - self.width), speed * (1 + self.width))

    def groups(self, model: Any, labels: Sequence[str]) -> list[SiteGroup]:
        return [SiteGroup(f"group {name}", "MatMul", (name,)) for name in labels]

    def tune(self, *names: str, **spec: Any) -> Tuner:
        optional = [OptionalStep((number,), PassStep(name=name)) for number, name in enumerate(names)]
        around = Surroundings(self.run, self.measure, self.groups, lambda *_: None)
        tuner = Tuner(optional, around, TuneSpec(**spec), self.model(self.seconds))
        tuner.run()
        return tuner


def rows(trials: Sequence[Trial]) -> list[tuple[str, str, bool]]:
    return [(one.what, one.group or one.name, one.kept) for one in trials]


def excluded(tuner: Tuner, number: int) -> list[str]:
    option = tuner.chosen[number].options.get("exclude", [])
    return [name for one in option for name in one["name"]]


def test_a_faster_step_is_kept_without_the_group_that_slows_it_down() -> None:
    tuner = World({"a": 3.0, "b": -1.0, "c": 2.0}).tune("quantize-dynamic")
    assert rows(tuner.trials) == [
        ("step", "quantize-dynamic", True),
        ("without", "group a", False),
        ("without", "group b", True),
        ("without", "group c", False),
    ]
    assert excluded(tuner, 0) == ["b"]
    assert tuner.best.seconds == 5.0  # type: ignore[attr-defined]
    assert [one.why for one in tuner.trials] == ["faster", "slower", "faster", "slower"]


def test_only_the_faster_groups_of_a_slower_step_are_kept() -> None:
    tuner = World({"a": 2.0, "b": -9.0, "c": 1.0}).tune("quantize-dynamic")
    assert rows(tuner.trials) == [
        ("step", "quantize-dynamic", False),
        ("only", "group a", True),
        ("only", "group b", False),
        ("only", "group c", True),
    ]
    assert excluded(tuner, 0) == ["b"]
    assert tuner.best.seconds == 7.0  # type: ignore[attr-defined]


def test_a_step_not_measurably_faster_is_left_out() -> None:
    """Half a percent more is within the interval; so is half a percent less for a group."""
    tuner = World({"a": 0.05, "b": 0.0, "c": 0.0}).tune("quantize-dynamic")
    assert not tuner.chosen
    assert tuner.trials[0].why == "not measurably faster"
    noisy = World({"a": 3.0, "b": -0.03, "c": 2.0}).tune("quantize-dynamic")
    assert excluded(noisy, 0) == []


def test_wide_intervals_are_inconclusive() -> None:
    assert not World({"a": 3.0, "b": 1.0, "c": 2.0}, width=0.9).tune("quantize-dynamic").chosen


def test_each_step_is_measured_on_top_of_the_best() -> None:
    world = World({"a": 1.0, "b": 1.0, "c": 1.0, "d": -1.0, "e": -1.0, "f": 2.0})
    tuner = world.tune("quantize-dynamic", "quantize-static", "to-float16", groups=0)
    assert rows(tuner.trials) == [
        ("step", "quantize-dynamic", True),
        ("step", "quantize-static", False),
        ("step", "to-float16", True),
    ]
    assert world.runs[-1] == ["a", "b", "c", "f"]
    assert tuner.trials[2].speed is not None and tuner.trials[2].speed.ratio == pytest.approx(7 / 5)


def test_a_step_that_fails_is_left_out_with_its_reason() -> None:
    world = World({"a": 5.0, "b": 1.0, "c": 1.0, "f": 1.0}, complaints={"quantize-dynamic": "over the budget"})
    tuner = world.tune("quantize-dynamic", "to-float16")
    assert [(one.kept, one.why) for one in tuner.trials] == [(False, "over the budget"), (True, "faster")]
    assert world.runs == [["a", "b", "c"], ["f"]]


def test_a_step_that_makes_the_same_model_is_not_measured() -> None:
    world = World({"f": 0.0})
    tuner = world.tune("to-float16")
    assert (tuner.trials[0].why, tuner.trials[0].speed, world.ratios) == ("changes nothing", None, [])


def test_groups_over_the_budget_are_excluded_in_the_recipe() -> None:
    world = World({"a": 2.0, "b": 3.0, "c": 1.0}, sensitive={"quantize-dynamic": ("b",)})
    tuner = world.tune("quantize-dynamic")
    assert excluded(tuner, 0) == ["b"]
    assert [one.group for one in tuner.trials] == ["", "group a", "group c"]
    assert tuner.best.seconds == 7.0  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [UsageError("no kernel"), WorkerError("crashed", stage="session")])
def test_a_step_that_cannot_be_measured_is_left_out(error: Exception) -> None:
    def refuse() -> None:
        raise error

    tuner = World({"a": 5.0, "b": 1.0, "c": 1.0}, refuses=refuse).tune("quantize-dynamic", groups=0)
    assert not tuner.chosen
    assert tuner.trials[0].why.startswith("cannot be measured: ")


def test_no_more_is_measured_than_allowed() -> None:
    world = World({"a": 1.0, "b": -1.0, "c": 1.0, "f": 2.0})
    tuner = world.tune("quantize-dynamic", "to-float16", measurements=2)
    assert (tuner.measurements, len(world.ratios)) == (2, 2)
    assert [one.why for one in tuner.trials[2:]] == ["not tried: 2 measurements were made"] * 3
    assert len(world.runs) == 2, "nor is anything run that would not be measured"


def test_whole_steps_come_before_groups() -> None:
    """What the first step leaves in float pays only once the second step is there."""
    world = World({"a": 1.0, "b": 1.0, "c": -0.5, "d": 1.0, "e": -0.5})
    tuner = world.tune("quantize-dynamic", "quantize-static")
    assert [(one.name, one.what, one.kept) for one in tuner.trials] == [
        ("quantize-dynamic", "step", True),
        ("quantize-static", "step", True),
        ("quantize-dynamic", "without", False),
        ("quantize-dynamic", "without", False),
        ("quantize-dynamic", "without", True),
        ("quantize-static", "without", False),
        ("quantize-static", "without", True),
    ]
    assert world.runs[2] == ["b", "c", "d", "e"], "a step is tried with the others as they are"
    assert (excluded(tuner, 0), excluded(tuner, 1)) == (["c"], ["e"])


def test_the_required_gain_applies_to_steps_but_not_to_groups() -> None:
    world = World({"a": 3.0, "b": -0.5, "c": 0.0})
    tuner = world.tune("quantize-dynamic", gain=1.2)
    assert world.ratios[0] == 1.2 and set(world.ratios[1:]) == {1.0}
    assert excluded(tuner, 0) == ["b"]
    little = World({"a": 1.0, "b": 0.0, "c": 0.0}).tune("quantize-dynamic", gain=1.2)
    assert not little.chosen
    assert little.trials[0].why == "less than 1.2 times as fast"


def test_exclusions_given_by_the_user_are_kept() -> None:
    world = World({"a": 2.0, "b": 2.0, "c": -1.0})
    given = PassStep(name="quantize-dynamic", options=FrozenDict({"exclude": [{"name": ["b"]}]}))
    around = Surroundings(world.run, world.measure, world.groups, lambda *_: None)
    tuner = Tuner([OptionalStep((0,), given)], around, TuneSpec(), world.model(10.0))
    tuner.run()
    assert excluded(tuner, 0) == ["b", "c"]
