"""The order of a batch: what is started again, what runs alone, when it stops, and what the ledger says meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.batches import Watching, entry

from surgery.engine.batching.events import Event
from surgery.engine.batching.ledger import Ledger, LedgerRow
from surgery.engine.batching.model_entry import Settings
from surgery.engine.batching.output_folder import OutputFolder
from surgery.engine.batching.schedule import Rules, Schedule

DONE = {"state": "done", "nodes_after": 1}
Answer = Callable[[str, int], Event]


class Scripted:
    """An executor whose jobs end in the order in which they were started, as `answer` says for name and attempt."""

    def __init__(self, answer: Answer, capacity: int = 2) -> None:
        self.capacity = capacity
        self.started: list[str] = []
        self.alone: list[str] = []
        self.most = 0
        self.closed = False
        self._answer = answer
        self._running: list[str] = []

    def submit(self, name: str, job: Mapping[str, Any], *, alone: bool = False) -> None:
        self.started.append(name)
        self.alone += [name] if alone else []
        self._running.append(name)
        self.most = max(self.most, len(self._running))
        assert not (alone or set(self.alone) & set(self._running)) or self._running == [name]

    def next(self, timeout: float) -> Event | None:
        if not self._running:
            return None
        name = self._running.pop(0)
        return self._answer(name, self.started.count(name))

    def close(self) -> None:
        self.closed = True


class Clock:
    """A clock that is a second later each time somebody looks."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def run(
    folder: Path, names: str, answer: Answer, rules: Rules | None = None
) -> tuple[Scripted, Watching, dict[str, LedgerRow]]:
    executor, watching = Scripted(answer), Watching()
    entries = [entry(name) for name in names]
    rows = {one.name: LedgerRow(one.name, one.model, one.recipe, recipe_sha256="r") for one in entries}
    with Ledger(folder) as ledger:
        ledger.put(rows.values())
        Schedule(ledger, entries, rows, OutputFolder(str(folder)), Settings(), rules or Rules(), watching, Clock()).run(
            executor
        )
        assert executor.closed
        return executor, watching, ledger.rows()


def test_all_run_once(tmp_path: Path) -> None:
    executor, watching, rows = run(tmp_path, "abcde", lambda name, _: Event("ended", name, outcome=DONE))
    assert executor.started == list("abcde")
    assert executor.most == 2
    assert [row.name for row in watching.done_rows] == list("abcde")
    assert {(row.state, row.attempts, row.nodes_after) for row in rows.values()} == {("done", 1, 1)}


def test_a_lost_worker_is_retried_with_growing_delays(tmp_path: Path) -> None:
    def answer(name: str, attempt: int) -> Event:
        lost = name == "a" and attempt < 4
        return Event("lost", name, "killed") if lost else Event("ended", name, outcome=DONE)

    executor, watching, rows = run(tmp_path, "ab", answer)
    assert watching.losses == [("a", "killed", 1.0), ("a", "killed", 2.0), ("a", "killed", 4.0)]
    assert executor.started == ["a", "b", "a", "a", "a"]
    assert (rows["a"].state, rows["a"].attempts, rows["b"].attempts) == ("done", 4, 1)


def test_a_worker_that_is_lost_too_often_fails(tmp_path: Path) -> None:
    _, _, rows = run(tmp_path, "a", lambda name, _: Event("lost", name, "killed"), Rules(retries=1))
    assert (rows["a"].state, rows["a"].kind, rows["a"].attempts) == ("failed", "lost", 2)
    assert rows["a"].reason == "the worker was lost 2 times: killed"


@pytest.mark.parametrize("kind", ["verdict", "crash", "time", "memory", "internal"])
def test_a_failure_of_the_model_is_not_retried(tmp_path: Path, kind: str) -> None:
    outcome = {"state": "failed", "kind": kind, "reason": "why", "stage": "check"}
    executor, watching, rows = run(tmp_path, "a", lambda name, _: Event("ended", name, outcome=outcome))
    assert executor.started == ["a"] and not watching.losses
    assert (rows["a"].state, rows["a"].kind, rows["a"].reason, rows["a"].stage) == ("failed", kind, "why", "check")


