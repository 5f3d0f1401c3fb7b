"""A step that fails: what is tried of it, within which limits, and what is said of its expectations."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from surgery.base.promises import Parity
from surgery.engine import recipe as recipes
from surgery.engine.bridges.run_pass import PassResult
from surgery.engine.pipeline import transaction
from surgery.engine.pipeline.candidate import Candidate, State
from surgery.engine.pipeline.delta_debugging import Guilts
from surgery.engine.pipeline.records import Journal, Silent
from surgery.engine.pipeline.step_cache_interface import NoCache
from surgery.engine.pipeline.transaction import Transaction, Workbench
from surgery.engine.recipe.schema import PassStep
from surgery.engine.registry.passes import Pass
from surgery.model.graph import text
from surgery.model.graph.state import Site
from surgery.verification.comparing.details import Details, Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN

PROTO = text.parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
STATE = State.of(PROTO, b"state")
DIFFERS = Verdict(Status.DIFFERENT, message="differs", details=Details(elements=1))
NO_KERNEL = Verdict(Status.UNVERIFIED, NOT_RUN, message="no kernel")


def own(graph: Any) -> None: ...


class Watching(Silent):
    def __init__(self) -> None:
        self.noted: list[tuple[str, str]] = []

    def stage(self, step: str, stage: str) -> None:
        self.noted.append((step, stage))

    def said(self, step: str, text: str) -> None:
        self.noted.append((step, f"said {text}"))


class Acted:
    """A step with sites of which some are wrong, on a bench that notes what happens."""

    def __init__(
        self, wrong: str = "", verdict: Verdict = DIFFERS, promise: Parity = Parity.CLOSE, **step: Any
    ) -> None:
        self.wrong, self.verdict = wrong, verdict
        self.runs: list[frozenset[int]] = []
        self.events: list[str] = []
        self.notes = Watching()
        declared = Pass("own", promise, "graph", own)
        self.step = PassStep("own", declared=declared, **{"on_failure": "bisect", **step})
        judge = SimpleNamespace(
            judge=lambda candidate, declared: candidate,
            can_run=True,
            is_evaluated=False,
            trusts=False,
            prepare=lambda: self.events.append("prepare"),
            join=lambda: self.events.append("join"),
            names=lambda candidate, declared: candidate,
            doubts={"a": (0,)},
        )
        model = SimpleNamespace(
            state=STATE,
            stored=SimpleNamespace(weights=None),
            target=None,
            known=lambda *_: None,
            doubt=lambda doubts: self.events.append(f"doubt {sorted(doubts)}"),
            candidate=lambda step, declared, skip, made: self.of(skip),
        )
        spec = SimpleNamespace(timeout=60.0, memory=None)
        cast: Any = (model, spec, judge, Journal(self.notes), Guilts())
        self.bench = Workbench(*cast, contained=False, cache=NoCache())
        self.made = Transaction(self.step, self.bench)

    def of(self, skip: frozenset[int] = frozenset()) -> Candidate:
        self.runs.append(skip)
        sites = tuple(Site(number, name, (), (), number in skip) for number, name in enumerate("abcd", 1))
        found = Candidate(self.step, PROTO, b"new", True, sites=sites, verdict=Verdict(Status.CLOSE))
        if any(site.anchor in self.wrong for site in found.applied):
            return replace(found, complaint="differs", exit_code=1, verdict=self.verdict)
        return found

    def acting(self, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Acted:
        monkeypatch.setattr(self.made, "_made", lambda skip: PassResult(None, (), (), live=True, **more))
        return self


def test_the_sites_that_are_wrong_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    acted = Acted("bd").acting(monkeypatch)
    found = acted.made.reduce(acted.of())
    assert found.candidate.ok and [site.anchor for site in found.candidate.applied] == ["a", "c"]
    assert [(one.number, one.anchor, one.why) for one in found.refused] == [(2, "b", "differs"), (4, "d", "differs")]
    assert [site.anchor for site in found.guilty] == ["b", "d"] and not found.cut_short and not found.candidate.live
    assert ("own", "bisect, run 1: pass") in acted.notes.noted and acted.bench.journal.prefix == ""
    uncertain = Acted("b", replace(DIFFERS, details=None)).acting(monkeypatch)
    assert uncertain.made.reduce(uncertain.of()).cut_short


@pytest.mark.parametrize(
    ("step", "candidate"),
    [
        ({"on_failure": "rollback"}, {}),
        ({"on_failure": None}, {}),
        ({}, {"final": True}),
        ({}, {"proto": None}),
        ({}, {"changed": False}),
    ],
)
def test_other_steps_are_not_reduced(step: dict[str, Any], candidate: dict[str, Any]) -> None:
    acted = Acted("b", **step)
    failed = replace(acted.of(), **candidate)
    found = acted.made.reduce(failed)
    assert found.candidate is failed and found.refused == () and len(acted.runs) == 1


@pytest.mark.parametrize(
    ("can_run", "is_evaluated", "verdict", "most"),
    [
        (True, False, DIFFERS, transaction.MOST_RUNS),
        (True, True, DIFFERS, 8),
        (True, False, NO_KERNEL, 16),
        (True, True, NO_KERNEL, 16),
        (False, False, NO_KERNEL, 8),
    ],
)
def test_a_search_has_a_limit(
    monkeypatch: pytest.MonkeyPatch, can_run: bool, is_evaluated: bool, verdict: Verdict, most: int
) -> None:
    acted = Acted("abcd", verdict).acting(monkeypatch)
    acted.bench.judge.can_run, acted.bench.judge.is_evaluated = can_run, is_evaluated  # type: ignore[misc]
    limits: list[Any] = []
    search = acted.made.search

    def noting(failed: Candidate, most: int, seconds: float | None) -> Any:
        limits.append((most, seconds))
        return search(failed, most, seconds)

    monkeypatch.setattr(acted.made, "search", noting)
    acted.made._spare(acted.of())
    assert limits == [(most, 60.0)]


def test_a_search_that_gives_up_keeps_the_best_that_held(monkeypatch: pytest.MonkeyPatch) -> None:
    acted = Acted("bd").acting(monkeypatch)
    monkeypatch.setattr(transaction, "MOST_RUNS", 3)
    found = acted.made._spare(acted.of())
    assert found.cut_short and found.candidate.ok
    kept = {site.anchor for site in found.candidate.applied}
    left = {one.anchor: one.why for one in found.refused}
    assert kept | left.keys() == set("abcd") and not kept & left.keys()
    assert any(
        "left out without a test, because the search for the wrong sites gave up after 3 runs" in why
        for why in left.values()
    )
    monkeypatch.setattr(transaction, "MOST_RUNS", 1)
    found = acted.made._spare(acted.of())
    assert found.cut_short and found.candidate.complaint == "differs; not bisected: gave up after 1 runs"


def test_sites_that_were_wrong_are_avoided_if_the_step_is_bisected(monkeypatch: pytest.MonkeyPatch) -> None:
    for on_failure, skipped in (("bisect", ["b"]), ("rollback", [])):
        acted = Acted("b", on_failure=on_failure).acting(monkeypatch)
        acted.bench.guilts.add(acted.made._key, [Site(2, "b", (), ())])
        acted.wrong = ""
        found = acted.made.avoid_guilty_sites(acted.of())
        assert [site.anchor for site in found.sites if site.skipped] == skipped
        for other in (replace(acted.of(), complaint="x"), replace(acted.of(), changed=False)):
            assert acted.made.avoid_guilty_sites(other) is other


def test_a_pass_that_relied_on_a_wrong_shape_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    acted = Acted().acting(monkeypatch)
    answers = iter([True, False])
    acted.bench.judge.judge = lambda candidate, declared: replace(candidate, is_outdated=next(answers))  # type: ignore
    assert not acted.made.judge(acted.of()).is_outdated
    assert "doubt ['a']" in acted.events and len(acted.runs) == 2
    acted.bench.judge.judge = lambda candidate, declared: candidate  # type: ignore[method-assign]
    given = acted.of()
    assert acted.made.judge(given) is given and len(acted.runs) == 3


def test_a_pass_says_what_it_printed_and_a_known_result_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    acted = Acted().acting(monkeypatch, printed="hello")
    assert acted.made.run().step is acted.step
    assert acted.notes.noted == [("own", "pass"), ("own", "said hello")] and acted.events == ["join"]
    known = replace(acted.of(), step=PassStep("other"))
    acted.bench.model.known = lambda *_: known  # type: ignore[method-assign]
    assert acted.made.run() == replace(known, step=acted.step) and acted.events == ["join"]
    quiet = Acted().acting(monkeypatch)
    monkeypatch.setattr(Pass, "is_standard", property(lambda self: True))
    quiet.made.run()
    assert quiet.notes.noted == [("own", "pass")] and quiet.events == ["prepare"]


@pytest.mark.parametrize(
    ("promise", "verdict", "reduced"),
    [(Parity.LOSSY, DIFFERS, True), (Parity.CLOSE, DIFFERS, False), (Parity.LOSSY, NO_KERNEL, False)],
)
def test_the_sites_of_a_lossy_step_compete_for_the_budget(
    monkeypatch: pytest.MonkeyPatch, promise: Parity, verdict: Verdict, reduced: bool
) -> None:
    acted = Acted("b", verdict, promise, on_failure="rollback").acting(monkeypatch)
    chosen = acted.of(frozenset({2}))
    choices = [SimpleNamespace(candidate=chosen, kept=("kept",)), SimpleNamespace(candidate=None, kept=("all",))]
    monkeypatch.setattr(acted.made, "chooser", lambda: SimpleNamespace(choose=lambda sites: choices[0]))
    found = acted.made.reduce(acted.of())
    assert found.candidate.ok is reduced and found.kept == (("kept",) if reduced else ())
    choices.pop(0)
    failed = acted.of()
    found = acted.made.reduce(failed)
    assert found.candidate is failed and found.kept == (("all",) if reduced else ())


@pytest.mark.parametrize(
    ("expect", "missed"),
    [
        ("{nodes: 1, sites: 4}", None),
        ("{nodes: 2}", "expected nodes: == 2 (found 1)"),
        ("{sites: 5, ops: {Relu: 0}}", "expected Relu: == 0 (found 1), sites: == 5 (found 4)"),
    ],
)
def test_expectations_of_a_step_are_recorded(expect: str, missed: str | None) -> None:
    step: Any = recipes.parse(f"steps: [{{pass: drop-identity, expect: {expect}}}]", "r.yaml").steps[0]
    acted = Acted(expect=step.expect)
    error = acted.made._expect(acted.of())
    assert (None if error is None else str(error)) == missed
    noted = acted.bench.journal.expectations
    assert all(one.what.startswith("own: ") and one.where.startswith("r.yaml:1:") for one in noted) and noted
    assert all(one.ok for one in noted) is (missed is None)
    count = len(noted)
    assert acted.made._expect(replace(acted.of(), proto=None)) is None and Acted().made._expect(acted.of()) is None
    acted.bench.judge.trusts = True  # type: ignore[misc]
    assert acted.made._expect(acted.of()) is None and len(noted) == count
