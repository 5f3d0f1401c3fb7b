"""What follows from the parts of a result: whether it is ok, its exit code, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from surgery.engine.pipeline.purpose import Shortfall
from surgery.engine.pipeline.records import Expectation, Journal, RefusedSite, Result, Silent, StepRecord
from surgery.engine.recipe import recipe_lookup
from surgery.model.graph.state import Defect
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.verdict.validity import FREEZING

DONE, SAME = StepRecord("a", "committed", 3, 2), StepRecord("b", "unchanged", 2, 2)
FAILED = StepRecord("c", "failed", 2, 2, exit_code=1, message="wrong")
CRASHED = StepRecord("c", "failed", 2, 2, exit_code=3, message="crashed")
UNDONE = StepRecord("d", "rolled_back", 2, 2, exit_code=1, message="wrong")
BROKEN = StepRecord("e", "rolled_back", 2, 2, exit_code=3, message="crashed")
FOREIGN = StepRecord("f", "rolled_back", 2, 2, exit_code=3, message="crashed", is_foreign=True)
PARTLY = StepRecord("g", "committed", 2, 2, refused_sites=(RefusedSite(1, "n", "why"),))
DEFECT = StepRecord("h", "committed", 2, 2, defects=(Defect("n", "IndexError"),))
HOLDS, FAILS = Expectation("nodes: 2", True), Expectation("nodes: 1", False)
GAINS_NOTHING, MISSED, BROKE = Shortfall("nothing", 0), Shortfall("missed", 1), Shortfall("broke", 3)
LOSSY, CLOSE = Verdict(Status.LOSSY), Verdict(Status.CLOSE)


def result(*steps: StepRecord, expectations: tuple[Expectation, ...] = (), **more: Any) -> Result:
    sides: Any = SimpleNamespace(ops={"Add": 3}, nodes=3), SimpleNamespace(ops={"Add": 2}, nodes=2)
    nothing: Any = None
    return Result("r", *sides, steps, expectations, (), 1.0, nothing, nothing, **more)


@pytest.mark.parametrize(
    ("found", "ok", "code", "strictly_ok", "strict_code"),
    [
        (result(), True, 0, True, 0),
        (result(DONE, SAME, expectations=(HOLDS,)), True, 0, True, 0),
        (result(DONE, expectations=(HOLDS, FAILS)), False, 1, False, 1),
        (result(DONE, FAILED), False, 1, False, 1),
        (result(DONE, CRASHED), False, 3, False, 3),
        (result(DONE, UNDONE), True, 0, False, 1),
        (result(DONE, PARTLY), True, 0, False, 1),
        (result(DONE, BROKEN), True, 3, False, 3),
        (result(DONE, FOREIGN), True, 1, False, 1),
        (result(DONE, DEFECT), True, 3, True, 3),
        (result(DEFECT, expectations=(FAILS,)), False, 1, False, 1),
        (result(DONE, unverifiable="no kernel"), False, 1, False, 1),
        (result(DONE, shortfall=GAINS_NOTHING), True, 0, False, 1),
        (result(DONE, misfits=GAINS_NOTHING), True, 0, True, 0),
        (result(DONE, shortfall=MISSED), True, 1, False, 1),
        (result(DONE, misfits=MISSED), True, 1, False, 1),
        (result(DONE, shortfall=BROKE, misfits=MISSED), True, 3, False, 3),
    ],
)
def test_a_result_is_ok_and_has_an_exit_code(
    found: Result, ok: bool, code: int, strictly_ok: bool, strict_code: int
) -> None:
    assert (found.ok, found.exit_code) == (ok, code)
    strict = replace(found, strict=True)
    assert (strict.ok, strict.exit_code) == (strictly_ok, strict_code)
    assert found.to_json()["ok"] is ok


@pytest.mark.parametrize(
    ("found", "shortfalls", "unmet"),
    [
        (result(DONE), [], []),
        (result(DONE, shortfall=GAINS_NOTHING, misfits=MISSED), ["nothing", "missed"], ["missed"]),
        (result(DONE, shortfall=GAINS_NOTHING, strict=True), ["nothing"], ["nothing"]),
        (result(DONE, misfits=GAINS_NOTHING, strict=True), ["nothing"], []),
        (result(BROKEN, misfits=MISSED), ["'e' broke and was undone, see above", "missed"],
         ["'e' broke and was undone, see above", "missed"]),
        # What broke is said once.
        (result(BROKEN, shortfall=BROKE), ["broke"], ["broke"]),
    ],
)  # fmt: skip
def test_what_was_not_reached(found: Result, shortfalls: list[str], unmet: list[str]) -> None:
    assert [one.words for one in found.shortfalls] == shortfalls
    assert [one.words for one in found.unmet] == unmet


def test_steps_that_were_refused_are_listed_once() -> None:
    found = result(DONE, UNDONE, PARTLY, UNDONE, BROKEN, FAILED)
    assert [step.name for step in found.refused] == ["d", "g", "e"]
    assert found.failure is FAILED and result(DONE).failure is None
    assert [step.name for step in found.broken] == ["e"]
    assert [name for name, _ in result(DEFECT, DEFECT).defects] == ["h"]


def test_the_loss_is_that_of_the_whole_or_of_the_last_lossy_step() -> None:
    lossy = StepRecord("a", "committed", 3, 2, verdict=Verdict(Status.LOSSY, message="of a step"))
    assert result(lossy, end=LOSSY).loss is LOSSY
    assert result(lossy, end=CLOSE).loss is lossy.verdict
    assert result(lossy).loss is lossy.verdict and result(DONE, end=CLOSE).loss is None


def test_steps_and_verdicts_of_an_earlier_run_are_counted() -> None:
    cached = StepRecord("a", "committed", 3, 2, cached=True)
    assert result(cached, DONE, cached).cached == (2, False)
    assert result(cached, end=Verdict(Status.CLOSE, cached=True)).cached == (1, True)
    assert result(cached, end=CLOSE).to_json()["cached"] == {"steps": 1, "end": False}


def test_a_target_is_named_if_there_is_one() -> None:
    assert "target" not in result(DONE).to_json()
    found = result(DONE, UNDONE, target="openvino").to_json()
    assert found["target"] == "openvino"
    assert found["refused"] == [{"pass": "d", "where": "", "why": "wrong", "broke": False}]
    assert repr(result(DONE, FAILED)) == "<Result of 'r': not ok, 3 -> 2 nodes, 2 steps>"


def test_frozen_weights_are_remarked_if_that_step_was_committed() -> None:
    assert result(StepRecord(FREEZING, "committed", 3, 3)).has_frozen_weights
    assert not result(StepRecord(FREEZING, "unchanged", 3, 3), DONE).has_frozen_weights


def test_an_empty_batch_that_is_no_longer_taken_is_remarked() -> None:
    found = result(DONE)
    assert found.lost_empty == ""
    found.output.ops["Attention"] = 1  # type: ignore[index]
    assert found.lost_empty.startswith("an empty batch or sequence is no longer taken: Attention ")
    found.input.ops["Attention"] = 1  # type: ignore[index]
    assert found.lost_empty == ""


def test_a_record_has_nothing_that_is_not_given() -> None:
    record = StepRecord("a", "unchanged", 3, 3)
    assert (record.sites, record.exit_code, record.seconds, record.message) == (0, 0, 0.0, "")
    assert not record.cached and not record.is_foreign and record.verdict is None
    assert StepRecord("a", "committed", 3, 3, verdict=CLOSE).to_json()["verdict"] == "close"
    assert record.to_json()["verdict"] is None


def test_a_shipped_recipe_has_a_name_and_others_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe_lookup, "is_shipped", lambda path: path == Path("/shelf/tidy.yaml"))
    places = {where: replace(DONE, where=where).place for where in ("/shelf/tidy.yaml:3", "/x/tidy.yaml:3", "", "tidy")}
    assert list(places.values()) == ["tidy:3", "/x/tidy.yaml:3", "", "tidy"]


def test_a_refused_site_is_named_by_its_anchor() -> None:
    assert str(RefusedSite(2, "n", "it differs")) == "refused site 2 at 'n': it differs"
    assert str(RefusedSite(2, "", "it differs")) == "refused site 2: it differs"


class Noting(Silent):
    def __init__(self) -> None:
        self.noted: list[object] = []

    def stage(self, step: str, stage: str) -> None:
        self.noted.append((step, stage))

    def done(self, record: StepRecord) -> None:
        self.noted.append(record)


def test_a_journal_reports_what_it_records(capsys: pytest.CaptureFixture[str]) -> None:
    observer = Noting()
    journal = Journal(observer)
    journal.stage("a", "pass")
    journal.prefix = "run 2: "
    journal.stage("a", "check")
    journal.record(DONE)
    assert observer.noted == [("a", "pass"), ("a", "run 2: check"), DONE] and journal.records == [DONE]
    Journal(None).observer.said("a", "printed by a pass\n")
    assert capsys.readouterr() == ("", "printed by a pass\n")


def test_an_origin_lists_the_steps_that_changed_something() -> None:
    recipe: Any = SimpleNamespace(name="r")
    assert result(DONE).origin() is None
    skipped = StepRecord("s", "skipped", 2, 2)
    made = result(DONE, SAME, skipped, UNDONE, made_by=recipe, end=CLOSE).origin()
    assert made is not None and [step["pass"] for step in made.steps] == ["a", "d"]
    assert made.end == "close"
