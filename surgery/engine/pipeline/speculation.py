"""Run ahead: the next pass works on a change while that change is still being judged.

Judging is work for other processes, running a pass is work for this one. A change that turns out wrong is rolled back
with everything that was built on it, and the steps after it run again on the remaining model.

If the regions of a change do not decide, the whole model has to. One run decides for several steps: the model after the
last of them is compared with the original, and if that holds, so do all of them. Steps that promise identical bits are
compared together up to the next one that does not, all others up to the point at which the pipeline waits for them, or
at which models fill too much memory. Only if the joint comparison fails is each step compared, to find the wrong one.
Which steps are compared together depends on the recipe and the model alone, never on which thread was faster.

Ownership: the thread of the pipeline owns the committed model, the graph and the journal. Each judgement has its own
thread. These threads share the judge, one after the other where they change it: a judgement begins when the previous
one has succeeded, and ends with `Judge.adopt`, which alone changes what later candidates are compared with. Before its
turn, a thread runs the checker on its own candidate, and compares regions when the previous thread has done so. That
adds entries to a cache of the `Verifier`, each under the bytes of its own change; regions are compared by one thread at
a time, under the lock of the `Verifier`. While any judgement is under way, the pipeline calls only `prepare` and
`names` of the judge.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

from surgery.base.promises import COMPARING, Parity
from surgery.engine.pipeline.candidate import Candidate, Later, State
from surgery.engine.pipeline.judging import Verifying
from surgery.engine.pipeline.records import StepRecord
from surgery.engine.pipeline.transaction import Transaction
from surgery.engine.recipe.schema import PassStep
from surgery.model.runtime.engine import FEW_WEIGHTS
from surgery.model.storage import StoredModel, weight_bytes

if TYPE_CHECKING:
    from surgery.engine.registry.passes import Pass

R = TypeVar("R")

_PATIENCE = 1.0
"""Seconds to wait, when closing, for a judgement that is under way."""

_MOST_HELD = 64 << 20
"""Bytes of models without weights that may wait to be compared together."""


class Judgement:
    """The judgement of a candidate, built on the state `before`, in a daemon thread."""

    def __init__(
        self, judge: Verifying, before: State, candidate: Candidate, declared: Pass, previous: Judgement | None
    ) -> None:
        self.seconds = 0.0
        self._judge = judge
        self._before = before
        self._candidate = candidate
        self._declared = declared
        self._previous = previous
        self._judged: Candidate | None = None
        self._error: Exception | None = None
        self._called_off = False
        self._later: Later | None = None
        self._compared, self._gathered = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        judge, before, candidate, previous = self._judge, self._before, self._candidate, self._previous
        try:
            needs_whole = False
            findings = self._timed(lambda: judge.find(candidate))
            if previous is None or previous._has_compared():
                needs_whole = self._timed(lambda: judge.compare_ahead(before, candidate, findings))
            self._compared.set()
            if previous is not None:
                if not previous._ends_well():
                    return
                self._previous = None
            if needs_whole:
                self._gathered.wait()
            if not self._called_off:
                later = self._later if needs_whole else None
                self._judged = self._timed(lambda: judge.judge(candidate, self._declared, findings, later))
                if self._judged.keeps:
                    judge.adopt(self._judged)
        except Exception as error:
            self._error = error
        finally:
            self._compared.set()

    def _timed(self, work: Callable[[], R]) -> R:
        started = time.perf_counter()
        try:
            return work()
        finally:
            self.seconds += time.perf_counter() - started

    def _has_compared(self) -> bool:
        """Wait until the regions are compared; return whether the candidate may still be kept."""
        self._compared.wait()
        return not self._called_off and (self._is_kept or not self.done)

    def _ends_well(self) -> bool:
        self._thread.join()
        return self._is_kept

    @property
    def _is_kept(self) -> bool:
        return self._error is None and self._judged is not None and self._judged.keeps

    @property
    def done(self) -> bool:
        """Whether there is a result."""
        return not self._thread.is_alive()

    @property
    def candidate(self) -> Candidate:
        """The candidate that is judged."""
        return self._candidate

    def gather(self, later: Later) -> None:
        """If the whole model is needed, compare the change together with later ones, unless this is already decided."""
        if not self._gathered.is_set():
            self._later = later
            self._gathered.set()

    def call_off(self) -> None:
        """Prevent the judgement from beginning, unless it has begun."""
        self._called_off = True
        self._gathered.set()

    def wait(self, seconds: float) -> None:
        """Wait for the end of the judgement, at most `seconds`."""
        self._thread.join(seconds)

    def result(self) -> Candidate:
        """Wait for the judged candidate; raise the error of the judge, if any."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._judged is not None
        return self._judged


