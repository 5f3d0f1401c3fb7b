"""Measure the loss of a lossy step, and check it against the budget.

A changed model is judged as it will be deployed: with all optimizations of ONNX Runtime, which run quantized operators
with dedicated kernels. The original runs without any, and so do the many models that are only measured to find out
which sites to convert: optimizing a model, and copying its weights into another layout, takes much longer than running
it. Each output is measured on each set of inputs separately, and the worst counts.

Outputs that prove nothing, see `vacuity`, stay within any budget. If all outputs with a limit prove nothing or are
random, nothing is shown, and the verdict is unverified.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from surgery.base.errors import UsageError
from surgery.base.promises import Parity
from surgery.model.proto.randomness import origins
from surgery.model.runtime.engine import Engine, RunOutcome
from surgery.model.runtime.setup import packs_weights
from surgery.verification.accuracy.budget import DEFAULT, against, describe, missing, use
from surgery.verification.accuracy.error_distribution import add_errors
from surgery.verification.accuracy.metrics import METRICS, SAME, Metrics, measure_value, tell
from surgery.verification.accuracy.samples import EVALUATION_SEED, Samples, samples
from surgery.verification.accuracy.user_metric import Score, UserMetric, describe_metric
from surgery.verification.accuracy.worst_layer import worst_layer
from surgery.verification.comparing.details import Details, OutputErrors, Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, VACUOUS
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.spread import Spread, all_errors
from surgery.verification.comparing.vacuity import Run, vacuous
from surgery.verification.inputs.spec import AccuracySpec, MetricLimit
from surgery.verification.running.pieces import run_in_pieces

_DEVIATIONS = 4.0
"""Margin between the worst use of the budget and the whole budget, in standard deviations of the use between sets of
inputs: other inputs of the same kind may use more."""

ON_DRAWN = ", on synthetic inputs only"
"""The restriction of a measurement without data of the user's: nothing is shown for other inputs."""

_ON_CALIBRATED = ", on the calibration data only"
"""The restriction of a measurement on the data that the ranges come from, which other data may exceed."""


@dataclass(frozen=True)
class LimitUse:
    """The share of one limit that the worst set of inputs uses. `guarded` adds a margin for other inputs."""

    limit: MetricLimit
    output: str
    sample: int
    value: float
    share: float
    guarded: float


@dataclass(frozen=True)
class Loss:
    """The loss of a changed model's outputs: their metrics on each set of inputs, by name.

    `kinds` are the kinds of data of the sets. `failure` says why there are none; `unsupported` whether that is a
    gap of the runtime rather than a wrong model. `score` is the user's metric over all sets, if there is one,
    `errors` the distribution of errors, if requested.
    """

    outputs: Mapping[str, Sequence[Metrics]]
    failure: str = ""
    unsupported: bool = False
    score: Score | None = None
    errors: tuple[OutputErrors, ...] = ()
    kinds: tuple[str, ...] = ()

    def uses(self, limits: Sequence[MetricLimit]) -> Iterator[LimitUse]:
        """Yield for each limit its use by the output to which it applies and that uses most."""
        for limit in limits:
            names = self.outputs if limit.output is None else [limit.output]
            found = [self._use(limit, name) for name in names if self.outputs[name]]
            if found:
                yield max(found, key=lambda one: one.guarded)

    def _use(self, limit: MetricLimit, output: str) -> LimitUse:
        values = [metrics[limit.metric] for metrics in self.outputs[output]]
        shares = [use(limit, value) for value in values]
        sample = max(range(len(shares)), key=shares.__getitem__)
        return LimitUse(limit, output, sample, values[sample], shares[sample], _guarded(shares, self.kinds))

    def use(self, limits: Sequence[MetricLimit]) -> float:
        """Return the used share of the budget, with a margin for other inputs; infinite for a model that fails."""
        if self.failure:
            return math.inf
        score = self.score.guarded if self.score is not None else 0.0
        return max(score, *(one.guarded for one in self.uses(limits)), 0.0)

    def worst_sets(self, limits: Sequence[MetricLimit], most: int) -> tuple[int, ...]:
        """Return the numbers of the sets of inputs that use the most of the budget, the worst first."""
        shares: dict[int, float] = {}
        for limit in limits:
            for name in self.outputs if limit.output is None else [limit.output]:
                for number, metrics in enumerate(self.outputs.get(name, ())):
                    shares[number] = max(shares.get(number, 0.0), use(limit, metrics[limit.metric]))
        return tuple(sorted(shares, key=lambda number: (-shares[number], number))[:most])

    @cached_property
    def worst(self) -> Metrics:
        """The worst of each metric over outputs and sets of inputs."""
        found = dict(SAME)
        for values in self.outputs.values():
            for metrics in values:
                found = {name: metric.worst(found[name], metrics[name]) for name, metric in METRICS.items()}
        return found


