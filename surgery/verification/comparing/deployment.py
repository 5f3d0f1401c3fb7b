"""Check a changed model as its user will run it: with the default options of ONNX Runtime, all optimizations included.

A verdict compares models without optimizations of the runtime, because these change the last bits, and some are wrong.
But a model that is right as written may not load with them, or they may make it wrong. So the model that is to be
written also runs with the default options of a session, and its outputs are compared with the same outputs of the
original, which were computed without optimizations.

What the runtime does to the original in the same way is not the fault of a change. If the outputs of the changed model
are beyond the tolerance, the original runs with the default options, too, and the changed model passes

- if the original fails as well;
- if the two agree with each other;
- if it is not much farther from the original without optimizations than the original with them: both are then in the
  noise of the optimizations, such as the rounding of quantized values that moved by one bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from surgery.errors import UsageError
from surgery.promises import Parity
from surgery.runtime.engine import Outcome
from surgery.runtime.executed import Executed as Executed
from surgery.verification.comparing.compare import Difference, compare
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.feeding import feeds_for
from surgery.verification.comparing.output_judge import NOT_RUN, OutputJudge, describe
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.ties import settled
from surgery.verification.comparing.vacuity import Run

_SECONDS = 0.25
"""Estimated seconds that all runs may take at most, beyond the first of each number of dims: most of the cost is the
session."""

_MOST_SIZES = 3

_FARTHER = 2.0
"""How much farther from the reference a changed model may be than the original, both with optimizations."""

_HOW = "with the default optimizations of ONNX Runtime"


@dataclass(frozen=True)
class Deployed:
    """The result of running a changed model as deployed.

    `verdict` compares its outputs with the original's. `executed` are the nodes that ONNX Runtime executed, None if the
    model did not run; `original` those of the original, None if it was not run. `note` says why it did not run on the
    execution provider of the target.
    """

    verdict: Verdict
    executed: Executed | None = None
    original: Executed | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON report."""
        verdict = self.verdict
        return {
            "verdict": verdict.status.value,
            "reason": verdict.reason,
            "message": verdict.message,
            "executed": self.executed.to_json() if self.executed is not None else None,
            "original": self.original.to_json() if self.original is not None else None,
            "note": self.note or None,
        }

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the changed model."""
        return not self.verdict.is_different


class DeploymentCheck:
    """Runs changed models as deployed, and compares them with one original; `judge` compares all of its runs.

    They run on the execution provider `target` where it starts, else on those of the verification.
    """

    def __init__(self, original: ReferenceRun, judge: OutputJudge, target: str = "") -> None:
        self._original = original
        self._all = judge
        self._target = target
        self._note = ""

    def check(self, candidate: bytes) -> Deployed:
        """Return whether a changed model is right as deployed. The original must have been prepared."""
        outcome, runs = self._run(candidate), self._runs
        problem = _problem(outcome, runs)
        if problem:
            return Deployed(self._failed(problem), note=self._note)
        verdict = self._verdict(runs, outcome.runs)
        verdict = self._pardoned(verdict, outcome.runs) if verdict.is_different else verdict
        verdict = settled(self._original, candidate, verdict, self._run_of)
        return Deployed(verdict, outcome.executed, note=self._note)

    @property
    def original(self) -> Executed | str:
        """The nodes of the original that ONNX Runtime executes, or why it does not run."""
        own = self._as_deployed
        return _problem(own, self._runs) or own.executed or "ONNX Runtime lists none"

    def with_original(self, found: Deployed) -> Deployed:
        """Add the nodes of the original that ONNX Runtime executes."""
        return replace(found, original=self._as_deployed.executed)

    @cached_property
    def _numbers(self) -> Sequence[int]:
        """The numbers of some of the original's runs: one of each number of dims, others as long as they are cheap."""
        original, chosen, left = self._original, list[int](), _SECONDS
        sizes: set[tuple[tuple[str, int], ...]] = set()
        for number, run in enumerate(original.runs):
            size = tuple(run.binding.dims.items())
            is_new = size not in sizes and len(sizes) < _MOST_SIZES
            cost = original.cost(run.binding)
            if is_new or cost <= left:
                sizes.add(size)
                chosen.append(number)
                left -= cost
        return chosen

    @cached_property
    def _runs(self) -> Sequence[Run]:
        return [self._original.runs[number] for number in self._numbers]

    @cached_property
    def _judge(self) -> OutputJudge:
        """The judge of the outputs of these runs."""
        if len(self._runs) == len(self._original.runs):
            return self._all
        return OutputJudge(self._with([run.outputs for run in self._runs]))

    def _with(self, outputs: Sequence[Any]) -> ReferenceRun:
        """Return these runs of the original with other outputs."""
        return self._original.computed_elsewhere(dict(zip(self._numbers, outputs)), self._original.nondeterministic)

    def _run(self, model: bytes) -> Outcome:
        return self._run_of(model, self._runs)

    def _run_of(self, model: bytes, runs: Sequence[Run]) -> Outcome:
        feeds = feeds_for(model, runs)
        if self._target:
            try:
                return self._run_on((self._target,), model, feeds)
            except UsageError as error:
                self._target, self._note = "", error.what
        return self._run_on((), model, feeds)

    def _run_on(self, providers: tuple[str, ...], model: bytes, feeds: Sequence[Mapping[str, Any]]) -> Outcome:
        with closing(self._original.engine_for("onnxruntime", deployed=True, providers=providers)) as engine:
            return engine.run(model, feeds)

    @cached_property
    def _as_deployed(self) -> Outcome:
        """The runs of the original."""
        return self._run(self._original.skeleton)

    def _verdict(self, runs: Sequence[Run], outputs: Sequence[Any]) -> Verdict:
        if not runs:
            return Verdict(Status.UNVERIFIED, NOT_RUN, message=f"it loads {_HOW}, but has no inputs to run on")
        return self._judge.judge(runs, outputs, Parity.CLOSE)

    def _failed(self, problem: str) -> Verdict:
        """Return the verdict on a model that fails; what fails for the original, too, shows nothing."""
        own = _problem(self._as_deployed, self._runs)
        if own:
            return Verdict(Status.UNVERIFIED, NOT_RUN, message=f"the original fails {_HOW}: {own}")
        return Verdict(Status.DIFFERENT, message=f"right as written, but it fails {_HOW}: {problem}")

    def _pardoned(self, verdict: Verdict, outputs: Sequence[Any]) -> Verdict:
        """Return the verdict on a model that differs, unless the original differs from itself in the same way."""
        own = self._as_deployed
        problem = _problem(own, self._runs)
        if problem:
            return Verdict(Status.UNVERIFIED, NOT_RUN, message=f"the original fails {_HOW}: {problem}")
        if self._agree(own.runs, outputs):
            return Verdict(Status.CLOSE, message=f"{_HOW}, the original differs from itself in the same way")
        allowed = _FARTHER * self._distance(own.runs)
        if self._distance(outputs) <= allowed:
            return Verdict(Status.CLOSE, message=f"{_HOW}, the original is about as far from itself")
        return replace(verdict, message=f"right as written, but wrong {_HOW}: {verdict.message}")

    def _agree(self, own: Sequence[Any], outputs: Sequence[Any]) -> bool:
        """Return whether the outputs of both models agree, both as deployed."""
        other = self._with(own)
        return not OutputJudge(other).judge(other.runs, list(outputs), Parity.CLOSE).is_different

    def _distance(self, outputs: Sequence[Any]) -> float:
        """Return the multiple of the tolerance that outputs need next to those without optimizations."""
        rules, total = self._original.rules(Parity.CLOSE), Difference()
        for run, found in zip(self._runs, outputs):
            compare(run.outputs, found, rules, total)
        return total.needed


def _problem(outcome: Outcome, runs: Sequence[Run]) -> str:
    """Return why a model did not run on all inputs; an empty string if it did."""
    if outcome.failure is not None:
        return outcome.failure.rstrip(".")
    return next((f"{found}{describe(run)}" for run, found in zip(runs, outcome.runs) if isinstance(found, str)), "")
