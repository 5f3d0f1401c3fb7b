"""Judge candidates: verify them after each step or at the end, or trust them.

A judge is an argument of the pipeline. `Verifying` compares candidates with the original, after the signature and the
checker. `Trusting` accepts everything, for runs that only have to reach a certain step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from surgery.base.errors import RecipeError, UsageError, internal, require_machine
from surgery.base.promises import COMPARING, Parity
from surgery.engine.pipeline.candidate import Candidate, Later, State
from surgery.engine.pipeline.doubting import Doubting
from surgery.engine.pipeline.records import DEPLOYED, Journal
from surgery.engine.pipeline.reference_start import ReferenceStart
from surgery.model import storage
from surgery.model.graph.state import Feed
from surgery.model.runtime.custom_operators import custom_nodes
from surgery.model.runtime.engine import most_weights
from surgery.model.shapes.facts import NO_DOUBTS, Doubts
from surgery.model.storage import weight_bytes
from surgery.verification.accuracy.loss_evaluation import Loss
from surgery.verification.comparing.deployment import Deployed
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN
from surgery.verification.comparing.probing import SearchEnded
from surgery.verification.inputs.defaults import listed_weights
from surgery.verification.inputs.spec import MetricLimit, VerifySpec
from surgery.verification.verdict.checks import CHECK_TIMEOUT, Checker, check
from surgery.verification.verdict.validity import Validity, stale, validity

if TYPE_CHECKING:
    from surgery.engine.registry.passes import Pass

_OUTDATED = "a run contradicts inferred shapes that the pass may rely on"


class Judge(Protocol):
    """The interface through which the pipeline has candidates judged."""

    @property
    def trusts(self) -> bool:
        """Whether everything is accepted, expectations of steps included."""

    @property
    def can_run(self) -> bool:
        """Whether the original can be run."""

    @property
    def is_evaluated(self) -> bool:
        """Whether the reference evaluator runs the original, which ONNX Runtime rejects; known after its run."""

    def feeds(self) -> Sequence[Feed]:
        """Return the inputs to calibrate passes with."""

    @property
    def is_drawn(self) -> bool:
        """Whether these inputs are drawn."""

    @property
    def limits(self) -> Sequence[MetricLimit]:
        """The budget of LOSSY steps."""

    def unmeasured(self, state: State) -> Collection[str]:
        """Return the results of nodes whose conversion has no measurable loss, see `SignatureTracker.unmeasured`."""

    def loss(self, candidate: Candidate, *, optimized: bool = False, sets: tuple[int, ...] = ()) -> Loss:
        """Measure the loss of a candidate's outputs, on some sets of inputs, given by their numbers, or on all.

        It runs without optimizations of the runtime, unless `optimized`, as it is judged.
        """

    def fault(self, stored: storage.StoredModel) -> str:
        """Return why the original is invalid; empty if it is not, or if nothing is known against it."""

    def prepare(self) -> None:
        """Start long-running work, in parallel with the passes."""

    def join(self) -> None:
        """Wait for the threads of the judge: a fork has no other threads, but keeps the locks that they hold."""

    def names(self, candidate: Candidate, declared: Pass) -> Candidate:
        """Return the candidate with the new names of its inputs and outputs, where they can be matched."""

    def judge(self, candidate: Candidate, declared: Pass) -> Candidate:
        """Return the candidate with a verdict, and with a complaint if it is wrong."""

    @property
    def doubts(self) -> Doubts:
        """The values whose inferred shapes a run contradicts, as far as known."""

    def moves_baseline(self, candidate: Candidate) -> bool:
        """Return whether to verify the committed model first, because a candidate becomes the new baseline."""

    def is_open(self, state: State) -> bool:
        """Return whether the committed model has yet to be compared as a whole."""

    def verify_whole(self, state: State, name: str) -> Verdict:
        """Compare the committed model as a whole."""

    def conclude_whole(self, verdict: Verdict) -> tuple[Verdict, str] | None:
        """Process the verdict on the whole model; return it and the complaint, or None if nothing is to be recorded."""

    def deploy(self, state: State, *, with_original: bool = False) -> Deployed:
        """Run the committed model as deployed, and compare it with the original, which runs, too, if requested."""

    def adopt(self, candidate: Candidate) -> None:
        """Judge later candidates against one that is committed."""

    def close(self) -> None:
        """Stop all parallel work, and release stored outputs."""


class Trusting:
    """A judge that accepts everything. `begin` starts the run of the original, which calibration inputs require."""

    trusts = True
    can_run = False
    is_evaluated = False
    doubts: Doubts = NO_DOUBTS

    def __init__(self, begin: Callable[[], ReferenceStart]) -> None:
        self._begin = begin
        self._found: tuple[Sequence[Feed], bool] | None = None

    def feeds(self) -> Sequence[Feed]:
        """Return the inputs of the original."""
        return self._calibration[0]

    @property
    def is_drawn(self) -> bool:
        """Whether these inputs are drawn."""
        return self._calibration[1]

    @property
    def _calibration(self) -> tuple[Sequence[Feed], bool]:
        if self._found is None:
            with closing(self._begin().tracker) as tracker:
                self._found = tracker.calibration(), tracker.draws_calibration
        return self._found

    @property
    def limits(self) -> Sequence[MetricLimit]:
        """No limits: nothing is measured."""
        return ()

    def unmeasured(self, state: State) -> Collection[str]:
        """Return those of the run that this one repeats."""
        if not any(custom_nodes(state.proto)):
            return ()
        with closing(self._begin().tracker) as tracker:
            return tracker.unmeasured(state.proto)

    def loss(self, candidate: Candidate, *, optimized: bool = False, sets: tuple[int, ...] = ()) -> Loss:
        """Measure nothing."""
        return Loss({})

    def fault(self, stored: storage.StoredModel) -> str:
        """Return what the checker finds."""
        return "; ".join(check(storage.without_alias(stored.proto).SerializeToString(deterministic=True)))

    def prepare(self) -> None:
        """Do nothing."""

    def join(self) -> None:
        """Do nothing."""

    def names(self, candidate: Candidate, declared: Pass) -> Candidate:
        """Return the candidate as it is."""
        return candidate

    def judge(self, candidate: Candidate, declared: Pass) -> Candidate:
        """Return the candidate as it is."""
        return candidate

    def moves_baseline(self, candidate: Candidate) -> bool:
        """Return False."""
        return False

    def is_open(self, state: State) -> bool:
        """Return False."""
        return False

    def verify_whole(self, state: State, name: str) -> Verdict:
        """Compare nothing."""
        return Verdict(Status.UNVERIFIED, NOT_RUN)

    def conclude_whole(self, verdict: Verdict) -> tuple[Verdict, str] | None:
        """Record nothing."""
        return None

    def deploy(self, state: State, *, with_original: bool = False) -> Deployed:
        """Run nothing."""
        return Deployed(Verdict(Status.UNVERIFIED, NOT_RUN))

    def adopt(self, candidate: Candidate) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Verifying:
    """A judge that compares candidates with the original, after the signature and the checker.

    `spec.mode` says when outputs are compared: after each step, once at the end, or never. `end` is the verdict on the
    whole model, if steps were verified in the region of their change. `provider` is the execution provider that the
    models are made for.
    """

    def __init__(
        self, reference: ReferenceStart, spec: VerifySpec, journal: Journal, first: State, deploys_on: str = ""
    ) -> None:
        self.spec = spec
        self.original, self.tracker = reference.skeleton, reference.tracker
        self.checker = Checker(
            timeout=min(spec.timeout, CHECK_TIMEOUT), memory=spec.memory, original=reference.skeleton
        )
        self.end: Verdict | None = None
        self._journal = journal
        self.tracker.deploys_on = deploys_on
        self._first = self.tracker.verifier
        self._findings: list[str] | None = None
        self._base = first.data
        self._doubting = Doubting()
        self._is_open = spec.mode == "end"  # whether a step since the baseline was not compared as a whole

    def prepare(self) -> None:
        """Start to run the original, with which candidates are compared, unless verification is off."""
        if self.spec.mode != "off":
            self.tracker.verifier.original.begin()

    def join(self) -> None:
        """Wait for the run of the original."""
        self.tracker.verifier.original.join()

    def feeds(self) -> Sequence[Feed]:
        """Return the inputs under the names of the committed model."""
        return self.tracker.calibration()

    @property
    def doubts(self) -> Doubts:
        """The values whose inferred shapes a run contradicts, as far as known."""
        return self._doubting.found

    @property
    def is_drawn(self) -> bool:
        """Whether these inputs are drawn."""
        return self.tracker.draws_calibration

    @property
    def limits(self) -> Sequence[MetricLimit]:
        """The budget of LOSSY steps."""
        return self.tracker.limits

    def unmeasured(self, state: State) -> Collection[str]:
        """Return the results of nodes whose conversion has no measurable loss."""
        return self.tracker.unmeasured(state.proto)

    def loss(self, candidate: Candidate, *, optimized: bool = False, sets: tuple[int, ...] = ()) -> Loss:
        """Measure the loss of a candidate's outputs."""
        assert candidate.proto is not None
        names = candidate.renamed, candidate.accounts
        return self.tracker.measure(candidate.proto, candidate.data, *names, optimized=optimized, sets=sets)

    def close(self) -> None:
        """Stop the checker and the runs, and release the outputs of the original."""
        self.checker.close()
        self.tracker.close()

    def names(self, candidate: Candidate, declared: Pass) -> Candidate:
        """Match inputs and outputs with those of the committed model, where the pass does not name them."""
        if candidate.proto is None or not candidate.changed:
            return candidate
        self.prepare()
        names = candidate.renamed, candidate.accounts
        return replace(candidate, renamed=self.tracker.names(candidate.proto, declared.changes, *names))

    trusts = False

    @property
    def can_run(self) -> bool:
        """Whether the original can be run, as far as known."""
        return self.tracker.verifier.original.problem is None

    @property
    def is_evaluated(self) -> bool:
        """Whether the reference evaluator runs the original, as far as known."""
        first = self._first.original
        return first.engine == "reference" and bool(first.runs) and first.problem is None

    # One candidate

    def find(self, candidate: Candidate) -> list[str]:
        """Return the findings of the checker."""
        try:
            return self.checker.check(candidate.data)
        except Exception as error:
            require_machine(error)
            return [f"checker: {internal(error)}"]

    def judge(
        self,
        candidate: Candidate,
        declared: Pass,
        findings: list[str] | None = None,
        later: Later | None = None,
    ) -> Candidate:
        """Judge a candidate in the order of cost: signature, checker (unless its `findings` are known), parity.

        If the whole model has to be compared, the candidate after `later` steps is compared in its place, if that
        holds.
        """
        if candidate.proto is None or not (candidate.ok and candidate.changed):
            return candidate
        verdict = None
        try:
            if candidate.promise in COMPARING and self.spec.mode != "off" and not declared.changes:
                self._doubting.learn(self.tracker.verifier, candidate.shapes, candidate.proto)
            if self.doubts.keys() - candidate.doubts:
                return replace(candidate, complaint=_OUTDATED, exit_code=1, is_outdated=True)
            complaint = next(self._complaints(candidate, declared, findings), "")
            if not complaint and self.compares(candidate):
                self._journal.stage(candidate.step.name, "parity")
                names = candidate.renamed, candidate.accounts
                made = later.made if later is not None else None
                verdict = self.tracker.verify(candidate.proto, candidate.data, candidate.promise, *names, made)
                if verdict.together:
                    assert later is not None
                    verdict = replace(verdict, message=f"{verdict.message}; {later.remark}")
                verdict = self._as_deployed(candidate, verdict)
                complaint = self.complaint(verdict)
        except (RecipeError, UsageError):
            # The inputs or libraries to verify with are wrong, whatever the pass did.
            raise
        except Exception as error:
            require_machine(error)
            return replace(candidate, complaint=internal(error), exit_code=getattr(error, "exit_code", 3))
        return replace(candidate, verdict=verdict, complaint=complaint, exit_code=1 if complaint else 0)

    def _complaints(self, candidate: Candidate, declared: Pass, findings: list[str] | None) -> Iterator[str]:
        assert candidate.proto is not None
        found = self.tracker.complaints(candidate.proto, declared.changes, candidate.renamed)
        yield from (f"signature: {item}" for item in found)
        self._journal.stage(declared.name, "check")
        findings = self.find(candidate) if findings is None else findings
        if findings and self._findings is None:
            self._findings = self.checker.check(self.original)
        known = self._findings or []
        yield from self.checker.new(self.original, known, candidate.data, findings, self._first.misdeclared)

    def complaint(self, verdict: Verdict) -> str:
        """Return the complaint of a verdict; empty if a step may be committed with it."""
        if verdict.is_different or (verdict.is_unverified and self.spec.unverified == "refuse"):
            return verdict.message or verdict.reason or verdict.status
        return ""

    def _as_deployed(self, candidate: Candidate, verdict: Verdict) -> Verdict:
        """Return the verdict on a candidate as deployed if each step is run so and that is wrong, else the given one.

        The loss of a LOSSY step is measured as deployed, and a step that changes what is computed has no reference.
        """
        if self.spec.deployment != "each" or candidate.promise not in COMPARING or self.complaint(verdict):
            return verdict
        assert candidate.proto is not None
        self._journal.stage(candidate.step.name, "as deployed")
        names = candidate.renamed, candidate.accounts
        found = self.tracker.deploy(candidate.proto, candidate.data, *names)
        return verdict if found.ok else found.verdict

    def compares(self, candidate: Candidate) -> bool:
        """Return whether a step is compared by itself; in mode "end", only steps that move the baseline are."""
        return self.spec.mode == "each" or (self.spec.mode == "end" and candidate.promise not in COMPARING)

    # Ahead of its turn, see `speculation`

    def compare_ahead(self, before: State, candidate: Candidate, findings: list[str]) -> bool:
        """Compare the regions of a candidate while the state before it is still being judged.

        Return whether the whole model has to be compared.
        """
        if candidate.proto is None or findings or not self.compares(candidate):
            return False
        # An error here occurs again, and is reported, when the candidate is judged.
        with suppress(Exception):
            promise, names = candidate.promise, (candidate.renamed, candidate.accounts)
            if self.tracker.keeps_terms(candidate.proto, promise, *names):
                models = (before.proto, before.data), (candidate.proto, candidate.data)
                return self.tracker.compare_ahead(*models, promise)
        return False

    # What is committed

    def adopt(self, candidate: Candidate) -> None:
        """Judge later candidates by the signature of this one, and by its outputs if it rounds differently."""
        assert candidate.proto is not None
        verdict = candidate.verdict
        self.tracker.references.adopt(
            candidate.proto,
            candidate.data,
            candidate.renamed,
            candidate.accounts,
            right=candidate.ok and verdict is not None and verdict.passed,
            # A model that keeps the bits of the last accepted model need not run in its place.
            accepted=verdict is not None and verdict.status is Status.CLOSE and candidate.promise is not Parity.EXACT,
            intended=candidate.promise is Parity.INTENDED,
            lossy=candidate.promise is Parity.LOSSY,
        )
        if candidate.promise not in COMPARING:
            # The verdict on the whole model before this step says nothing about the result.
            self._base, self._is_open, self.end = candidate.data, self.spec.mode == "end", None
        elif verdict is not None and verdict.leaves_open:
            self._is_open = True

    def moves_baseline(self, candidate: Candidate) -> bool:
        """Return whether the baseline of later models becomes this candidate, or the state before it."""
        assert candidate.proto is not None
        return candidate.promise not in COMPARING or (
            self._is_open
            and self.tracker.references.moves_baseline(candidate.proto, candidate.renamed, candidate.accounts)
        )

    def is_open(self, state: State) -> bool:
        """Return whether the committed model has yet to be compared as a whole.

        This is needed in mode "end", where steps are not compared one by one, and after steps that were compared in the
        region of their change.
        """
        return self._is_open and state.data != self._base

    def verify_whole(self, state: State, name: str) -> Verdict:
        """Compare the committed model as a whole with the original, or with the last intended change."""
        self._journal.stage(name, "parity")
        self.checker.close()  # as the processes of regions, it starts again when it is needed
        return self.tracker.verify_whole(state.proto, state.data)

    def deploy(self, state: State, *, with_original: bool = False) -> Deployed:
        """Run the committed model as deployed, and compare it with the original, which runs, too, if requested."""
        self._journal.stage(DEPLOYED, "parity")
        return self.tracker.deploy(state.proto, state.data, {}, with_original=with_original)

    def conclude_whole(self, verdict: Verdict) -> tuple[Verdict, str] | None:
        """Process the verdict on the whole model; return it and the complaint, or None if only `end` is to be reported.

        Steps that were compared in the region of their change are verified already, so an unverifiable whole model only
        has to run.
        """
        self.tracker.take_whole(verdict)
        each = self.spec.mode == "each"
        self._is_open = not each
        runs_no_more = verdict.reason == NOT_RUN and self.can_run
        complaint = "" if each and verdict.is_unverified and not runs_no_more else self.complaint(verdict)
        if not each or complaint:
            return verdict, complaint
        self.end = verdict
        return None

    # The original

    def validity(self, stored: storage.StoredModel) -> Validity:
        """Return whether the original is valid, after its run, or by loading it in ONNX Runtime if there was none."""
        if self._findings is None:
            self._findings = self.checker.check(self.original)
        is_too_large = weight_bytes(stored.proto) > most_weights(self.spec.memory)
        if not is_too_large:
            # The run was abandoned if a step changed the reference before it ended.
            with suppress(SearchEnded):
                self._first.original.prepare()
        if is_too_large or (self._first.original.runs and self._first.original.problem is None):
            found = Validity(tuple(self._findings), self._first.original.gap, bool(self._first.original.gap))
            overridable, contradicted = listed_weights(stored.proto), stale(stored, self._findings)
            return replace(found, is_evaluated=self.is_evaluated, overridable=overridable, stale=contradicted)
        found = validity(stored, self.spec, self._findings)
        return found if found.refusal else found.with_rejection(self._first.original.rejection)

    def fault(self, stored: storage.StoredModel) -> str:
        """Return the findings of the checker, or why the runtime rejects it; empty if only the runtime lacks something.

        Without verification, only the checker is asked.
        """
        if self.spec.mode == "off":
            self._findings = self._findings or self.checker.check(self.original)
            return "; ".join(self._findings)
        found = self.validity(stored)
        return "" if found.ok or (found.gap and not found.findings) else str(found).removeprefix("invalid: ")

    def why_unknown(self) -> str:
        """Return why the original cannot be run; an empty string if it can."""
        with suppress(SearchEnded):
            self._first.original.prepare()
        return self._first.original.problem or ""
