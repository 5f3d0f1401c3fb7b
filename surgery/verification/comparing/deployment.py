"""Check a changed model as its user will run it: with the default options of ONNX Runtime, all optimizations included.

A verdict compares models without optimizations of the runtime, because these change the last bits, and some are wrong.
But a model that is right as written may not load with them, or they may make it wrong. So the model that is to be
written also runs with the default options of a session, and its outputs are compared with the same outputs of the
original, which were computed without optimizations.

What the runtime does to the original in the same way is not the fault of a change. If the outputs of the changed model
are beyond the tolerance, the original runs with the default options, too, and the changed model passes

- if the original fails as well; input sets on which it fails are left out, unless it fails on all;
- if the two agree with each other;
- if it is not much farther from the original without optimizations than the original with them: both are then in the
  noise of the optimizations, such as the rounding of quantized values that moved by one bit.

A model that is made for another runtime, such as OpenVINO, runs there instead if it is installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

from surgery.base.errors import UsageError
from surgery.base.json_record import Record
from surgery.base.operators.cost import opening
from surgery.base.promises import Parity
from surgery.model.runtime.engine import ELSEWHERE, TITLES, Engine, RunOutcome
from surgery.model.runtime.executed import Executed as Executed
from surgery.model.runtime.fresh_draws import draws
from surgery.verification.comparing.compare import OutputDistances, compare, total_bytes
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, OutputJudge, describe
from surgery.verification.comparing.preparation import Preparation
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.run_feeds import feeds_for
from surgery.verification.comparing.ties import settled
from surgery.verification.comparing.vacuity import Run

_SECONDS = 0.25
"""Estimated seconds that all runs may take at most, beyond the first of each number of dims: most of the cost is the
session."""

_BYTES = 16 << 20
"""Number of bytes that the outputs of these runs may take at most. They are held next to those of the original."""

_MOST_SIZES = 3

_FARTHER = 2.0
"""How much farther from the reference a changed model may be than the original, both with optimizations."""

_HOW = f"with the default optimizations of {TITLES['onnxruntime']}"


@dataclass(frozen=True)
class Deployed(Record, keys="verdict=verdict.status verdict.reason verdict.message executed original note? runtime"):
    """The result of running a changed model as deployed.

    `verdict` compares its outputs with the original's. `executed` are the nodes that the runtime executed, None if the
    model did not run or the runtime does not list them; `original` those of the original, None if it was not run.
    `note` says why it did not run on the execution provider or in the runtime of the target. `runtime` is the runtime,
    with its release if it is not ONNX Runtime.
    """

    verdict: Verdict
    executed: Executed | None = None
    original: Executed | None = None
    note: str = ""
    runtime: str = TITLES["onnxruntime"]

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the changed model."""
        return not self.verdict.is_different

    @property
    def is_elsewhere(self) -> bool:
        """Whether it ran in another runtime than ONNX Runtime."""
        return self.runtime != TITLES["onnxruntime"]


