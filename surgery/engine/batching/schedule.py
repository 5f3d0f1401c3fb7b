"""Run a batch: pass the pending models to an executor, and record the results in the ledger."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from surgery.engine.batching.events import Event, Executor
from surgery.engine.batching.ledger import Ledger, LedgerRow, outcome_of
from surgery.engine.batching.model_entry import Entry, Settings
from surgery.engine.batching.output_folder import OutputFolder

_WAIT: Final = 0.25
"""Time to wait for an event, in seconds."""
_STAGE_EVERY: Final = 0.5
"""Minimum time between two updates of the stage of a model in the ledger, in seconds."""
_BACK_OFF: Final = 1.0
"""Delay before the first retry, in seconds; doubled for each further one."""
_LONGEST: Final = 60.0


class Watcher(Protocol):
    """Receives the progress of a batch."""

    def begin(self, total: int, finished: Sequence[LedgerRow]) -> None:
        """Receive the number of models, and the rows of those that were finished before."""

    def stage(self, name: str, stage: str) -> None:
        """Receive the stage of a running model."""

    def done(self, row: LedgerRow) -> None:
        """Receive the row of a model that has ended."""

    def lost(self, name: str, why: str, again: float) -> None:
        """Receive the loss of a model's worker; the model runs again in `again` seconds."""

    def waiting(self, why: str) -> None:
        """Receive the reason why nothing runs for now."""


@dataclass(frozen=True)
class Rules:
    """Limits for retries and failures. `retries` is the maximum number of retries of a model whose worker was lost."""

    retries: int = 3
    most_failures: int | None = None


class Schedule:
    """The run of a batch. `rows` are the rows of the models to run, by name; `contents` those of recipes at URLs."""

    def __init__(
        self,
        ledger: Ledger,
        entries: Sequence[Entry],
        rows: Mapping[str, LedgerRow],
        output: OutputFolder,
        settings: Settings,
        rules: Rules,
        watcher: Watcher,
        clock: Callable[[], float] = time.monotonic,
        contents: Mapping[str, str] | None = None,
    ) -> None:
        self._ledger = ledger
        self._output = output
        self._settings = settings
        self._rules = rules
        self._watcher = watcher
        self._clock = clock
        self._contents = contents or {}
        self._rows = dict(rows)
        self._entries = {entry.name: entry for entry in entries}
        self._left = deque(entry.name for entry in entries if entry.name in rows)
        self._later: list[tuple[float, str]] = []
        self._alone: deque[str] = deque()
        self._running: set[str] = set()
        self._losses: dict[str, int] = {}
        self._noted: dict[str, float] = {}
        self._failures = 0

    def run(self, executor: Executor) -> None:
        """Run all models; models that are running when an exception ends the run are queued again."""
        try:
            while self._left or self._later or self._alone or self._running:
                if not self._stops:
                    self._submit(executor)
                elif not self._running:
                    break
                event = executor.next(_WAIT)
                if event is not None:
                    self._take(event)
        finally:
            executor.close()
            self._ledger.requeue()

    @property
    def _stops(self) -> bool:
        """Whether so many models have failed that no more are started."""
        return self._rules.most_failures is not None and self._failures >= self._rules.most_failures

    def _submit(self, executor: Executor) -> None:
        """Fill the executor. Models that must run alone wait until no others are left."""
        while self._later and self._later[0][0] <= self._clock():
            self._left.append(heapq.heappop(self._later)[1])
        while self._left and len(self._running) < executor.capacity:
            self._start(executor, self._left.popleft(), alone=False)
        if self._alone and not (self._left or self._later or self._running):
            self._start(executor, self._alone.popleft(), alone=True)

    def _start(self, executor: Executor, name: str, *, alone: bool) -> None:
        row = replace(self._rows[name], state="running", attempts=self._rows[name].attempts + 1)
        self._rows[name] = row
        self._running.add(name)
        self._ledger.update(name, state="running", stage="", attempts=row.attempts)
        entry = self._entries[name]
        job = job_of(entry, row, self._output, self._settings, self._contents.get(entry.recipe))
        executor.submit(name, job, alone=alone)

    def _take(self, event: Event) -> None:
        if event.kind == "waiting":
            self._watcher.waiting(event.text)
            return
        if event.kind == "stage":
            self._stage(event.name, event.text)
            return
        if event.kind == "restarted":
            row = self._rows[event.name] = replace(self._rows[event.name], attempts=self._rows[event.name].attempts + 1)
            self._ledger.update(event.name, attempts=row.attempts)
            return
        self._running.discard(event.name)
        if event.kind == "returned":
            # The model is not to blame, so this start does not count as an attempt.
            self._alone.append(event.name)
            self._queue_again(event.name, self._rows[event.name].attempts - 1)
        elif event.kind == "lost":
            self._lost(event.name, event.text)
        else:
            self._end(event.name, event.outcome or {})

    def _stage(self, name: str, stage: str) -> None:
        self._watcher.stage(name, stage)
        now = self._clock()
        if now - self._noted.get(name, 0.0) >= _STAGE_EVERY:
            self._noted[name] = now
            self._ledger.update(name, stage=stage)

    def _lost(self, name: str, why: str) -> None:
        """Schedule a retry of a model, unless its worker was lost too often."""
        count = self._losses[name] = self._losses.get(name, 0) + 1
        if count > self._rules.retries:
            reason = f"the worker was lost {count} times: {why}" if count > 1 else f"the worker was lost: {why}"
            self._end(name, {"state": "failed", "kind": "lost", "reason": reason})
            return
        wait = min(_BACK_OFF * 2 ** (count - 1), _LONGEST)
        heapq.heappush(self._later, (self._clock() + wait, name))
        self._queue_again(name, self._rows[name].attempts)
        self._watcher.lost(name, why, wait)

    def _queue_again(self, name: str, attempts: int) -> None:
        self._rows[name] = replace(self._rows[name], state="queued", attempts=attempts)
        self._ledger.update(name, state="queued", stage="", attempts=attempts)

    def _end(self, name: str, outcome: Mapping[str, Any]) -> None:
        row = replace(self._rows[name], **outcome_of(self._rows[name], outcome))
        self._rows[name] = row
        self._ledger.put([row])
        self._failures += row.state == "failed"
        self._watcher.done(row)


def job_of(
    entry: Entry, row: LedgerRow, output: OutputFolder, settings: Settings, recipe_content: str | None = None
) -> dict[str, Any]:
    """Return the job for a worker as plain data. `recipe_content` is that of a recipe at a URL."""
    return {
        **settings.to_json(),
        "model": entry.model,
        "version": entry.version,
        "output": output.place(entry.name),
        "recipe": entry.recipe,
        "recipe_content": recipe_content,
        "recipe_sha256": row.recipe_sha256,
        "inputs": list(entry.inputs),
    }