def _guarded(shares: Sequence[float], kinds: Sequence[str]) -> float:
    """Return the largest share, with a margin for other inputs of the same kind.

    Few sets of a kind show little of its deviation, so that of all sets from the means of their kinds counts.
    """
    if not all(map(math.isfinite, shares)):
        return max(shares)
    groups: dict[str, list[float]] = {}
    for share, kind in zip(shares, kinds or [""] * len(shares), strict=True):
        groups.setdefault(kind, []).append(share)
    return max(shares) + _DEVIATIONS * _deviation(list(groups.values()))


def _deviation(groups: Sequence[Sequence[float]]) -> float:
    """Return the standard deviation of numbers from the mean of their group; 0 if it is not known."""
    free = sum(len(group) - 1 for group in groups)
    squares = sum((one - sum(group) / len(group)) ** 2 for group in groups for one in group)
    return math.sqrt(squares / free) if free else 0.0


class Evaluation:
    """Measures changed models against one original. The facts about the original are determined once.

    Models are skeletons with the names of the original's inputs and outputs. If `calibrated`, the samples are those
    that passes calibrate with.
    """

    def __init__(self, original: ReferenceRun, spec: AccuracySpec, *, calibrated: bool = False) -> None:
        self._original = original
        self._spec = spec
        self._calibrated = calibrated
        self.limits = spec.limits or (DEFAULT if spec.metric is None else ())
        self._engines: dict[bool, Engine] = {}
        self._user: UserMetric | None = None

    @property
    def budget(self) -> list[str]:
        """The limits, as text for messages."""
        metric = self._spec.metric
        return [*map(describe, self.limits), *([describe_metric(metric)] if metric is not None else [])]

    @property
    def samples(self) -> Samples:
        """The evaluation inputs."""
        return self._ran[0]

    @property
    def _expected(self) -> Sequence[Mapping[str, Any]]:
        """The original's outputs for the evaluation inputs."""
        return self._ran[1]

    @cached_property
    def _ran(self) -> tuple[Samples, Sequence[Mapping[str, Any]]]:
        """The evaluation inputs, and the original's outputs for them.

        Drawn sets that the original rejects are left out: whether a model accepts inputs may depend on their values.
        """
        drawn = samples(self._original, self._spec.samples, EVALUATION_SEED)
        engine = self._original.engine_for(self._original.engine)
        try:
            outcome = engine.run(self._original.skeleton, drawn.feeds)
        finally:
            engine.close()
        found = {number: run for number, run in enumerate(outcome.runs) if not isinstance(run, str)}
        failure = _failure(outcome)
        if outcome.failure or (failure and not (drawn.synthetic and found)):
            raise UsageError(f"the original does not run on the evaluation inputs: {failure}")
        self._check_limits(list(next(iter(found.values()), [])))
        return drawn.only(found), list(found.values())

    def _check_limits(self, outputs: Sequence[str]) -> None:
        """Raise `UsageError` for a limit on an output that does not exist, or that varies between runs."""
        unknown = missing(self.limits, outputs)
        if unknown is not None:
            known = ", ".join(outputs)
            raise UsageError(f"the budget names '{unknown}', which is not an output", todo=f"the outputs are {known}")
        random = missing(self.limits, [name for name in outputs if name not in self._unsteady])
        if random is not None:
            raise UsageError(
                f"the budget names '{random}', which is random in the original",
                todo="limit an output that is not random",
            )

    @property
    def _unsteady(self) -> frozenset[str]:
        """The outputs that are not measured, because they vary between runs of the original."""
        return self._original.random | self._original.nondeterministic

    @cached_property
    def _vacuous(self) -> Mapping[str, str]:
        """The outputs that prove nothing on the evaluation inputs, each with the reason."""
        import onnx

        model = onnx.load_model_from_string(self._original.skeleton)
        sets = zip(self.samples.bindings, self.samples.feeds, self._expected)
        runs = [Run(binding, feed, outputs) for binding, feed, outputs in sets]
        return vacuous(model, runs, origins(model), self._original.rules(Parity.CLOSE))

    def _nothing_shown(self, loss: Loss) -> str:
        """Return why the metrics of a loss say nothing; an empty string if they say something."""
        if loss.score is not None:
            return ""
        limited = [limit.output for limit in self.limits]
        measured = list(loss.outputs) if None in limited else [name for name in loss.outputs if name in limited]
        if any(name not in self._vacuous for name in measured):
            return ""
        reasons = [f"'{name}' {self._vacuous[name]}" for name in measured]
        return "; ".join(reasons) or "all outputs of the original are random"

    def measure(
        self, candidate: bytes, *, optimized: bool = False, sets: tuple[int, ...] = (), spread: bool = False
    ) -> Loss:
        """Run a changed model on the evaluation inputs, and compare its outputs with those of the original.

        With `sets`, it runs on those sets alone, given by their numbers; a user's metric always takes all of them. With
        `spread`, the distribution of errors is determined, too.
        """
        numbers = sets if sets and self._spec.metric is None else range(len(self._expected))
        expected = [self._expected[number] for number in numbers]
        outcome = self._run(candidate, [self.samples.feeds[number] for number in numbers], optimized)
        failure = _failure(outcome)
        if failure:
            return Loss({}, failure, unsupported=outcome.unsupported is not None)
        outputs: dict[str, list[Metrics]] = {name: [] for name in expected[0] if name not in self._unsteady}
        changed = [run for run in outcome.runs if not isinstance(run, str)]
        if retyped := _retyped(expected[0], changed[0]):
            return Loss({}, retyped)
        for before, after in zip(expected, changed):
            for name, found in outputs.items():
                found.append(measure_value(before[name], after[name]))
        errors = self._errors(list(outputs), numbers, expected, changed) if spread else ()
        kinds = tuple(self.samples.kind(number) for number in numbers)
        return Loss(outputs, score=self._score(expected, changed), errors=errors, kinds=kinds)

    def _errors(
        self,
        names: Sequence[str],
        numbers: Sequence[int],
        expected: Sequence[Mapping[str, Any]],
        changed: Sequence[Mapping[str, Any]],
    ) -> tuple[OutputErrors, ...]:
        """Return the error distributions of outputs over the sets of inputs with these numbers."""
        spreads = {name: Spread() for name in names}
        for number, before, after in zip(numbers, expected, changed):
            add_errors(spreads, before, after, self.samples.bindings[number].as_json())
        return all_errors(spreads, "rms")

    def _score(self, expected: Sequence[Mapping[str, Any]], changed: Sequence[Mapping[str, Any]]) -> Score | None:
        """Return the user's metric, if there is one; if it fails for the original, that is the user's error."""
        spec = self._spec.metric
        if spec is None:
            return None
        if self._user is None:
            timeout, memory = self._original.bounds
            self._user = UserMetric(spec, self.samples.labelled, expected, timeout, memory)
        return self._user.score(changed)

    def _run(self, candidate: bytes, feeds: Sequence[Mapping[str, Any]], optimized: bool) -> RunOutcome:
        engine = self._engine(optimized)
        found = run_in_pieces(engine.run, candidate, feeds) if optimized and packs_weights(candidate) else None
        return engine.run(candidate, feeds) if found is None else found

    def _engine(self, optimized: bool) -> Engine:
        if optimized not in self._engines:
            self._engines[optimized] = self._original.engine_for(self._original.engine, deployed=optimized)
        return self._engines[optimized]

    def judge(self, candidate: bytes) -> Verdict:
        """Return whether a changed model runs wherever the original does, and stays within the budget."""
        original = self._original
        original.prepare()
        if original.problem is not None:
            message = f"accuracy is measured on the whole model, which cannot be run: {original.problem}"
            return Verdict(Status.UNVERIFIED, NOT_RUN, message=message)
        loss = self.measure(candidate, optimized=True, spread=True)
        if loss.unsupported:
            return Verdict(Status.UNVERIFIED, NOT_RUN, message=loss.failure)
        failure = loss.failure or self._fails_elsewhere(candidate)
        if failure:
            return Verdict(Status.DIFFERENT, message=f"the changed model fails where the original runs: {failure}")
        verdict = self.verdict(loss)
        if verdict.status is not Status.LOSSY or not loss.worst_sets(self.limits, 1):
            return verdict
        feed = self.samples.feeds[loss.worst_sets(self.limits, 1)[0]]
        layer = worst_layer(original, candidate, feed)
        return replace(verdict, message=f"{verdict.message}{layer}") if layer else verdict

    def verdict(self, loss: Loss) -> Verdict:
        """Return the verdict on a measured loss."""
        if loss.failure:
            return Verdict(Status.DIFFERENT, message=f"the changed model fails: {loss.failure}")
        uses = list(loss.uses(self.limits))
        score = loss.score
        details = Details(metrics=loss.worst, accuracy=self._account(uses, score, loss.worst), outputs=loss.errors)
        beyond = [self._tell(one) for one in uses if one.guarded > 1.0]
        if score is not None and score.guarded > 1.0:
            near = "" if score.use > 1.0 else "; other inputs may exceed the budget"
            beyond.append(f"{score}, budget {describe_metric(score.spec)}{near}")
        if beyond:
            return Verdict(Status.DIFFERENT, message=f"{'; '.join(beyond)}{self._note()}", details=details)
        nothing = self._nothing_shown(loss)
        if nothing:
            message = f"nothing is proven: {nothing}; measure on your own data (--evaluation)"
            return Verdict(Status.UNVERIFIED, VACUOUS, message=message, details=details)
        worst = max(uses, key=lambda one: one.guarded, default=None)
        where = f", worst in output '{worst.output}'{self._on(worst)}" if worst is not None else ""
        scored = f"; {score}" if score is not None else ""
        message = f"{tell(loss.worst)}{where}{scored}; budget {', '.join(self.budget)}{self._note()}"
        message += "; other inputs are not covered: give yours with --evaluation" if self.samples.synthetic else ""
        return Verdict(Status.LOSSY, message=message, details=details)

    def _tell(self, one: LimitUse) -> str:
        metric = METRICS[one.limit.metric]
        shown = metric.shown.format(one.value)
        near = "" if one.share > 1.0 else "; other inputs may exceed the budget"
        return f"output '{one.output}' has {shown}{self._on(one)}, budget {describe(one.limit)}{near}"

    def _on(self, one: LimitUse) -> str:
        binding = self.samples.bindings[one.sample]
        dims = "".join(f"{name}={extent}, " for name, extent in binding.dims.items())
        return (
            f" ({dims}{binding.character} data, seed {binding.seed})"
            if self.samples.synthetic
            else f" ({binding.character})"
        )

    def _note(self) -> str:
        count = len(self.samples.feeds)
        kind = "synthetic " if self.samples.synthetic else ""
        same = ", those of the calibration" if self._calibrated else ""
        return f"; measured on {count} {kind}{'set' if count == 1 else 'sets'} of inputs{same}"

    def _account(self, uses: Sequence[LimitUse], score: Score | None, worst: Metrics) -> Mapping[str, Any]:
        """Return the budget and its use as plain values; `worst` has the worst of each metric."""
        limits = [
            {
                "limit": describe(one.limit),
                "output": one.output,
                "value": one.value,
                "used": one.share,
                "guarded": one.guarded,
                "inputs": self.samples.bindings[one.sample].as_json(),
            }
            for one in uses
        ]
        metric = score.as_json() if score is not None else None
        count, summary = len(self.samples.feeds), self._summary(uses, score, worst)
        synthetic = self.samples.synthetic
        return {"summary": summary, "limits": limits, "metric": metric, "sets": count, "synthetic": synthetic}

    def _summary(self, uses: Sequence[LimitUse], score: Score | None, worst: Metrics) -> str:
        """Return the metrics against the budget in one line, for the head of every report."""
        parts = [against(one.limit, one.value) for one in uses]
        parts += [f"{score}, {describe_metric(score.spec)}"] if score is not None else []
        if worst["top1"] < METRICS["top1"].best and all(one.limit.metric != "top1" for one in uses):
            parts.append(METRICS["top1"].shown.format(worst["top1"]))
        seen = _ON_CALIBRATED if self._calibrated else ""
        return f"{', '.join(parts)}{ON_DRAWN if self.samples.synthetic else seen}"

    def _fails_elsewhere(self, candidate: bytes) -> str:
        """Return why a changed model does not run on the inputs of verification, which have other sizes and values."""
        outcome = self._run(candidate, [run.feed for run in self._original.runs], optimized=True)
        return _failure(outcome)

    def close(self) -> None:
        """Stop the workers."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()
        if self._user is not None:
            self._user.close()
            self._user = None


def _retyped(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return which output is a tensor of another element type than in the original; an empty string if none is."""
    kinds = {name: (getattr(one, "dtype", None), getattr(after[name], "dtype", None)) for name, one in before.items()}
    return next((f"output '{name}' is {new}, not {old}" for name, (old, new) in kinds.items() if old != new), "")


def _failure(outcome: RunOutcome) -> str:
    """Return why a model did not run on all inputs; an empty string if it did."""
    return outcome.failure or next((run for run in outcome.runs if isinstance(run, str)), "")