class DeploymentCheck:
    """Runs changed models as deployed, and compares them with one original; `judge` compares all of its runs.

    They run on the execution provider or in the runtime `target` where it is installed and starts, else in ONNX Runtime
    on the execution providers of the verification.
    """

    def __init__(self, original: ReferenceRun, judge: OutputJudge, target: str = "") -> None:
        self._original = original
        self._all = judge
        self._target = target
        self._note = ""
        self._title = TITLES["onnxruntime"]
        self._left_out = ""
        self._running: list[Engine] = []
        self._own: Executed | None = None
        self._listing = Preparation(self._list_own, self._end_runs)

    def begin(self) -> None:
        """Start to run the prepared original in a thread, for `with_original`, unless the target is another runtime."""
        if not self._target and self._runs:
            self._listing.begin()

    def close(self) -> None:
        """End the run that `begin` started."""
        self._listing.abandon()

    def check(self, candidate: bytes) -> Deployed:
        """Return whether a changed model is right as deployed. The original must have been prepared."""
        outcome = self._run(candidate)
        if outcome.failure is None and _problem(outcome, self._runs):
            outcome = self._without(self._leave_out_failing(), outcome)
        problem = _problem(outcome, self._runs)
        if problem:
            return self._deployed(self._failed(problem))
        verdict = self._verdict(self._runs, outcome.runs)
        verdict = self._pardoned(outcome.runs) if verdict.is_different else verdict
        verdict = settled(self._original, candidate, verdict, self._run_of)
        return self._deployed(verdict, outcome.executed)

    @property
    def original(self) -> Executed | str:
        """The nodes of the original that ONNX Runtime executes, or why it does not run."""
        self._leave_out_failing()
        own = self._as_deployed
        return _problem(own, self._runs) or own.executed or f"{self._title} lists none"

    @property
    def note(self) -> str:
        """Why nothing ran on the target; an empty string if it did."""
        return self._note

    def with_original(self, found: Deployed) -> Deployed:
        """Add the nodes of the original that the runtime executes, which one run shows."""
        if "_as_deployed" in vars(self):
            return replace(found, original=self._as_deployed.executed)
        self._listing.finish()
        return replace(found, original=self._own)

    def _list_own(self) -> None:
        self._own = self._run_of(self._original.skeleton, self._runs[:1]).executed

    def _end_runs(self) -> None:
        for engine in tuple(self._running):
            engine.kill()

    def _deployed(self, verdict: Verdict, executed: Executed | None = None) -> Deployed:
        if self._left_out:
            verdict = replace(verdict, message="; ".join(filter(None, (verdict.message, self._left_out))))
        return Deployed(verdict, executed, note=self._note, runtime=self._title)

    def _leave_out_failing(self) -> set[int]:
        """Leave out the runs in which the original fails as deployed, unless all fail; return their places.

        They show nothing about a change: OpenVINO refuses a pooling that is larger than a small image, for example.
        """
        own, runs = self._as_deployed, self._runs
        failing = {place for place, found in enumerate(own.runs) if isinstance(found, str)}
        if own.failure is not None or not failing or len(failing) == len(own.runs):
            return set()
        sets = f"{len(failing)} of {len(runs)} input sets"
        self._left_out = f"without {sets}, on which the original fails {self._how}: {_problem(own, runs)}"
        self._as_deployed = self._without(failing, own)
        self._numbers = [number for place, number in enumerate(self._numbers) if place not in failing]
        vars(self).pop("_judge", None)  # it judged all of them
        return failing

    @staticmethod
    def _without(failing: set[int], outcome: RunOutcome) -> RunOutcome:
        """Return an outcome without the runs at some places."""
        return replace(outcome, runs=[found for place, found in enumerate(outcome.runs) if place not in failing])

    @property
    def _how(self) -> str:
        return _HOW if self._title == TITLES["onnxruntime"] else f"in {self._title}"

    @cached_property
    def _numbers(self) -> Sequence[int]:
        """The numbers of some of the original's runs: one of each number of dims, others that are cheap and small."""
        original, chosen, left, room = self._original, list[int](), _SECONDS, _BYTES
        session = opening(original.inputs.plan.nodes) if draws(original.skeleton) else 0.0  # each run has a new one
        sizes: set[tuple[tuple[str, int], ...]] = set()
        for number, run in enumerate(original.runs):
            size = run.binding.dim_key
            is_new = size not in sizes and len(sizes) < _MOST_SIZES
            cost = session + original.inputs.cost(run.binding)
            taken = total_bytes(run.outputs)
            if is_new or (cost <= left and taken <= room):
                sizes.add(size)
                chosen.append(number)
                left, room = left - cost, room - taken
        return chosen

    @property
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

    def _run(self, model: bytes) -> RunOutcome:
        return self._run_of(model, self._runs)

    def _run_of(self, model: bytes, runs: Sequence[Run]) -> RunOutcome:
        feeds = feeds_for(model, runs)
        if self._target:
            try:
                return self._run_on(self._target, model, feeds)
            except UsageError as error:
                self._target, self._note = "", "; ".join(filter(None, (error.what, error.todo)))
        return self._run_on("", model, feeds)

    def _run_on(self, target: str, model: bytes, feeds: Sequence[Mapping[str, Any]]) -> RunOutcome:
        name = next((one for one in ELSEWHERE if one == target), None)
        providers = (target,) if target and name is None else ()
        with closing(self._original.engine_for(name or "onnxruntime", deployed=True, providers=providers)) as engine:
            self._running.append(engine)
            try:
                found = engine.run(model, feeds)
            finally:
                self._running.remove(engine)
            self._title = found.title or engine.title
            return found

    @cached_property
    def _as_deployed(self) -> RunOutcome:
        """The runs of the original."""
        return self._run(self._original.skeleton)

    def _verdict(self, runs: Sequence[Run], outputs: Sequence[Any]) -> Verdict:
        if not runs:
            return Verdict(Status.UNVERIFIED, NOT_RUN, message=f"it loads {self._how}, but has no inputs to run on")
        return self._judge.judge(runs, outputs, Parity.CLOSE, doubt=inf)  # as it is written, it was judged before

    def _failed(self, problem: str) -> Verdict:
        """Return the verdict on a model that fails; what fails for the original, too, shows nothing."""
        own = _problem(self._as_deployed, self._runs)
        if own:
            result = f"; the result, too: {problem}" if problem != own else ", and the result in the same way"
            return Verdict(Status.UNVERIFIED, NOT_RUN, message=f"the original fails {self._how}: {own}{result}")
        return Verdict(Status.DIFFERENT, message=f"right as written, but it fails {self._how}: {problem}")

    def _pardoned(self, outputs: Sequence[Any]) -> Verdict:
        """Return the verdict on a model beyond the tolerance, unless the original differs from itself in the same way.

        Float64, which takes long, decides what the original as deployed does not.
        """
        own = self._as_deployed
        problem = _problem(own, self._runs)
        if not problem and self._agree(own.runs, outputs):
            return Verdict(Status.CLOSE, message=f"{self._how}, the original differs from itself in the same way")
        verdict = self._judge.judge(self._runs, outputs, Parity.CLOSE, doubt=1.0)
        if not verdict.is_different:
            return verdict
        if problem:
            message = f"it differs {self._how}, where the original fails: {problem}; {verdict.message}"
            return Verdict(Status.UNVERIFIED, NOT_RUN, message=message)
        allowed = _FARTHER * self._distance(own.runs)
        if self._distance(outputs) <= allowed:
            return Verdict(Status.CLOSE, message=f"{self._how}, the original is about as far from itself")
        return replace(verdict, message=f"right as written, but wrong {self._how}: {verdict.message}")

    def _agree(self, own: Sequence[Any], outputs: Sequence[Any]) -> bool:
        """Return whether the outputs of both models agree, both as deployed."""
        other = self._with(own)
        return not OutputJudge(other).judge(other.runs, list(outputs), Parity.CLOSE, doubt=inf).is_different

    def _distance(self, outputs: Sequence[Any]) -> float:
        """Return the multiple of the tolerance that outputs need next to those without optimizations."""
        rules, total = self._original.rules(Parity.CLOSE), OutputDistances()
        for run, found in zip(self._runs, outputs):
            compare(run.outputs, found, rules, total)
        return total.needed


def _problem(outcome: RunOutcome, runs: Sequence[Run]) -> str:
    """Return why a model did not run on all inputs; an empty string if it did."""
    if outcome.failure is not None:
        return outcome.failure.rstrip(".")
    return next((f"{found}{describe(run)}" for run, found in zip(runs, outcome.runs) if isinstance(found, str)), "")