@dataclass
class Ahead:
    """A change that is assumed to hold until it is judged. Making it from the state `before` took `seconds`.

    `later` are the candidates of the steps up to the next change, none of which changed anything, with their records.
    """

    step: PassStep
    before: State
    after: State
    seconds: float
    judgement: Judgement
    later: list[tuple[Candidate, StepRecord]] = field(default_factory=list)


class Speculation:
    """The changes that are assumed to hold, in order."""

    def __init__(self, judge: Verifying) -> None:
        self._judge = judge
        self._changes: list[Ahead] = []
        self._held = 0

    def __len__(self) -> int:
        return len(self._changes)

    def take(self, candidate: Candidate, declared: Pass, before: State, after: State, seconds: float) -> None:
        """Assume that a change holds, and have it judged in parallel with the passes that follow."""
        previous = self._changes[-1].judgement if self._changes else None
        if candidate.promise is not Parity.EXACT:
            self._gather_exact()
        judgement = Judgement(self._judge, before, candidate, declared, previous)
        self._changes.append(Ahead(candidate.step, before, after, seconds, judgement))
        self._held += len(candidate.data)
        if self._held > _MOST_HELD:
            self._gather_all()

    def note(self, candidate: Candidate, record: StepRecord) -> None:
        """Keep a candidate that changed nothing, with its record, until the change before it is judged."""
        self._changes[-1].later.append((candidate, record))

    def judged(self, *, wait: bool) -> Iterator[tuple[Ahead, Candidate]]:
        """Yield the changes that have been judged, in order; with `wait`, wait for all of them."""
        if wait:
            self._gather_all()
        while self._changes and (wait or self._changes[0].judgement.done):
            ahead = self._changes.pop(0)
            yield ahead, ahead.judgement.result()

    def _gather_all(self) -> None:
        """Compare all waiting changes together, those that promise identical bits separately."""
        self._gather_exact()
        self._gather(self._changes)
        self._held = 0

    def _gather_exact(self) -> None:
        """Compare together the changes that promise identical bits, after the last one that does not."""
        exact = takewhile(lambda one: one.judgement.candidate.promise is Parity.EXACT, reversed(self._changes))
        self._gather([*exact][::-1])

    def _gather(self, changes: Sequence[Ahead]) -> None:
        """Compare changes together, if the whole model is needed for them."""
        for place, one in enumerate(changes, 1):
            one.judgement.gather(Later(changes[-1].judgement.candidate, len(changes) - place))

    def take_back(self) -> list[PassStep]:
        """Drop all changes; return their steps and the steps after them that changed nothing."""
        steps = [step for one in self._changes for step in (one.step, *(later.step for later, _ in one.later))]
        self._changes, self._held = [], 0
        return steps

    def close(self) -> None:
        """Call off the judgements that have not begun yet."""
        for one in self._changes:
            one.judgement.call_off()
        if self._changes:
            self._judge.checker.kill()
            self._changes[0].judgement.wait(_PATIENCE)


def pays(stored: StoredModel, judge: Verifying) -> bool:
    """Return whether to run ahead.

    False if a pass that folds weights and a session that holds them would fill the memory. There is no such session if
    only the end or the region of a change is compared.
    """
    spec = judge.spec
    weights = weight_bytes(stored.proto)
    return spec.mode == "end" or spec.compare == "region" or weights <= FEW_WEIGHTS


def allows(transaction: Transaction) -> bool:
    """Return whether the next pass may begin before the result of a step is judged.

    False for a step that changes the signature or the baseline, by which later steps are judged, or has expectations.
    """
    step, declared = transaction.step, transaction.declared
    return step.expect is None and not declared.changes and declared.promise(step.options) in COMPARING
