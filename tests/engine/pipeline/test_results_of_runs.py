"""What a run reports at its last step: its verdict, figures, and why nothing could be verified; from parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.records import DEPLOYED, Expectation, StepRecord
from surgery.engine.provenance.statement_writing import Sidecar
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.targets import STANDARD, shipped
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN
from surgery.verification.verdict.validity import Validity

PROTO = text.parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
CLOSE, DIFFERENT = Verdict(Status.CLOSE, needed={"factor": 0.25}), Verdict(Status.DIFFERENT)
LOSSY, UNVERIFIED = Verdict(Status.LOSSY, message="loss"), Verdict(Status.UNVERIFIED, NOT_RUN)


def record(verdict: Verdict | None, status: Any = "committed", name: str = "a") -> StepRecord:
    return StepRecord(name, status, 2, 2, verdict=verdict)


@pytest.mark.parametrize(
    ("name", "verify", "mode", "compare", "deployment"),
    [
        (DEPLOYED, "{}", "each", "auto", "each"),
        (DEPLOYED, "{mode: end}", "each", "auto", "each"),
        ("(end)", "{mode: end}", "each", "both", "end"),
        ("(end)", "{mode: end, compare: whole}", "each", "whole", "end"),
        ("(end)", "{compare: region}", "each", "both", "end"),
    ],
)
def test_a_run_that_was_wrong_is_repeated_more_strictly(
    name: str, verify: str, mode: str, compare: str, deployment: str
) -> None:
    recipe = recipes.parse(f"verify: {verify}\nsteps: [drop-identity]")
    default = recipe.verify.compare
    found = runner._stricter(recipe, record(None, name=name)).verify
    assert found.mode == mode and found.deployment == deployment
    assert found.compare == (default if compare == "auto" else compare)


@pytest.mark.parametrize(
    ("whole", "records", "expected"),
    [
        (None, [], None),
        (CLOSE, [], CLOSE),
        (None, [record(LOSSY)], LOSSY),
        (CLOSE, [record(LOSSY), record(CLOSE)], LOSSY),
        (DIFFERENT, [record(LOSSY)], DIFFERENT),
        (UNVERIFIED, [record(LOSSY)], UNVERIFIED),
        (None, [record(LOSSY, "rolled_back")], None),
    ],
)
def test_the_verdict_on_a_result(whole: Verdict | None, records: list[StepRecord], expected: Verdict | None) -> None:
    assert runner._end(whole, records) == expected
    cached = [replace(one, verdict=replace(one.verdict, cached=True) if one.verdict else None) for one in records]
    found = runner._end(whole, cached)
    assert found is None or not found.cached


def pipeline(records: list[StepRecord], end: Verdict | None = None, **judge: Any) -> Any:
    stored = storage.from_proto(PROTO)
    model = SimpleNamespace(nodes=1, proto=stored.proto, stored=stored, target=STANDARD, editable=lambda: "graph")
    verifying = SimpleNamespace(end=end, spec=SimpleNamespace(unverified="refuse"), why_unknown=lambda: "no kernel")
    verifying.__dict__.update(judge)
    journal = SimpleNamespace(records=records, expectations=[])
    return SimpleNamespace(model=model, verifying=verifying, journal=journal, speed=1.5, deployed=None)


@pytest.mark.parametrize(
    ("records", "end", "tolerance"),
    [
        ([], None, 0.0),
        ([record(None)], None, None),
        ([record(CLOSE)], None, 0.25),
        ([record(CLOSE), record(replace(CLOSE, needed={"factor": 0.5}))], None, 0.5),
        ([record(CLOSE)], replace(CLOSE, needed={"factor": 0.75}), 0.75),
        ([record(CLOSE, "rolled_back")], None, 0.0),
        ([record(replace(CLOSE, needed={"rtol": 1.0}))], None, None),
    ],
)
def test_figures_of_a_result(records: list[StepRecord], end: Verdict | None, tolerance: float | None) -> None:
    found = runner._figures(pipeline(records, end))
    assert (found.nodes, found.tolerance, found.speed) == (1, tolerance, 1.5)
    assert found.bytes == len(PROTO.SerializeToString())


SOUND, INVALID, LACKING = Validity(), Validity(refusal="bad model"), Validity(refusal="no kernel", gap=True)


@pytest.mark.parametrize(
    ("records", "validity", "why"),
    [
        ([record(CLOSE)], SOUND, ""),
        ([record(UNVERIFIED)], SOUND, "no kernel"),
        ([record(UNVERIFIED), record(CLOSE)], SOUND, ""),
        ([record(UNVERIFIED)], None, ""),
        ([], SOUND, ""),
        ([], INVALID, "no kernel"),
        ([record(CLOSE)], INVALID, "no kernel"),
        ([], LACKING, ""),
        ([record(None, "unchanged")], LACKING, ""),
        ([record(None)], LACKING, "no kernel"),
        ([record(CLOSE)], LACKING, ""),
        ([record(UNVERIFIED, "rolled_back")], LACKING, "no kernel"),
    ],
)
def test_why_nothing_could_be_verified(records: list[StepRecord], validity: Validity | None, why: str) -> None:
    facts: Any = SimpleNamespace(validity=validity)
    assert runner._unverifiable(pipeline(records), facts) == why
    accepting = pipeline(records, spec=SimpleNamespace(unverified="accept"))
    assert runner._unverifiable(accepting, facts) == ""


def test_a_target_is_asked_unless_an_expectation_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "off_target", lambda *given: given[0])
    made = pipeline([])
    assert runner._misfits(made) is None
    made.model.target = shipped.find("openvino")
    made.journal.expectations = [Expectation("nodes", True)]
    assert runner._misfits(made) == "graph"  # type: ignore[comparison-overlap]
    made.journal.expectations.append(Expectation("target", True, target="openvino"))
    assert runner._misfits(made) is None


@pytest.mark.parametrize(
    ("records", "mode", "prepared", "checked"),
    [
        ([record(CLOSE)], "each", 0, True),
        ([replace(record(CLOSE), cached=True)], "each", 1, True),
        ([replace(record(None), cached=True)], "each", 0, True),
        ([record(CLOSE)], "off", 0, False),
    ],
)
def test_facts_about_the_original(records: list[StepRecord], mode: str, prepared: int, checked: bool) -> None:
    calls: list[str] = []
    original = SimpleNamespace(prepare=lambda: calls.append("prepare"), bindings=[{"n": 1}])
    tracker = SimpleNamespace(verifier=SimpleNamespace(original=original))
    made = pipeline(records, tracker=tracker, validity=lambda stored: SOUND)
    recipe = recipes.parse(f"verify: {{mode: '{mode}'}}\nsteps: [drop-identity]")
    found = runner._facts(made, recipe)
    assert (len(calls), found.validity is SOUND, found.bindings) == (prepared, checked, ({"n": 1},))


def test_data_that_is_given_replaces_that_of_the_recipe() -> None:
    recipe = recipes.parse("steps: [drop-identity]")
    assert runner._with_data(recipe, None, None) == recipe
    calibrated = runner._with_data(recipe, "c.npz", None)
    assert [one.path for one in calibrated.inputs.calibration.data] == [Path("c.npz")]
    assert calibrated.verify == recipe.verify
    evaluated = runner._with_data(recipe, None, ["e.npz", "f.npz"])
    assert [one.path for one in evaluated.verify.accuracy.samples.data] == [Path("e.npz"), Path("f.npz")]
    assert evaluated.inputs == recipe.inputs


@pytest.mark.parametrize(("written", "asked", "found"), [("", True, True), ("", False, False), ("false", True, False)])
def test_a_recipe_may_switch_statements_off(written: str, asked: bool, found: bool) -> None:
    recipe = recipes.parse(f"{f'provenance: {written}' if written else ''}\nsteps: [drop-identity]")
    assert runner._stated(recipe, asked) is found
    sidecar = Sidecar()
    assert runner._stated(recipe, sidecar) is sidecar
