"""Find the optional steps of a recipe that make a model faster on this machine, and write the recipe with these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from surgery.base.errors import ExpectationError, UsageError, counted
from surgery.base.json_record import Record
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.records import Observer, Result, Silent, StepRecord
from surgery.engine.recipe.on_failure import decided
from surgery.engine.recipe.schema import OnFailure, PassStep, Recipe
from surgery.features.tuning.optional_steps import optional_steps, split_before, with_chosen, without_speed
from surgery.features.tuning.site_groups import groups_of
from surgery.features.tuning.tuning import StepOutcome, Surroundings, Trial, Tuner, TuneSpec
from surgery.model import storage
from surgery.verification.benchmarking.bench import legal_feeds, typical_inputs
from surgery.verification.benchmarking.paired_runs import compare
from surgery.verification.benchmarking.statistics import Interval
from surgery.verification.benchmarking.subjects import subject

if TYPE_CHECKING:
    from surgery.verification.benchmarking.bench_spec import BenchSpec


@dataclass(frozen=True)
class Tuned(
    Record,
    keys="recipe=recipe.name trials speed spec.bench.level spec.bench.threads clock=spec.bench.used_clock"
    " measurements inputs complaint? yaml=text?",
):
    """The recipe that was found, the trials, and the result of the recipe as a whole.

    `text` is the recipe as YAML, empty if no step of it is left; `result` is from a run of exactly that text. `speed`
    is the speed of the result relative to the original model, None if the model is unchanged. `inputs` describes the
    inputs of the measurements. `complaint` says why the recipe must not be used; it is empty if it may be.
    """

    recipe: Recipe
    text: str
    trials: tuple[Trial, ...]
    spec: TuneSpec
    result: Result | None = field(repr=False)
    speed: Interval | None
    inputs: tuple[Mapping[str, Any], ...]
    complaint: str

    @property
    def measurements(self) -> int:
        """The number of trials whose speed was measured."""
        return sum(one.speed is not None for one in self.trials)

    @property
    def kept(self) -> tuple[Trial, ...]:
        """The steps that are part of the recipe, in whole or in part."""
        return tuple(one for one in self.trials if one.kept)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"ok": not self.complaint, **super().to_json()}


def tune(
    stored: storage.StoredModel,
    recipe: Recipe,
    names: Sequence[str] = (),
    spec: TuneSpec | None = None,
    observer: Observer | None = None,
    *,
    contained: bool = True,
) -> Tuned:
    """Find the optional steps of a recipe, and the groups of their sites, that make the model measurably faster.

    Optional steps are the lossy steps and the steps of the passes in `names`. The steps before the first of them run
    once. Raises UsageError for a recipe that has no optional step or does not verify, and ExpectationError if the
    recipe fails without its optional steps.
    """
    spec = spec or TuneSpec()
    if recipe.verify.mode == "off":
        raise UsageError(f"recipe '{recipe.name}' turns verification off, and the budget is not enforced without it")
    optional = optional_steps(recipe, names)
    runs = _Runs(stored, without_speed(recipe), names, observer, contained)
    meter = _Meter(stored, recipe, spec.bench)
    around = Surroundings(runs.run, meter.measure, partial(groups_of, most=spec.groups), runs.note)
    tuner = Tuner(optional, around, spec, runs.start())
    tuner.run()
    found = with_chosen(recipe, optional, tuner.chosen)
    if not found.steps:
        return Tuned(found, "", tuple(tuner.trials), spec, None, None, meter.inputs, "")
    text, result = _written(found, runs, tuner.trials, spec)
    complaint, speed = _failure(result), None
    assert result.proto is not None
    if not complaint and result.proto != stored.proto:
        runs.note("(end)", "speed relative to the original")
        speed = meter.measure(stored, replace(stored, proto=result.proto), None)
        complaint = _too_slow(speed, recipe)
        text = text.replace("\n", f"\n# The recipe as a whole: {_times(speed)}.\n", 1)
    return Tuned(found, text, tuple(tuner.trials), spec, result, speed, meter.inputs, complaint)


def _written(recipe: Recipe, runs: _Runs, trials: Sequence[Trial], spec: TuneSpec) -> tuple[str, Result]:
    """Write a recipe as YAML, parse the text again, and run it on the original."""
    from surgery.engine import recipe as recipes
    from surgery.engine.recipe import resolved

    text = resolved.brief(recipe, "\n".join(_head(recipe, trials, spec)))
    read = recipes.parse(text, recipe.path, trust=True)
    return text, runs.whole(without_speed(read))


def _head(recipe: Recipe, trials: Sequence[Trial], spec: TuneSpec) -> list[str]:
    threads = counted(spec.bench.threads, "thread")
    source = f" from {recipe.path.name}" if recipe.path is not None else ""
    first = f"Found by 'surgery tune'{source}: {threads}, confidence {spec.bench.level:.4g}."
    return [first, *(_summary(one) for one in trials if one.what == "step" or one.kept)]


def _summary(trial: Trial) -> str:
    title = f"{trial.name}{f', {trial.what} {trial.group}' if trial.group else ''}"
    speed = trial.speed
    measured = f", {_times(speed)}" if speed is not None else ""
    return " ".join(f"{title}: {'kept' if trial.kept else 'left out'}, {trial.why}{measured}".split())


def _times(speed: Interval) -> str:
    return f"{speed.ratio:.3f} times as fast ({speed.low:.3f} to {speed.high:.3f})"


def _too_slow(speed: Interval, recipe: Recipe) -> str:
    """Return why a result is too slow to be used; an empty string if it is not."""
    shown = f"{speed.ratio:.3f} times as fast as the original, between {speed.low:.3f} and {speed.high:.3f}"
    if speed.high < 1.0:
        return f"the resulting recipe makes the model slower: {shown}"
    if recipe.expect.speed is not None and not speed.reaches(recipe.expect.speed):
        return f"the recipe expects a speed of {recipe.expect.speed:g}, and the model is {shown}"
    return ""


def _failure(result: Result) -> str:
    """Return why a run failed; an empty string if it did not."""
    if result.failure is not None:
        return f"the step '{result.failure.name}' fails: {result.failure.message}"
    missed = [one.what for one in result.expectations if not one.ok]
    return f"expected {', '.join(missed)}" if missed else result.unverifiable


class _Runs:
    """Runs of a recipe with some of its optional steps. The steps before the first of them run once."""

    def __init__(
        self,
        stored: storage.StoredModel,
        recipe: Recipe,
        names: Sequence[str],
        observer: Observer | None,
        contained: bool,
    ) -> None:
        self._stored = stored
        recipe = decided(recipe)
        self._observer = observer or Silent()
        self._contained = contained
        first, rest = split_before(recipe.steps, optional_steps(recipe, names)[0].place)
        self._first = replace(recipe, steps=first, expect=type(recipe.expect)())
        self._rest = replace(recipe, steps=rest, expect=type(recipe.expect)())
        self._optional = optional_steps(self._rest, names)
        self._begun = stored

    def note(self, step: str, what: str) -> None:
        """Report the progress."""
        self._observer.stage(step, what)

    def start(self) -> storage.StoredModel:
        """Run the recipe without its optional steps; return the resulting model."""
        if self._first.steps:
            self._begun = self._applied(self._stored, self._first)
        rest = with_chosen(self._rest, self._optional, {})
        return self._applied(self._begun, rest) if rest.steps else self._begun

    def _applied(self, stored: storage.StoredModel, recipe: Recipe) -> storage.StoredModel:
        result = self._run(stored, recipe)
        failure = _failure(result)
        if failure:
            raise ExpectationError(f"without its optional steps the recipe fails: {failure}")
        return replace(result.stored, proto=result.proto)

    def run(self, chosen: Mapping[int, PassStep], number: int | None) -> StepOutcome:
        """Run the recipe with the chosen steps; return the outcome of one of them."""
        steps = {one: replace(step, on_failure=self._on_failure(one)) for one, step in chosen.items()}
        result = self._run(self._fresh(), with_chosen(self._rest, self._optional, steps))
        failure = _failure(result)
        if failure or number is None:
            return StepOutcome(None, complaint=failure)
        return _outcome(result, chosen[number])

    def _on_failure(self, number: int) -> OnFailure | None:
        """Return how to handle a failure of a step: roll it back where the recipe would keep its result."""
        said = self._optional[number].step.on_failure
        return "rollback" if said == "keep" else said

    def whole(self, recipe: Recipe) -> Result:
        """Run a recipe on the original."""
        return self._run(self._stored, recipe)

    def _fresh(self) -> storage.StoredModel:
        """Return the model to start from, with its own scratch file, which is removed with the models made from it."""
        weights = storage.Weights()
        weights.adopt(self._begun.weights)
        return replace(self._begun, weights=weights)

    def _run(self, stored: storage.StoredModel, recipe: Recipe) -> Result:
        return runner.run(stored, recipe, options=runner.RunOptions(observer=self._observer, contained=self._contained))


def _outcome(result: Result, step: PassStep) -> StepOutcome:
    """Return the outcome of a step."""
    where = f"{step.path}:{step.line}" if step.path else ""
    records = [one for one in result.steps if one.name == step.name and one.where in (where, "")]
    committed = [one for one in records if one.status == "committed"]
    if not committed:
        return StepOutcome(None, complaint=_why_not(records))
    last = committed[-1]
    sites = tuple(dict.fromkeys(site.anchor for one in committed for site in one.applied))
    sensitive = tuple(dict.fromkeys(kept.site.anchor for one in committed for kept in one.kept))
    return StepOutcome(replace(result.stored, proto=result.proto), last.verdict, sites, sensitive)


def _why_not(records: Sequence[StepRecord]) -> str:
    """Return why a step was not committed."""
    if not records:
        return "was not reached"
    last = records[-1]
    if last.status != "unchanged":
        return last.message or last.status.replace("_", " ")
    reasons = [*dict.fromkeys(one.reason for one in last.refusals)]
    return ": ".join(["changes nothing", *(["; ".join(reasons[:3])] if reasons else [])])


class _Meter:
    """Measures models on inputs that the original accepts, if possible of the sizes in actual use."""

    def __init__(self, stored: storage.StoredModel, recipe: Recipe, spec: BenchSpec) -> None:
        self._stored = stored
        self._recipe = recipe
        self._spec = spec

    @cached_property
    def _feeds(self) -> tuple[list[Mapping[str, Any]], list[dict[str, Any]]]:
        original, recipe = subject(self._stored, "the model"), self._recipe
        inputs = typical_inputs(recipe.inputs, recipe.verify.accuracy.samples, original)
        return legal_feeds(original, inputs, self._spec)

    @property
    def inputs(self) -> tuple[Mapping[str, Any], ...]:
        """The descriptions of the measured inputs."""
        return tuple(self._feeds[1])

    def measure(self, before: storage.StoredModel, after: storage.StoredModel, ratio: float | None) -> Interval:
        """Return the speed of a model relative to another one."""
        models = [subject(before, "the model before"), subject(after, "the model after")]
        return compare(models, self._feeds[0], self._spec, decide=ratio).speed
