"""The steps of a recipe, one transaction after the other, and the account of each.

With a judge who verifies, a change is taken for granted while it is judged in parallel with the passes that follow,
see `surgery.engine.speculation`. What turns out wrong is taken back with all that was made of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from surgery import storage
from surgery.engine import speculation
from surgery.engine.candidate import Candidate, State
from surgery.engine.committed import CommittedModel
from surgery.engine.delta_debugging import MOST_RUNS, Guilts, Search
from surgery.engine.expectations import comparisons, expectations
from surgery.engine.judging import Judge, Trusting, Verifying
from surgery.engine.records import Expectation, Journal, Observer, StepRecord
from surgery.engine.reference_start import ReferenceStart, begin
from surgery.engine.speculation import Speculation
from surgery.engine.transaction import Transaction, Workbench, account
from surgery.errors import PassError
from surgery.proto.fingerprint import same_but_for_names
from surgery.proto.signature import Signature, signature
from surgery.proto.summary import opset
from surgery.recipe.schema import Expect, PassStep, Recipe, RepeatStep, Step, UseStep, When

_MOST_ROUNDS = 100
"""`repeat: until-stable` gives up after this many rounds: its passes always find something to change."""


class Abort(Exception):  # noqa: N818 - ends the pipeline, not an error of its own
    """A step failed and its recipe says that the run ends there."""


class Arrived(Exception):  # noqa: N818 - ends the pipeline, not an error of its own
    """The step that the pipeline was to stop before has its turn."""

    def __init__(self, step: PassStep) -> None:
        super().__init__(step.name)
        self.step = step


class Pipeline:
    """The transactions on one model, one after the other.

    Each step is verified as the recipe says, or `trusted`. The pipeline stops before the first run of the pass `until`
    with `Arrived`. `failed` is the last candidate that was not committed, for it was wrong.
    """

    def __init__(
        self,
        stored: storage.StoredModel,
        recipe: Recipe,
        observer: Observer | None = None,
        *,
        contained: bool = True,
        begun: ReferenceStart | None = None,
        trusted: bool = False,
        until: str | None = None,
    ) -> None:
        self.journal = Journal(observer)
        self.failed: Candidate | None = None
        self._until = until
        self._changes = 0  # committed, and not taken back
        self._speculation: Speculation | None = None
        if not trusted:
            begun = begun or begin(stored, recipe.inputs, recipe.verify)
        try:
            self.model = CommittedModel(stored)
        except BaseException:
            if begun is not None:
                begun.contract.close()
            raise
        self._first = signature(self.model.state.proto)
        self.judge: Judge = Trusting()
        if begun is not None:
            judge = self.judge = Verifying(begun, recipe.verify, self.journal, self.model.state)
            self._speculation = Speculation(judge) if speculation.pays(stored, judge) else None
        self._bench = Workbench(self.model, recipe.verify, self.judge, self.journal, Guilts(), contained)

    @property
    def verifying(self) -> Verifying:
        """The judge, of a pipeline that is not trusted."""
        assert isinstance(self.judge, Verifying)
        return self.judge

    def close(self) -> None:
        """End what runs in parallel with this process, and forget what the original computed."""
        if self._speculation is not None:
            self._speculation.close()
        self.judge.close()

    def run(self, steps: tuple[Step, ...]) -> None:
        """Run steps in order; `settle` waits for what is still being judged then. `Abort` when one ends the run."""
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
                    before = signature(self.model.state.proto)
                    self.run(step.recipe.steps)
                    self.expect(step.recipe.expect, f"{step.recipe.name}: ", before)

    def _repeat(self, step: RepeatStep) -> None:
        """Run rounds until one changes nothing, or leads back to a model that an earlier one began with."""
        seen: list[State] = []
        for _ in range(step.times if step.times is not None else _MOST_ROUNDS):
            before = self._changes
            seen.append(self.model.state)
            self.run(step.steps)
            if self._changes == before or self._is_back(seen):
                return
        if step.times is None:
            self._endless(step)

    def _is_back(self, seen: Sequence[State]) -> bool:
        """Return whether the model is one of those `seen` before, but for names."""
        if not _is_among(self.model.state, seen):
            return False
        # What is not judged yet may still be taken back, and the model be another one.
        return not self.settle() or _is_among(self.model.state, seen)

    def _endless(self, step: RepeatStep) -> None:
        """End rounds of which each has changed something: what they made was verified."""
        what, where = f"still changing after {_MOST_ROUNDS} rounds", f"{step.path}:{step.line}"
        todo = "a pass always finds something to change; take it out"
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
        return all(met for _, met in comparisons(when.ops, when.nodes, when.opset, state.ops, opset(state.proto)))

    def _skipped(self, step: PassStep) -> StepRecord:
        nodes = self.model.nodes
        return StepRecord(step.name, "skipped", nodes, nodes, message="its condition 'when' does not hold")

    # One step

    def _run_passes(self, steps: Iterable[PassStep]) -> None:
        """Run passes in order, and again what was taken back with a change before it."""
        waiting = deque(steps)
        while waiting:
            transaction = Transaction(waiting.popleft(), self._bench)
            ahead = self._speculation if speculation.allows(transaction) else None
            # A pass that is not standard runs in a fork, where a thread would be lost, with the locks that it holds.
            again = self._note_judged(wait=ahead is None or not transaction.declared.is_standard)
            if not again:
                self._stop_before(transaction.step)
                candidate = transaction.avoid_guilty_sites(transaction.run())
                if self._is_taken_ahead(ahead, transaction, candidate):
                    continue
                again = self._note_judged(wait=True)
            if not again:
                self._conclude(transaction, transaction.judge(candidate))
            else:
                waiting.extendleft(reversed([*again, transaction.step]))

    def _stop_before(self, step: PassStep) -> None:
        if step.name == self._until:
            self.settle()
            raise Arrived(step)

    def _is_taken_ahead(self, ahead: Speculation | None, transaction: Transaction, candidate: Candidate) -> bool:
        """Let the next pass work on a change that is not judged; return whether that may be."""
        if not candidate.ok:
            return False
        if candidate.changed and ahead is not None:
            self._run_ahead(ahead, transaction, candidate)
            return True
        if candidate.changed or not self._speculation:
            return False
        record = account(candidate, "unchanged", self.model.state, seconds=transaction.seconds)
        self._speculation.note(transaction.step, record)
        return True

    def _run_ahead(self, ahead: Speculation, transaction: Transaction, candidate: Candidate) -> None:
        """Let the next pass work on a change that is not judged."""
        assert candidate.proto is not None
        before, after = self.model.state, State.of(candidate.proto, candidate.data)
        ahead.take(candidate, transaction.declared, before, after, transaction.seconds)
        self._changes += 1
        self.model.enter(after, live=candidate.live)

    def _note_judged(self, *, wait: bool) -> list[PassStep]:
        """Record what was judged of all that is taken for granted; return the steps that have to run again."""
        if self._speculation is None:
            return []
        for ahead, candidate in self._speculation.judged(wait=wait):
            seconds = ahead.seconds + ahead.judgement.seconds
            if candidate.keeps:
                self._record(ahead.step, account(candidate, "committed", ahead.before, ahead.after, seconds))
                for _, unchanged in ahead.later:
                    self.journal.record(unchanged)
                continue
            self._changes -= 1 + len(self._speculation)
            again = [*(step for step, _ in ahead.later), *self._speculation.take_back()]
            self.model.enter(ahead.before, live=False)
            self._conclude(Transaction(ahead.step, self._bench, seconds), candidate)
            return again
        return []

    def settle(self) -> bool:
        """Wait until nothing is taken for granted any more; return whether anything was taken back."""
        taken_back = False
        while again := self._note_judged(wait=True):
            taken_back = True
            self._run_passes(again)
        return taken_back

    def _conclude(self, transaction: Transaction, candidate: Candidate) -> None:
        """Commit a judged candidate or roll back; `Abort` when the run ends with it."""
        record, candidate = transaction.conclude(candidate)
        if record.status == "committed":
            self._changes += 1
        elif record.status == "failed" and not (candidate.keeps and candidate.proto is not None):
            self.failed = candidate
        self._record(transaction.step, record)

    def _record(self, step: PassStep, record: StepRecord) -> None:
        """Record what became of a step; `Abort` when the run ends with it."""
        if record.status == "failed" and step.on_failure in ("rollback", "bisect"):
            record = replace(record, status="rolled_back")
        self.journal.record(record)
        if record.status == "failed":
            raise Abort

    def search(self, failed: Candidate, most: int = MOST_RUNS, seconds: float | None = None) -> Search[Candidate]:
        """Prepare to search for the sites that make a candidate fail, in so many runs that begin in so many seconds."""
        return Transaction(failed.step, self._bench).search(failed, most, seconds)

    def attempt(self, step: PassStep) -> Candidate:
        """Run one pass on the committed model, and judge what it made; commit nothing."""
        transaction = Transaction(step, self._bench)
        return transaction.judge(transaction.run())

    # The end

    def finish(self) -> None:
        """Verify the end result where the steps were not verified on the whole; `RefusedEndError` if it is wrong."""
        self._bench.verify_committed("(end)")

    def expect(self, expected: Expect, prefix: str = "", before: Signature | None = None) -> None:
        """Note which expectations the committed model meets; its signature was that of the original, or `before`."""
        if expected == Expect():
            return
        self.settle()
        state, noted = self.model.state, self.journal.expectations
        found = expectations(expected, state.ops, opset(state.proto))
        noted += [Expectation(prefix + what, ok) for what, ok in found]
        if expected.signature is not None:
            same = not (before or self._first).differences(signature(state.proto))
            noted.append(Expectation(f"{prefix}signature: unchanged", same))


def _is_among(state: State, others: Sequence[State]) -> bool:
    """Return whether a model is one of some others, but for names."""
    return any(state.ops == other.ops and same_but_for_names(other.proto, state.proto) for other in others)