def test_a_returned_job_runs_alone_at_the_end(tmp_path: Path) -> None:
    def answer(name: str, attempt: int) -> Event:
        return Event("returned", name) if name == "a" and attempt == 1 else Event("ended", name, outcome=DONE)

    executor, _, rows = run(tmp_path, "abcd", answer)
    assert executor.started == list("abcda")
    assert executor.alone == ["a"]
    assert (rows["a"].state, rows["a"].attempts) == ("done", 1)


def test_a_job_that_runs_alone_waits_for_those_that_are_retried_later(tmp_path: Path) -> None:
    def answer(name: str, attempt: int) -> Event:
        fails = {"a": Event("returned", "a"), "b": Event("lost", "b", "killed")}
        return fails[name] if attempt < {"a": 2, "b": 4}[name] else Event("ended", name, outcome=DONE)

    executor, _, rows = run(tmp_path, "ab", answer)
    assert executor.started == ["a", "b", "b", "b", "b", "a"] and executor.alone == ["a"]
    assert {row.state for row in rows.values()} == {"done"}


def test_a_restart_by_the_executor_counts(tmp_path: Path) -> None:
    events = [Event("restarted", "a"), Event("ended", "a", outcome=DONE)]

    class Restarting(Scripted):
        def next(self, timeout: float) -> Event | None:
            return events.pop(0)

    with Ledger(tmp_path) as ledger:
        rows = {"a": LedgerRow("a", "a", "r")}
        ledger.put(rows.values())
        executor = Restarting(lambda name, _: Event("ended", name))
        Schedule(ledger, [entry("a")], rows, OutputFolder(str(tmp_path)), Settings(), Rules(), Watching(), Clock()).run(
            executor
        )
        assert ledger.rows()["a"].attempts == 2


def test_the_batch_stops_after_the_allowed_failures(tmp_path: Path) -> None:
    outcome = {"state": "failed", "kind": "crash"}
    _, _, rows = run(tmp_path, "abcdef", lambda name, _: Event("ended", name, outcome=outcome), Rules(most_failures=2))
    # The one that was running then is waited for.
    assert [row.state for row in rows.values()] == ["failed"] * 3 + ["queued"] * 3


def test_running_jobs_are_requeued_when_the_batch_is_interrupted(tmp_path: Path) -> None:
    def answer(name: str, attempt: int) -> Event:
        if name == "b":
            raise KeyboardInterrupt
        return Event("ended", name, outcome=DONE)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "abc", answer)
    with Ledger(tmp_path) as ledger:
        assert {name: row.state for name, row in ledger.rows().items()} == {"a": "done", "b": "queued", "c": "queued"}


def test_stages_are_noted(tmp_path: Path) -> None:
    seen: list[str] = []

    class Staging(Scripted):
        def next(self, timeout: float) -> Event | None:
            if not seen:
                seen.append("stage")
                return Event("stage", "a", "fold-constants: parity")
            seen.append(ledger.rows()["a"].stage)
            return super().next(timeout)

    with Ledger(tmp_path) as ledger:
        rows = {"a": LedgerRow("a", "a", "r")}
        ledger.put(rows.values())
        watching, executor = Watching(), Staging(lambda name, _: Event("ended", name, outcome=DONE))
        Schedule(ledger, [entry("a")], rows, OutputFolder(str(tmp_path)), Settings(), Rules(), watching, Clock()).run(
            executor
        )
        assert seen == ["stage", "fold-constants: parity"]
        assert ledger.rows()["a"].stage == ""
    assert watching.stages == [("a", "fold-constants: parity")]


def test_why_nothing_runs_is_passed_on_and_ends_no_model(tmp_path: Path) -> None:
    events = [Event("waiting", "", "no worker"), Event("ended", "a", outcome=DONE)]

    class Waiting(Scripted):
        def next(self, timeout: float) -> Event | None:
            return events.pop(0)

    with Ledger(tmp_path) as ledger:
        rows = {"a": LedgerRow("a", "a", "r")}
        ledger.put(rows.values())
        watching, executor = Watching(), Waiting(lambda name, _: Event("ended", name))
        Schedule(ledger, [entry("a")], rows, OutputFolder(str(tmp_path)), Settings(), Rules(), watching, Clock()).run(
            executor
        )
        assert watching.waits == ["no worker"] and ledger.rows()["a"].state == "done"
