"""Run the steps of a recipe as transactions, in order, and record each one.

While a change is being verified, the passes after it may already run on it, see `surgery.engine.pipeline.speculation`.
A change that turns out wrong is rolled back with everything that was built on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from surgery.base.errors import PassError
from surgery.engine.pipeline import speculation
from surgery.engine.pipeline.candidate import Candidate, State
from surgery.engine.pipeline.committed import CommittedModel
from surgery.engine.pipeline.delta_debugging import MOST_RUNS, Guilts, SiteSearch
from surgery.engine.pipeline.expectations import Speed, answers, comparisons, empty, executed, expectations, fits, speed
from surgery.engine.pipeline.judging import Judge, Trusting, Verifying
from surgery.engine.pipeline.records import END, Expectation, Journal, Observer, Recorder, StepRecord, last_loss
from surgery.engine.pipeline.reference_start import ReferenceStart, begin
from surgery.engine.pipeline.site_choice import SiteChoice
from surgery.engine.pipeline.speculation import Speculation
from surgery.engine.pipeline.step_cache_interface import Judged, NoCache, RunStart, StepCache
from surgery.engine.pipeline.transaction import Transaction, Workbench, account
from surgery.engine.recipe.schema import Expect, PassStep, Recipe, RepeatStep, Step, UseStep, When, pass_steps
from surgery.model import storage
from surgery.model.proto.signature import signature
from surgery.model.storage.summary import opset
from surgery.verification.comparing.deployment import Deployed
from surgery.verification.comparing.fingerprint import same_but_for_names

_MOST_ROUNDS = 100
"""Rounds after which `repeat: until-stable` gives up, since its passes keep finding something to change."""


class Abort(Exception):  # noqa: N818 - ends the pipeline, not an error of its own
    """A step failed, and the recipe aborts in this case."""


class Arrived(Exception):  # noqa: N818 - ends the pipeline, not an error of its own
    """The pipeline has reached the step before which it is to stop."""

    def __init__(self, step: PassStep) -> None:
        super().__init__(step.name)
        self.step = step


class Pipeline:
    """Transactions on one model, one after the other.

    Steps are verified as the recipe specifies, unless they are `trusted`. The pipeline raises `Arrived` before the
    first run of the pass `until`. `failed` is the last candidate that was refused, `speed` is relative to the original,
    if the recipe expects one. `recorder` receives each committed step, whose record is numbered after the `earlier`
    ones. `choice` says which sites are left out, if any. `cache` has outcomes of earlier runs, for steps that are
    verified.
    """

    def __init__(
        self,
        stored: storage.StoredModel,
        recipe: Recipe,
        observer: Observer | None = None,
        *,
        contained: bool = True,
        reference: ReferenceStart | None = None,
        trusted: bool = False,
        until: str | None = None,
        recorder: Recorder | None = None,
        earlier: int = 0,
        choice: SiteChoice | None = None,
        cache: StepCache | None = None,
    ) -> None:
        self.journal = Journal(observer)
        self.failed: Candidate | None = None
        self.speed: float | None = None
        self.deployed: Deployed | None = None
        self._until = until
        self._changes = 0  # committed, and not rolled back
        self._depth = 0  # of the repetition that is running
        self._speculation: Speculation | None = None
        self._cache = NoCache() if cache is None or trusted else cache
        if not trusted:
            early = not self._cache.expects(stored)
            reference = reference or begin(stored, recipe.inputs, recipe.verify, early=early)
        try:
            keeps_empty = recipe.expect.empty is not None
            self.model = CommittedModel(stored, recipe.profile, keeps_empty=keeps_empty)
            target = self.model.target
            self._cache.begin(RunStart(stored, self.model.state, recipe, target, contained, choice is not None))
        except BaseException:
            if reference is not None:
                reference.tracker.close()
            raise
        self._recipe = recipe
        self._original = self.model.state
        self._recorder, self._earlier = recorder, earlier
        if recorder is not None:
            recorder.begin(stored, self._original.proto)
        self.judge: Judge = Trusting(lambda: begin(stored, recipe.inputs, recipe.verify))
        if reference is not None:
            judge = self.judge = Verifying(
                reference, recipe.verify, self.journal, self.model.state, self.model.target.deploys_on
            )
            self._speculation = Speculation(judge) if speculation.pays(stored, judge) else None
        self.bench = Workbench(
            self.model, recipe.verify, self.judge, self.journal, Guilts(), contained, self._cache, choice
        )

    @property
    def verifying(self) -> Verifying:
        """The judge of a pipeline that verifies."""
        assert isinstance(self.judge, Verifying)
        return self.judge

    def close(self) -> None:
        """Stop all parallel work, and release the outputs of the original."""
        if self._speculation is not None:
            self._speculation.close()
        self.judge.close()
        self._cache.finish()

    def run(self, steps: tuple[Step, ...]) -> None:
        """Run steps in order. The last may still be judged when it returns: call `settle`. May raise `Abort`."""
        for step in steps:
            if not self._holds(step.when):
                if isinstance(step, PassStep):
                    self.journal.record(self._skipped(step))
                continue
            match step:
                case PassStep():
                    self._run_passes([step])
                case RepeatStep():
                    self._repeat(step)
                case UseStep():
                    before, earlier = self.model.state, len(self.journal.records)
                    self.run(step.recipe.steps)
                    self._expect(step.recipe, f"{step.recipe.name}: ", before, earlier)

    def _repeat(self, step: RepeatStep) -> None:
        """Repeat the steps until a round changes nothing or returns to the model at the start of an earlier round.

        Each further round of the outermost `until-stable` reads the model anew: what passes find in it then is what a
        second run of the recipe would find. It starts once all changes are judged, because what passes find anew in a
        model whose changes are rolled back later would be lost.
        """
        seen: list[State] = []
        outermost, self._depth = self._depth == 0, self._depth + 1
        try:
            for _ in range(step.times if step.times is not None else _MOST_ROUNDS):
                before = self._changes
                if seen and outermost and step.times is None:
                    self.model.read_anew()
                seen.append(self.model.state)
                self.run(step.steps)
                if outermost and step.times is None:
                    self.settle()
                if self._changes == before or self._is_back(seen):
                    return
        finally:
            self._depth -= 1
        if step.times is None:
            self._endless(step)

    def _is_back(self, seen: Sequence[State]) -> bool:
        """Return whether the model equals one of those `seen` before, apart from names."""
        if not _is_among(self.model.state, seen):
            return False
        # A change that has not been judged yet may still be rolled back.
        return not self.settle() or _is_among(self.model.state, seen)

    def _endless(self, step: RepeatStep) -> None:
        """Stop after too many rounds: with an error if the step aborts, else with a record, as all was verified."""
        what, where = f"still changing after {_MOST_ROUNDS} rounds", f"{step.path}:{step.line}"
        todo = "a pass always finds something to change; remove it"
        if step.on_failure in (None, "abort"):
            raise PassError(what, where=where, todo=todo)
        self.settle()
        nodes, message = self.model.nodes, f"{what}, and ended; {todo}"
        self.journal.record(StepRecord("(repeat)", "unchanged", nodes, nodes, message=message, where=where))

    def _holds(self, when: When | None) -> bool:
        if when is None:
            return True
        self.settle()
        state = self.model.state
        counted = comparisons(when.ops, when.nodes, when.opset, state.ops, opset(state.proto))
        asked = answers(
            when.predicates, self.model.stored, state.proto, self._recipe.verify, self.journal.observer.said
        )
        return all(met for _, met in chain(counted, asked))

    def _skipped(self, step: PassStep) -> StepRecord:
        nodes = self.model.nodes
        message, where = "its condition 'when' is false", f"{step.path}:{step.line}" if step.path else ""
        return StepRecord(step.name, "skipped", nodes, nodes, message=message, where=where)

    # One step

    def _run_passes(self, steps: Iterable[PassStep]) -> None:
        """Run passes in order; run passes again that were rolled back along with an earlier change."""
        waiting = deque(steps)
        while waiting:
            transaction = Transaction(waiting.popleft(), self.bench)
            ahead = self._speculation if speculation.allows(transaction) else None
            known = self._cache.may_know(transaction.step, self.model.state)
            # A non-standard pass runs in a fork, which has no other threads but keeps the locks that they hold.
            again = self._note_judged(wait=known or ahead is None or not transaction.declared.is_standard)
            if again is None:
                self._stop_before(transaction.step)
                judged = self._cache.find(transaction.step, self.model.state) if known else None
                if judged is not None:
                    self._conclude(transaction, judged)
                    continue
                candidate = transaction.avoid_guilty_sites(transaction.run())
                if self._is_taken_ahead(ahead, transaction, candidate):
                    continue
                # What ran on a change that is rolled back now says nothing, even if no other step was built on it.
                again = self._note_judged(wait=True)
            if again is None:
                self._conclude(transaction, transaction.reduce(transaction.judge(candidate)))
            else:
                waiting.extendleft(reversed([*again, transaction.step]))

    def _stop_before(self, step: PassStep) -> None:
        if step.name == self._until:
            self.settle()
            raise Arrived(step)

    def _is_taken_ahead(self, ahead: Speculation | None, transaction: Transaction, candidate: Candidate) -> bool:
        """Let the next pass work on a change that is not judged yet, if that is allowed; return whether it is."""
        if not candidate.ok:
            return False
        if candidate.changed and ahead is not None:
            self._run_ahead(ahead, transaction, candidate)
            return True
        if candidate.changed or not self._speculation:
            return False
        record = account(candidate, "unchanged", self.model.state, seconds=transaction.seconds)
        self._speculation.note(candidate, record)
        return True

    def _run_ahead(self, ahead: Speculation, transaction: Transaction, candidate: Candidate) -> None:
        """Have a change judged in the background, and let the next pass work on it."""
        assert candidate.proto is not None
        before, after = self.model.state, State.of(candidate.proto, candidate.data)
        ahead.take(candidate, transaction.declared, before, after, transaction.seconds)
        self._changes += 1
        self.model.enter(after, live=candidate.live)

    def _note_judged(self, *, wait: bool) -> list[PassStep] | None:
        """Record the changes whose judgement has ended; return the steps that have to run again.

        None if no change was rolled back.
        """
        if self._speculation is None:
            return None
        for ahead, candidate in self._speculation.judged(wait=wait):
            seconds = ahead.seconds + ahead.judgement.seconds
            if candidate.keeps:
                record = account(candidate, "committed", ahead.before, ahead.after, seconds)
                self._record(Judged(candidate), record, ahead.before, ahead.after)
                for later, unchanged in ahead.later:
                    self._record(Judged(later), unchanged, ahead.after, ahead.after)
                continue
            self._changes -= 1 + len(self._speculation)
            again = [*(later.step for later, _ in ahead.later), *self._speculation.take_back()]
            self.model.enter(ahead.before, live=False)
            if candidate.is_outdated:
                self.model.doubt(self.judge.doubts)
                return [ahead.step, *again]
            transaction = Transaction(ahead.step, self.bench, seconds)
            self._conclude(transaction, transaction.reduce(candidate))
            return again
        return None

    def settle(self) -> bool:
        """Wait until every change is judged; return whether any was rolled back."""
        taken_back = False
        while (again := self._note_judged(wait=True)) is not None:
            taken_back = True
            self._run_passes(again)
        return taken_back

    def _conclude(self, transaction: Transaction, judged: Judged) -> None:
        """Commit a judged step or roll it back; raise `Abort` if it ends the run."""
        before, candidate = self.model.state, judged.candidate
        record = transaction.conclude(judged)
        if record.status == "committed":
            self._changes += 1
        elif record.status == "failed" and not (candidate.keeps and candidate.proto is not None):
            self.failed = candidate
        self._record(judged, record, before, self.model.state)

    def _record(self, judged: Judged, record: StepRecord, before: State, after: State) -> None:
        """Record the outcome of a step and the states around it; raise `Abort` if it ends the run."""
        step = judged.candidate.step
        if record.status == "failed" and step.on_failure in ("rollback", "bisect"):
            record = replace(record, status="rolled_back")
        self.journal.record(record)
        if record.status == "committed" and self._recorder is not None:
            self._recorder.commit(after.proto, record, self._earlier + len(self.journal.records) - 1)
        self._cache.note(step, judged, record, before, after)
        if record.status == "failed":
            raise Abort

    def search(self, failed: Candidate, most: int = MOST_RUNS, seconds: float | None = None) -> SiteSearch[Candidate]:
        """Prepare a search for the sites that make a candidate fail: `most` runs, started within `seconds`."""
        return Transaction(failed.step, self.bench).search(failed, most, seconds)

    def attempt(self, step: PassStep) -> Candidate:
        """Run one pass on the committed model and judge the result, without committing it."""
        transaction = Transaction(step, self.bench)
        return transaction.judge(transaction.run())

    # The end

    def finish(self) -> None:
        """Verify the end result as a whole, unless each step was, and as deployed.

        Raises `RefusedEndError` if it is wrong.
        """
        self.bench.verify_committed(END)
        counts = self._recorder is not None or self._recipe.expect.executed is not None
        self.deployed = self.bench.check_deployed(self._original, with_original=counts)

    def expect(self) -> None:
        """Record which expectations of the recipe the committed model meets."""
        self._expect(self._recipe, "", self._original, 0)

    def _expect(self, recipe: Recipe, prefix: str, before: State, earlier: int) -> None:
        """Record which expectations of a recipe hold after its steps, which began with the model `before`.

        Signature and speed are compared with that model. The records of the steps follow the `earlier` ones.
        """
        expected = recipe.expect
        if expected == Expect():
            return
        self.settle()
        state, noted = self.model.state, self.journal.expectations
        found = expectations(expected, state.ops, opset(state.proto))
        said = self.journal.observer.said
        asked = answers(expected.predicates, self.model.stored, state.proto, self._recipe.verify, said)
        noted += [Expectation(prefix + what, ok, expected.where(what)) for what, ok in (*found, *asked)]
        if expected.executed is not None and not self.judge.trusts:
            what, ok = executed(expected.executed, self.judge.deploy(state, with_original=True))
            noted.append(Expectation(prefix + what, ok, expected.where(what)))
        if expected.empty is not None:
            what, ok = empty(before.ops, state.ops)
            noted.append(Expectation(prefix + what, ok, expected.where("empty")))
        if expected.signature is not None:
            same = not signature(before.proto).differences(signature(state.proto))
            noted.append(Expectation(f"{prefix}signature: unchanged", same, expected.where("signature")))
        if expected.target is not None:
            what, ok = fits(expected.target, self.model.stored, state.proto)
            noted.append(Expectation(prefix + what, ok, expected.where(what), expected.target))
        if expected.speed is not None and not self.judge.trusts:
            found_speed = self._speed(expected.speed, recipe, before, earlier)
            what = f"speed: >= {expected.speed:g} ({found_speed.found})"
            noted.append(Expectation(prefix + what, found_speed.ok, expected.where(what)))
            # Of a recipe that this one uses, the speed is relative to the model before it.
            self.speed = found_speed.ratio if not prefix else self.speed

    def _speed(self, least: float, recipe: Recipe, before: State, earlier: int) -> Speed:
        """Measure the speed of the committed model relative to the model `before` the steps of a recipe.

        A recipe that trades accuracy for speed has to be as fast as before only if it did.
        """
        trades = any(step.is_lossy for step in pass_steps(recipe.steps))
        if least <= 1.0 and trades and last_loss(self.journal.records[earlier:]) is None:
            return Speed("not measured: no lossy step changed the model", True, None)
        self.journal.stage("(expect)", "speed")
        first, second, part = before.proto, self.model.state.proto, ""
        if isinstance(self.judge, Verifying):
            first, second, part = self.judge.tracker.measured(first, second)
        found = speed(least, self.model.stored, (first, second), self._recipe.inputs, self._recipe.verify)
        return replace(found, found=f"{found.found}, {part}") if part else found


def _is_among(state: State, others: Sequence[State]) -> bool:
    """Return whether a model equals one of the others, apart from names."""
    return any(state.ops == other.ops and same_but_for_names(other.proto, state.proto) for other in others)
