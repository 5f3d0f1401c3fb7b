"""The comparison of a changed model, as a whole, with its original: runs on the same inputs, outputs by name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from surgery.base.promises import Parity
from surgery.model.runtime.engine import Engine, EngineName, Outputs, RunOutcome
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.moments import Moments, other_draws
from surgery.verification.comparing.output_judge import NOT_RUN, OutputJudge, names
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.run_feeds import feeds_for
from surgery.verification.comparing.ties import settled
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.running.sizes_given import require_room
from surgery.verification.verdict.failing_models import failure_of

if TYPE_CHECKING:
    from surgery.verification.regions.intermediate import InnerEvidence


class WholeModels:
    """Compares changed models with one original, all of whose runs `judge` compares.

    `accepted` is the model that was accepted last. `overriding` compares models with explicit values for inputs that
    have a default. `prepare` is called before a whole model runs. `note` says what agreeing outputs rely on.
    """

    def __init__(
        self,
        original: ReferenceRun,
        judge: OutputJudge,
        verify: VerifySpec,
        overriding: Callable[[bytes, Parity], Verdict] | None,
        prepare: Callable[[], None],
        note: str,
    ) -> None:
        self.accepted: bytes | None = None
        self._original = original
        self._judge = judge
        self._verify = verify
        self._overriding = overriding
        self._prepare = prepare
        self._note = note
        self._moments = Moments(original)
        self._last: tuple[bytes, Sequence[Any]] | None = None
        self._wholes: dict[Hashable, Verdict] = {}

    def forget(self) -> None:
        """Forget outputs and verdicts."""
        self._last = self.accepted = None
        self._wholes.clear()

    def verify(self, candidate: bytes, promise: Parity) -> Verdict:
        """Compare a model with the original as a whole, unless it is already known to hold."""
        closely = digest(b"", candidate, Parity.CLOSE)
        key = closely if promise is Parity.CLOSE else digest(self.accepted or b"", candidate, promise)
        verdict = self._wholes.get(key) or self._compare_whole(candidate, promise)
        if verdict.passed:
            # A model that keeps bits is close to the original, too.
            self._wholes[key] = self._wholes[closely] = verdict
        return verdict

    def judge(self, run: Callable[[Sequence[Run], Callable[[], Engine]], RunOutcome], promise: Parity) -> Verdict:
        """Compare runs that the caller makes on the inputs of the original, in workers like its own."""
        original = self._original
        original.prepare()
        not_run = self._not_run()
        if not_run is not None:
            return not_run
        outcome = run(original.runs, lambda: original.engine_for(original.engine))
        results = [one for one in outcome.runs if not isinstance(one, str)]
        return failure_of(outcome, original.runs) or self._judge.judge(original.runs, results, promise)

    def _compare_whole(self, candidate: bytes, promise: Parity) -> Verdict:
        self._prepare()
        verdict = self._with_random(self._with_defaults(candidate, promise), candidate)
        if self._overriding is None or not verdict.passed:
            return verdict
        given = self._overriding(candidate, promise)
        if not given.is_different:
            return verdict
        return replace(given, message=f"with explicit values for inputs that have a default: {given.message}")

    def _with_random(self, verdict: Verdict, candidate: bytes) -> Verdict:
        """Compare the distributions of random outputs, whose elements cannot be compared; note that in the message."""
        original = self._original
        if not verdict.passed or not original.random:
            return replace(verdict, message=f"{verdict.message}{self._note}") if verdict.passed else verdict
        difference = self._moments.difference(candidate)
        if difference:
            return replace(verdict, status=Status.DIFFERENT, needed=None, message=difference)
        operators = ", ".join(sorted(original.operators))
        how = "by shape and type only" if difference is None else "by shape, type and distribution"
        return replace(
            verdict, message=f"{verdict.message}; {names(original.random)} {how}, because they are random ({operators})"
        )

    def _with_defaults(self, candidate: bytes, promise: Parity) -> Verdict:
        """Verify with all inputs that have a default left at it."""
        original = self._original
        original.prepare()
        not_run = self._not_run()
        if not_run is not None:
            return not_run
        outcome = self.run(candidate, original.engine)
        runs = original.runs
        require_room(outcome, [run.binding for run in runs], original.inputs.given_dims)
        failure = failure_of(outcome, runs)
        if failure is not None:
            original.control()
            return self._not_run() or failure
        other = other_draws(original, candidate)
        if other:
            return Verdict(Status.DIFFERENT, message=other)
        results = [run for run in outcome.runs if not isinstance(run, str)]
        # NumPy sums in the order of the memory layout: the last bit depends on a Transpose. Execution providers that
        # compute in 16 bits compile the model as a whole, and round otherwise where another node is gone.
        if promise is Parity.EXACT and (original.engine == "reference" or self._verify.setup.is_coarse):
            promise = Parity.CLOSE
        if promise is not Parity.EXACT or self.accepted is None:
            return self._judged(candidate, results, promise)
        verdict = self._judged(candidate, results, Parity.CLOSE)
        if not verdict.passed:
            return verdict
        changed = self._judge.changed_since(self._outputs_of(self.accepted), runs, results)
        if changed is not None and original.control():
            return self._judge.judge(runs, results, Parity.CLOSE)
        if changed is not None:
            return replace(verdict, status=Status.DIFFERENT, message=changed)
        empty = original.vacuous[Parity.EXACT]
        shown = self._examine(self.accepted, candidate, runs, empty, Parity.EXACT) if empty else None
        return verdict if shown is None or shown.agrees else shown.amend(verdict)

    def _judged(self, candidate: bytes, results: Sequence[Outputs], promise: Parity) -> Verdict:
        """Judge the outputs of a changed model; other choices among nearly equal values are no difference."""
        runs = self._original.runs
        verdict = self._judge.judge(runs, results, promise, self._inside(candidate, runs, promise))
        if promise is Parity.EXACT or not verdict.is_different:
            return verdict
        # Values inside that differ are no choice: only outputs are excused.
        outputs = self._judge.judge(runs, results, promise)
        return settled(self._original, candidate, verdict) if outputs.is_different else verdict

    def _outputs_of(self, accepted: bytes) -> Sequence[Any]:
        """Return the outputs of the model that was accepted last, which runs when they are first needed."""
        if self._last is None or self._last[0] != accepted:
            self._last = accepted, self.run(accepted, self._original.engine).runs
        return self._last[1]

    def _not_run(self) -> Verdict | None:
        """Return the verdict on any changed model if the original itself does not run, else None."""
        problem = self._original.problem
        return None if problem is None else Verdict(Status.UNVERIFIED, NOT_RUN, message=problem)

    def _inside(
        self, candidate: bytes, runs: Sequence[Run], promise: Parity
    ) -> Callable[[Verdict, Mapping[str, str]], Verdict]:
        """Return a function that amends a verdict on vacuous outputs by comparing values inside both models."""

        def amend(verdict: Verdict, vacuous: Mapping[str, str]) -> Verdict:
            return self._examine(self._original.skeleton, candidate, runs, vacuous, promise).amend(verdict)

        return amend

    def _examine(
        self, before: bytes, candidate: bytes, runs: Sequence[Run], vacuous: Mapping[str, str], promise: Parity
    ) -> InnerEvidence:
        from surgery.verification.regions.inner_values import InnerComparison
        from surgery.verification.regions.intermediate import examine

        original = self._original
        return examine(
            before, candidate, InnerComparison(original, self._verify, original.engine, runs, vacuous, promise)
        )

    def run(self, skeleton: bytes, name: EngineName) -> RunOutcome:
        """Run a model on the inputs of the original, except those that it does not have."""
        feeds = feeds_for(skeleton, self._original.runs)
        outcome = self._run_in(name, skeleton, feeds)
        if name == "reference" and outcome.unsupported is not None:
            # The original has operators that ONNX Runtime lacks. The changed model may be free of them, and may have
            # ONNX Runtime's own instead, which the evaluator lacks.
            runtime = self._run_in("onnxruntime", skeleton, feeds)
            outcome = outcome if runtime.failure is not None else runtime
        return outcome

    def _run_in(self, name: EngineName, skeleton: bytes, feeds: Sequence[Mapping[str, Any]]) -> RunOutcome:
        engine = self._original.engine_for(name)
        try:
            return engine.run(skeleton, feeds)
        finally:
            engine.close()


def digest(before: bytes, candidate: bytes, promise: Parity) -> Hashable:
    """Return a small key for a change, which may be taken back and never looked up."""
    return hashlib.sha256(before).digest(), hashlib.sha256(candidate).digest(), promise
