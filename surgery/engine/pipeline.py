"""The chain of transactions that a recipe describes, and the account of each.

Where weights are few, or only the end is compared, a change is taken for granted while it is judged beside the passes
that follow, see `surgery.engine.speculation`. What is found wrong is taken back with all that was made of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from surgery import storage
from surgery.engine.candidate import Attempt
from surgery.engine.delta_debugging import MOST_RUNS, GaveUp, Guilts
from surgery.engine.expectations import comparisons, expectations
from surgery.engine.records import Expectation, Observer, RefusedSite, StepRecord, StepStatus
from surgery.engine.speculation import Ahead, Judging, State
from surgery.engine.transaction import Transactions, state_of
from surgery.errors import ExpectationError, PassError
from surgery.promises import Parity
from surgery.proto.fingerprint import same_but_for_names
from surgery.proto.signature import Signature, signature
from surgery.proto.summary import operators, opset
from surgery.recipe.schema import Expect, PassStep, Recipe, RepeatStep, Step, UseStep, When
from surgery.runtime.engine import FEW_WEIGHTS
from surgery.verification.comparing.output_judge import NOT_RUN
from surgery.verification.verdict.verifier import Verdict

if TYPE_CHECKING:
    from surgery.engine.reference_start import Beginning
    from surgery.registry.declare import Pass

_MOST_TOLD = 3
_PATIENCE = 1.0
"""Seconds to let a judgement come to its end that nobody waits for; what it still runs ends with it later."""
_MOST_ROUNDS = 100
"""`repeat: until-stable` gives up after this many rounds: its passes always find something to change."""

_RUNS_UNVERIFIED = 16
"""Runs to look for the sites of which nothing can be shown: most often that is so of all of them."""


class Abort(Exception):  # noqa: N818 - ends the chain, not an error of its own
    """A step failed and its recipe says that the run ends there."""


class RefusedEndError(Exception):
    """What the steps have left is not found right, in the mode "end", in which no step was verified by itself."""

    def __init__(self, record: StepRecord) -> None:
        super().__init__(record.message)
        self.record = record


class Chain(Transactions):
    """The transactions on one model, one after the other."""

    def __init__(
        self,
        stored: storage.StoredModel,
        recipe: Recipe,
        observer: Observer | None = None,
        *,
        contained: bool = True,
        begun: Beginning | None = None,
    ) -> None:
        self.records: list[StepRecord] = []
        self.expectations: list[Expectation] = []
        self.failed: Attempt | None = None  # the last attempt that was not committed, for what it made was wrong
        self._ahead: list[Ahead[list[str], Attempt]] = []
        self._changes = 0  # committed, and not taken back
        self._guilts = Guilts()
        # A pass that folds weights, beside a session that holds them: together they would take the memory of both.
        # Where only the end or the region of a change is compared there is no such session.
        mode, compare = recipe.verify.mode, recipe.verify.compare
        self._runs_ahead = mode == "end" or compare == "region" or _weights(stored) <= FEW_WEIGHTS
        super().__init__(stored, recipe, observer, contained=contained, begun=begun)

    def close(self) -> None:
        """End what runs beside this process, and forget what the original computed."""
        for ahead in self._ahead:
            ahead.judging.call_off()  # nobody waits for it any more
        if self._ahead:
            self._checker.kill()
            self._ahead[0].judging.wait(_PATIENCE)
        super().close()

    def run(self, steps: tuple[Step, ...]) -> None:
        """Run steps in order. `Abort` when one ends the run."""
        self._run(steps)
        self._settle()

    def _run(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            if not self._holds(step.when):
                if isinstance(step, PassStep):
                    self._record(self._skipped(step))
                continue
            match step:
                case PassStep():
                    self._pass(step)
                case RepeatStep():
                    self._repeat(step)
                case UseStep():
                    before = signature(self._state.proto)
                    self._run(step.recipe.steps)
                    self.expect(step.recipe.expect, f"{step.recipe.name}: ", before)

    def _repeat(self, step: RepeatStep) -> None:
        """Run rounds until one changes nothing, or leads back to a model that an earlier one began with."""
        seen: list[State] = []
        for _ in range(step.times if step.times is not None else _MOST_ROUNDS):
            before = self._changes
            seen.append(self._state)
            self._run(step.steps)
            if self._changes == before or self._is_back(seen):
                return
        if step.times is None:
            self._endless(step)

    def _is_back(self, seen: Sequence[State]) -> bool:
        """Return whether the model is one of those `seen` before, but for names."""
        if not _is_among(self._state, seen):
            return False
        # What is not judged yet may still be taken back, and the model be another one.
        return not self._settle() or _is_among(self._state, seen)

    def _endless(self, step: RepeatStep) -> None:
        """End rounds of which each has changed something: what they made was verified."""
        what, where = f"still changing after {_MOST_ROUNDS} rounds", f"{step.path}:{step.line}"
        todo = "a pass always finds something to change; take it out"
        if step.on_failure in (None, "abort"):
            raise PassError(what, where=where, todo=todo)
        self._settle()
        message = f"{what}, and ended; {todo}"
        self._record(StepRecord("(repeat)", "unchanged", self.nodes, self.nodes, message=message, where=where))

    def _holds(self, when: When | None) -> bool:
        if when is None:
            return True
        self._settle()
        state = self._state
        return all(met for _, met in comparisons(when.ops, when.nodes, when.opset, state.ops, opset(state.proto)))

    def _skipped(self, step: PassStep) -> StepRecord:
        return StepRecord(step.name, "skipped", self.nodes, self.nodes, message="its condition 'when' does not hold")

    def _record(self, record: StepRecord) -> None:
        self.records.append(record)
        self.observer.done(record)

    # One step

    def _pass(self, step: PassStep) -> None:
        """Run one pass, and record what became of it as soon as that is sure."""
        declared = step.find()
        waits = not (self._runs_ahead and _may_run_ahead(step, declared))
        # One that is not standard runs in a fork, where a thread would be lost, with the locks that it holds.
        self._settle(wait=waits or not declared.is_standard)
        started = time.perf_counter()
        attempt = self._made(step, declared)
        if step.on_failure == "bisect" and attempt.ok and attempt.changed:
            attempt = self._guilts.avoid(_site_key(step, declared), attempt, partial(self._made, step, declared))
        seconds = time.perf_counter() - started
        if attempt.ok and attempt.changed and not waits:
            self._run_ahead(attempt, declared, seconds)
        elif self._ahead and attempt.ok and not attempt.changed:
            self._ahead[-1].later.append((step, self._told(attempt, "unchanged", self._state, seconds=seconds)))
        elif self._settle():
            self._pass(step)
        else:
            self._conclude(step, self._transact(self._judge(attempt, declared), started))

    def _run_ahead(self, attempt: Attempt, declared: Pass, seconds: float) -> None:
        """Take a change for granted, and have it judged in parallel with the passes that follow."""
        assert attempt.proto is not None
        before, after = self._state, state_of(attempt.proto, attempt.data)
        previous = self._ahead[-1].judging if self._ahead else None
        contract = self.contract
        judging = Judging(
            lambda: self._find(attempt),
            lambda findings: self._ahead_of_judging(contract.compare_ahead, before, attempt, findings),
            lambda findings: self._ahead_of_judging(contract.run_ahead, before, attempt, findings),
            lambda findings: self._judge(attempt, declared, findings),
            self._accepts,
            previous,
        )
        self._ahead.append(Ahead(attempt.step, before, after, seconds, judging))
        self._changes += 1
        self._enter(after, live=attempt.live)

    def _accepts(self, attempt: Attempt) -> bool:
        """Hold what follows to a change that was judged, if it is kept."""
        keeps = attempt.ok or attempt.step.on_failure == "keep"
        if keeps:
            self._adopt(attempt)
        return keeps

    def _settle(self, *, wait: bool = True) -> bool:
        """Note what was judged of all that is committed, or `wait` for it; tell whether anything was taken back."""
        taken_back = False
        while self._ahead and (wait or self._ahead[0].judging.done):
            ahead = self._ahead.pop(0)
            attempt = ahead.judging.result()
            keeps = attempt.ok or attempt.step.on_failure == "keep"
            seconds = ahead.seconds + ahead.judging.seconds
            if keeps:
                self._conclude(ahead.step, self._told(attempt, "committed", ahead.before, ahead.after, seconds))
                for _, unchanged in ahead.later:
                    self._record(unchanged)
                continue
            taken_back = True
            again = [*ahead.steps[1:], *(step for later in self._ahead for step in later.steps)]
            self._changes -= 1 + len(self._ahead)
            self._ahead = []
            self._enter(ahead.before, live=False)
            self._conclude(ahead.step, self._transact(attempt, time.perf_counter() - seconds))
            for step in again:
                self._pass(step)
        return taken_back

    def _conclude(self, step: PassStep, record: StepRecord) -> None:
        """Record what became of a step; `Abort` when the run ends with it."""
        if record.status == "failed" and step.on_failure in ("rollback", "bisect"):
            record = replace(record, status="rolled_back")
        self._record(record)
        if record.status == "failed":
            raise Abort

    def _transact(self, attempt: Attempt, started: float) -> StepRecord:
        """Commit what a pass made if it was found right, or take it back; return the account of it."""
        step, before = attempt.step, self._state
        refused: tuple[RefusedSite, ...] = ()
        if step.on_failure == "bisect" and self._may_hold_in_part(attempt):
            attempt, refused = self._spare(attempt)

        def told(status: StepStatus) -> StepRecord:
            return self._told(attempt, status, before, self._state, time.perf_counter() - started, refused)

        if attempt.proto is None or not (attempt.ok or step.on_failure == "keep"):
            self.failed = attempt
            self.refuse(attempt)
            return told("failed")
        try:
            self._expect_of_step(step, attempt)
        except ExpectationError as error:
            from surgery.why.explain import explained, why_so_few

            self.verifier.join()  # to explain a pass is to run it, in a fork maybe
            why = why_so_few(step, len(attempt.applied), before.proto, self.stored.weights)
            return replace(told("failed"), message=explained(str(error), why), exit_code=1, why=why)
        if not attempt.changed:
            return told("rolled_back" if refused else "unchanged")
        if self._begins_anew(attempt):
            self._verify_since_base(f"(before {step.name})")
        self.commit(attempt)
        self._changes += 1
        return told("committed")

    def _begins_anew(self, attempt: Attempt) -> bool:
        """Tell whether later models are compared with what this step made, or with what it was made of."""
        assert attempt.proto is not None
        return attempt.promise is Parity.INTENDED or (
            self._is_open and self.contract.begins_anew(attempt.proto, attempt.renamed, attempt.accounts)
        )

    def _may_hold_in_part(self, attempt: Attempt) -> bool:
        """Tell whether there is a point in trying a failed attempt without some of its sites."""
        if attempt.final or attempt.proto is None:
            return False
        return attempt.is_wrong or (_is_unverified(attempt) and self.verifier.problem is None)

    def _spare(self, failed: Attempt) -> tuple[Attempt, tuple[RefusedSite, ...]]:
        """Leave out the sites with which a step fails, and give what is left, to be committed."""
        most = _RUNS_UNVERIFIED if _is_unverified(failed) else MOST_RUNS
        search = self.search(failed, most, self.spec.timeout)
        left_out: tuple[RefusedSite, ...] = ()
        try:
            _, rest = search.guilty()
        except GaveUp as reason:
            best = search.best
            if best is None:
                return replace(failed, complaint=f"{failed.complaint}; not bisected: {reason}"), ()
            rest = best
            tried = {site.number for site in rest.applied} | {found.site.number for found in search.found}
            why = f"left out untried, as the search for the wrong sites {reason}"
            left_out = tuple(RefusedSite(s.number, s.anchor, why) for s in failed.applied if s.number not in tried)
        guilty = tuple(RefusedSite(one.site.number, one.site.anchor, one.trial.complaint) for one in search.found)
        self._guilts.add(_site_key(failed.step, failed.step.find()), (one.site for one in search.found))
        # The graph may have been worked on since.
        return replace(rest, live=False), guilty + left_out

    def _told(
        self,
        attempt: Attempt,
        status: StepStatus,
        before: State,
        after: State | None = None,
        seconds: float = 0.0,
        refused: tuple[RefusedSite, ...] = (),
    ) -> StepRecord:
        """Give the account of a step that was tried on the state `before`."""
        step = attempt.step
        return StepRecord(
            step.name,
            status,
            before.nodes,
            (after or before).nodes,
            sites=len(attempt.applied),
            verdict=attempt.verdict,
            seconds=seconds,
            message=attempt.complaint or _tell(refused) or _remark(attempt.verdict),
            where=f"{step.path}:{step.line}" if step.path else "",
            exit_code=0 if status == "committed" else attempt.exit_code,
            refusals=attempt.refusals,
            refused_sites=refused,
        )

    # The end

    def finish(self) -> None:
        """Verify the end result when the recipe asks for that instead of each step; `RefusedEndError` if wrong."""
        self._verify_since_base("(end)")

    def _verify_since_base(self, name: str) -> None:
        """Compare the committed model with the original, or what the last intended change made.

        That is for the mode "end", where steps are not compared one by one, and for steps that were compared in the
        region of their change. `RefusedEndError` if it does not hold.
        """
        state = self._state
        if not self._is_open or state.data == self._base:
            return
        started = time.perf_counter()
        self.observer.stage(name, "parity")
        verdict = self.contract.verify_whole(state.proto, state.data)
        self._is_open = self.spec.mode == "end"
        # Each step is verified already where the whole cannot show anything, but that it runs.
        runs_no_more = verdict.reason == NOT_RUN and self.verifier.problem is None
        by_steps = self.spec.mode == "each" and verdict.is_unverified and not runs_no_more
        complaint = "" if by_steps else self._complaint(verdict)
        if self.spec.mode == "each" and not complaint:
            self.end = verdict
            return
        record = StepRecord(
            name,
            "rolled_back" if complaint else "committed",
            self.nodes,
            self.nodes,
            verdict=verdict,
            seconds=time.perf_counter() - started,
            message=f"{complaint}; hence each step was verified" if complaint else _remark(verdict),
            exit_code=1 if complaint else 0,
        )
        if complaint:
            raise RefusedEndError(record)
        self._record(record)

    def expect(self, expected: Expect, prefix: str = "", before: Signature | None = None) -> None:
        """Note which expectations the committed model meets; its signature was that of the original, or `before`."""
        if expected == Expect():
            return
        self._settle()
        found = expectations(expected, self._state.ops, opset(self._state.proto))
        self.expectations += [Expectation(prefix + what, ok) for what, ok in found]
        if expected.signature is not None:
            same = not (before or self.contract.first).differences(signature(self._state.proto))
            self.expectations.append(Expectation(f"{prefix}signature: unchanged", same))

    def _expect_of_step(self, step: PassStep, attempt: Attempt) -> None:
        if step.expect is None or attempt.proto is None:
            return
        found = [*expectations(step.expect, operators(attempt.proto), opset(attempt.proto), len(attempt.applied))]
        self.expectations += [Expectation(f"{step.name}: {what}", ok) for what, ok in found]
        failed = [what for what, ok in found if not ok]
        if failed:
            raise ExpectationError(f"expected {', '.join(failed)}")


def _is_among(state: State, others: Sequence[State]) -> bool:
    """Return whether a model is one of some others, but for names."""
    return any(state.ops == other.ops and same_but_for_names(other.proto, state.proto) for other in others)


def _may_run_ahead(step: PassStep, declared: Pass) -> bool:
    """Tell whether the next pass may begin before what a step made is judged.

    What it is held to must be what later steps are held to, and nobody may have asked for more than a verdict.
    """
    intended = declared.promise(step.options) is Parity.INTENDED
    return step.expect is None and not declared.changes and not intended


def _site_key(step: PassStep, declared: Pass) -> object:
    """Return what tells apart where different passes, or one with other options, were found guilty."""
    return declared, repr(step.options)


def _is_unverified(attempt: Attempt) -> bool:
    return attempt.changed and attempt.verdict is not None and attempt.verdict.is_unverified


def _weights(stored: storage.StoredModel) -> int:
    """Return the bytes of all tensors of a model."""
    return sum(storage.payload_bytes(tensor) for tensor in storage.all_tensors(stored.proto))


def _tell(refused: tuple[RefusedSite, ...]) -> str:
    """Say which sites were left out, and no more than a few of them."""
    more = f"; and {len(refused) - _MOST_TOLD} more" if len(refused) > _MOST_TOLD else ""
    return "; ".join(str(site) for site in refused[:_MOST_TOLD]) + more


def _remark(verdict: Verdict | None) -> str:
    """What to say beside a verdict that let the step pass without a comparison."""
    shown = verdict is None or verdict.passed or verdict.is_different
    return "" if verdict is None or shown else verdict.message or verdict.reason or ""
