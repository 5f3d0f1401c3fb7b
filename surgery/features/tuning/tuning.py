"""Decide which optional steps of a recipe, and which groups of their sites, are worth keeping.

Each step is added to the best recipe so far, and the result is measured against the best model so far. Then a step that
was kept is tried without one group of its sites at a time, and a step that was not kept with one group at a time.
Anything that is not shown to be faster is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from surgery.base.errors import SurgeryError, require_machine
from surgery.base.json_record import Record
from surgery.engine.recipe.schema import PassStep
from surgery.features.tuning.optional_steps import OptionalStep, excluding, excluding_option
from surgery.features.tuning.site_groups import SiteGroup, by_name, selectors
from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.benchmarking.statistics import Interval
from surgery.verification.comparing.details import Verdict

if TYPE_CHECKING:
    from surgery.model.storage import StoredModel

_SAME = 1.0
"""The relative speed of two equally fast models."""


@dataclass(frozen=True)
class TuneSpec:
    """The settings for tuning a recipe.

    `bench`: how two models are measured; its `level` is the confidence of each decision, its `seconds` are for one
    measurement. `measurements`: the maximum number of measurements. `gain`: the factor by which a step must make the
    model faster to be kept. `groups`: the maximum number of groups into which the sites of a step are divided by the
    shapes of weights; 0 leaves steps whole.
    """

    bench: BenchSpec = field(default_factory=BenchSpec)
    measurements: int = 20
    gain: float = _SAME
    groups: int = 8


@dataclass(frozen=True)
class StepOutcome:
    """The result of a recipe, and the outcome of the step in question.

    `sites` are the nodes that the step converted, `sensitive` those that exceed the budget. `complaint` says why there
    is nothing to measure; it is empty otherwise.
    """

    model: StoredModel | None
    verdict: Verdict | None = None
    sites: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    complaint: str = ""


What = Literal["step", "without", "only"]


@dataclass(frozen=True)
class Trial(Record, keys="pass=name where what group? sites verdict=verdict.status verdict.details speed kept why"):
    """One trial: of a whole step, a step without a group of its sites, or a step on kept groups only.

    `where` is the place of the step in its recipe. `speed` is relative to the best model before; None if nothing was
    measured. `why` says why it was kept or not.
    """

    name: str
    where: str
    what: What
    group: str
    sites: int
    verdict: Verdict | None
    speed: Interval | None
    kept: bool
    why: str


@dataclass(frozen=True)
class Surroundings:
    """The functions that decisions depend on, so that they can be made without models.

    `run` applies the recipe with the chosen steps, by their numbers, and returns the outcome for one of them, given by
    its number, if any. `measure` returns the speed of the second model relative to the first, with an interval that
    decides about a ratio if possible; it raises a `SurgeryError` if they cannot be measured. `groups` divides the nodes
    of a model. `note` reports the progress.
    """

    run: Callable[[Mapping[int, PassStep], int | None], StepOutcome]
    measure: Callable[[StoredModel, StoredModel, float], Interval]
    groups: Callable[[StoredModel, Sequence[str]], Sequence[SiteGroup]]
    note: Callable[[str, str], None]


class Tuner:
    """Tries the optional steps of a recipe. `chosen` are the kept steps, by their numbers; `trials` are all trials."""

    def __init__(self, optional: Sequence[OptionalStep], around: Surroundings, spec: TuneSpec, start: StoredModel):
        self.chosen: dict[int, PassStep] = {}
        self.trials: list[Trial] = []
        self.best = start
        self.measurements = 0
        self._optional = optional
        self._around = around
        self._spec = spec

    def run(self) -> None:
        """Try each step in turn, then the groups of their sites."""
        whole: list[tuple[int, PassStep, StepOutcome, StoredModel]] = []
        for number, one in enumerate(self._optional):
            if not self._has_time:
                self._note_untried(one.step, "step", "")
                continue
            before = self.best
            step, outcome = self._fixed(number, one.step)
            self._try(number, step, outcome, "step", "", self._gain("step"))
            if not outcome.complaint:
                whole.append((number, step, outcome, before))
        for number, step, outcome, before in whole:
            self._try_groups(number, step, outcome, before)

    def _fixed(self, number: int, step: PassStep) -> tuple[PassStep, StepOutcome]:
        """Run a step; add the nodes that exceed the budget to its options, so that they need not be found again."""
        outcome = self._run(number, step)
        if outcome.complaint or not outcome.sensitive or excluding_option(step) is None:
            return step, outcome
        named = excluding(step, [by_name(outcome.sensitive)])
        again = self._run(number, named)
        return (step, outcome) if again.complaint else (named, again)

    def _run(self, number: int, step: PassStep) -> StepOutcome:
        return self._around.run({**self.chosen, number: step}, number)

    def _try_groups(self, number: int, step: PassStep, outcome: StepOutcome, before: StoredModel) -> None:
        """Remove groups from a step that was kept, one after the other; add them to one that was not."""
        is_kept = number in self.chosen
        if not self._spec.groups or excluding_option(step) is None:
            return
        groups = self._around.groups(before, outcome.sites)
        if len(groups) < 2:
            return
        left: list[SiteGroup] = [*groups] if is_kept else []
        for group in groups:
            tried = [one for one in left if one is not group] if is_kept else [*left, group]
            if not tried or len(tried) == len(groups):
                continue
            narrowed = excluding(step, selectors([one for one in groups if one not in tried], tried))
            what: What = "without" if is_kept else "only"
            if not self._has_time:
                self._note_untried(step, what, group.title)
            elif self._try(number, narrowed, self._run(number, narrowed), what, group.title, self._gain(what)):
                left = tried

    def _gain(self, what: What) -> float:
        """Return the required relative speed: for converting less, being faster at all is enough."""
        return _SAME if what == "without" else self._spec.gain

    def _note_untried(self, step: PassStep, what: What, group: str) -> None:
        why = f"not tried: {self._spec.measurements} measurements were made"
        self.trials.append(Trial(step.name, _where(step), what, group, 0, None, None, False, why))

    @property
    def _has_time(self) -> bool:
        return self.measurements < self._spec.measurements

    def _try(self, number: int, step: PassStep, outcome: StepOutcome, what: What, group: str, gain: float) -> bool:
        """Measure the result of a recipe against the best so far, and make it the best one if it is faster."""
        speed, why = self._measured(step, outcome, gain)
        kept = speed is not None and speed.low > gain
        if kept:
            assert outcome.model is not None
            self.best = outcome.model
            self.chosen[number] = step
        sites = len(outcome.sites)
        self.trials.append(Trial(step.name, _where(step), what, group, sites, outcome.verdict, speed, kept, why))
        return kept

    def _measured(self, step: PassStep, outcome: StepOutcome, gain: float) -> tuple[Interval | None, str]:
        """Return the speed relative to the best so far, and the conclusion as text."""
        if outcome.complaint or outcome.model is None:
            return None, outcome.complaint
        if outcome.model.proto == self.best.proto:
            return None, "changes nothing"
        self.measurements += 1
        self._around.note(step.name, f"measurement {self.measurements}")
        try:
            speed = self._around.measure(self.best, outcome.model, gain)
        except SurgeryError as error:
            require_machine(error)
            return None, f"cannot be measured: {error}"
        return speed, _reason(speed, gain)


def _where(step: PassStep) -> str:
    return f"{step.path}:{step.line}" if step.path else ""


def _reason(speed: Interval, gain: float) -> str:
    """Return the conclusion from an interval."""
    if speed.low > gain:
        return "faster"
    if speed.high < _SAME:
        return "slower"
    if gain > _SAME and speed.high < gain:
        return f"less than {gain:g} times as fast"
    return "not measurably faster" if gain == _SAME else f"not shown to be {gain:g} times as fast"
