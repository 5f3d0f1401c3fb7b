"""Which outcomes of steps are stored, under which names, and when they are found again, without any run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from surgery.base.errors import PassError, UsageError
from surgery.base.frozen_dict import FrozenDict
from surgery.engine.caching import housekeeping, keys
from surgery.engine.caching.cache_folder import CacheFolder
from surgery.engine.caching.step_cache import Steps, _is_lasting
from surgery.engine.pipeline.candidate import Candidate, State
from surgery.engine.pipeline.records import Defect, RefusedSite, StepRecord
from surgery.engine.pipeline.step_cache_interface import EndFacts, Judged, RunStart
from surgery.engine.recipe import parse
from surgery.engine.recipe.schema import PassStep
from surgery.model.graph import text
from surgery.model.graph.state import Site
from surgery.model.storage import loading
from surgery.model.targets import STANDARD
from surgery.verification.comparing.deployment import Deployed
from surgery.verification.comparing.details import Status, Verdict


def state(op: str = "Relu") -> State:
    proto = text.parse(f"g (float[N] x) => (float[N] y) {{ y = {op}(x) }}")
    return State.of(proto, proto.SerializeToString(deterministic=True))


FIRST, SECOND, THIRD = state(), state("Neg"), state("Abs")
STEP, OTHER = PassStep("drop-identity"), PassStep("fold-constants")
EQUAL = Verdict(Status.EQUAL, message="bit-identical", region=2)
SITE = Site(1, "a", (), ())


def judged(step: PassStep = STEP, after: State = SECOND, **more: Any) -> Judged:
    fields = {name: more.pop(name) for name in ("refused", "guilty", "kept", "cut_short", "cached") if name in more}
    known = {"changed": True, "verdict": EQUAL, "sites": (SITE,), **more}
    return Judged(Candidate(step, **{"proto": after.proto, "data": after.data, **known}), **fields)


def record(status: Any = "committed", exit_code: int = 0) -> StepRecord:
    return StepRecord("drop-identity", status, 1, 1, exit_code=exit_code)


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Steps]:
    """Begin a run of a cache; runs of one key share their entries."""
    recipe = parse("steps: [drop-identity]")

    def make(key: str = "run", folder: CacheFolder | None = None) -> Steps:
        monkeypatch.setattr(keys, "run_key", lambda run, original, folder: key)
        made = Steps(folder or CacheFolder(tmp_path / "cache", pytest.fail))
        made.begin(RunStart(loading.opened(FIRST.proto), FIRST, recipe, STANDARD, contained=True))
        assert made.refusal == ""
        return made

    return make


def committed(steps: Steps, *found: tuple[PassStep, State, State]) -> Steps:
    for step, before, after in found:
        steps.note(step, judged(step, after), record(), before, after)
    steps.finish()
    return steps


def test_an_outcome_is_found_in_the_next_run(begin: Any) -> None:
    steps = begin()
    assert not steps.may_know(STEP, FIRST) and steps.find(STEP, FIRST) is None
    committed(steps, (STEP, FIRST, SECOND), (OTHER, SECOND, THIRD))
    assert (steps.found, steps.missed) == (0, 2) and steps.folder.uses.read_text() == "0 2\n"
    assert len(steps.folder.names("run")) == 2
    steps = begin()
    assert steps.may_know(STEP, FIRST) and steps.may_know(OTHER, SECOND)
    assert not steps.may_know(OTHER, FIRST) and not steps.may_know(STEP, SECOND)
    found = steps.find(STEP, FIRST)
    assert found is not None and found.cached and found.candidate.verdict == EQUAL and found.candidate.sites == (SITE,)
    assert found.candidate.proto == SECOND.proto and found.candidate.data == SECOND.data
    # The outcome of a later step depends on those before it.
    assert steps.find(OTHER, SECOND) is None
    steps.note(STEP, found, record(), FIRST, SECOND)
    again = steps.find(OTHER, SECOND)
    assert again is not None and again.candidate.proto == THIRD.proto
    steps.finish()
    assert (steps.found, steps.missed) == (2, 0) and steps.folder.uses.read_text() == "0 2\n2 0\n"
    assert len(steps.folder.names("run")) == 2
    assert not begin("another").may_know(STEP, FIRST)


@pytest.mark.parametrize(
    ("status", "more", "depends"),
    [
        ("unchanged", {}, False),
        ("skipped", {}, False),
        ("rolled_back", {}, True),
        ("unchanged", {"refused": (RefusedSite(1, "a", "b"),)}, True),
        ("committed", {}, True),
    ],
)
def test_steps_that_change_nothing_are_no_part_of_the_history(
    begin: Any, status: str, more: Any, depends: bool
) -> None:
    committed(begin(), (OTHER, FIRST, THIRD))
    steps = begin()
    steps.note(STEP, judged(after=FIRST, changed=False, **more), record(status), FIRST, FIRST)
    assert (steps.find(OTHER, FIRST) is None) is depends


def test_an_outcome_without_a_change_has_the_model_before_it(begin: Any) -> None:
    steps = begin()
    steps.note(STEP, judged(after=FIRST, changed=False), record("unchanged"), FIRST, FIRST)
    steps.finish()
    found = begin().find(STEP, FIRST)
    assert found.candidate.proto is FIRST.proto and found.candidate.data is FIRST.data and not found.candidate.changed


def continued(begin: Any, outcome: Judged, status: str = "committed", after: State = SECOND, step: Any = STEP) -> Any:
    steps = begin()
    return steps._continued(step, outcome, record(status), after)


def test_the_history_has_everything_that_later_steps_depend_on(begin: Any) -> None:
    base = judged()
    different = [
        (base, "committed", SECOND, STEP),
        (base, "rolled_back", SECOND, STEP),
        (base, "committed", THIRD, STEP),
        (judged(verdict=None), "committed", SECOND, STEP),
        (judged(verdict=replace(EQUAL, status=Status.CLOSE)), "committed", SECOND, STEP),
        (judged(verdict=replace(EQUAL, region=None)), "committed", SECOND, STEP),
        (judged(verdict=replace(EQUAL, region=None, together=1)), "committed", SECOND, STEP),
        (judged(renamed={"y": "z"}), "committed", SECOND, STEP),
        (judged(guilty=(SITE,)), "committed", SECOND, STEP),
        (judged(guilty=(SITE,)), "committed", SECOND, OTHER),
        (judged(guilty=(SITE,)), "committed", SECOND, replace(STEP, options=FrozenDict(a=1))),
    ]
    found = [continued(begin, *one) for one in different]
    # Whether a region is open is the same for both ways.
    assert found[5] != found[0] == found[6] and len({*found}) == len(found) - 1 and None not in found
    # Other words, and another step that avoids no site.
    for outcome, step in (
        (judged(verdict=replace(EQUAL, message="else")), STEP),
        (base, OTHER),
        (judged(sites=()), STEP),
    ):
        assert continued(begin, outcome, "committed", SECOND, step) == found[0]
    assert continued(begin, judged(accounts=(object(),))) is None
    steps = begin()
    steps._history = "more"
    assert steps._continued(STEP, base, record(), SECOND) != found[0]


def test_nothing_is_stored_once_the_history_is_unknown(begin: Any) -> None:
    steps = begin()
    steps.note(STEP, judged(accounts=(object(),)), record(), FIRST, SECOND)
    steps.note(OTHER, judged(OTHER, THIRD), record(), SECOND, THIRD)
    steps.note_end(THIRD, EndFacts((), None))
    steps.finish()
    assert steps.folder.names("run") == frozenset() and steps.missed == 1


@pytest.mark.parametrize(
    ("outcome", "status", "exit_code", "lasts"),
    [
        (judged(), "committed", 0, True),
        (judged(cut_short=True), "committed", 0, False),
        (judged(proto=None), "failed", 0, False),
        (judged(defects=(Defect("a", "b"),)), "committed", 0, False),
        (judged(), "rolled_back", PassError.exit_code, False),
        (judged(complaint="no time", verdict=None), "failed", 1, False),
        (judged(verdict=Verdict(Status.UNVERIFIED)), "committed", 0, False),
        (judged(complaint="wrong", verdict=Verdict(Status.UNVERIFIED, "vacuous")), "failed", 1, True),
    ],
)
def test_outcomes_that_another_run_would_have(
    begin: Any, outcome: Judged, status: str, exit_code: int, lasts: bool
) -> None:
    made = record(status, exit_code)
    assert _is_lasting(outcome, made) is lasts
    steps = begin()
    steps.note(STEP, outcome, made, FIRST, SECOND)
    steps.finish()
    assert len(steps.folder.names("run")) == lasts and steps.missed == 1


def test_a_step_without_a_key_is_not_stored(begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[PassStep] = []
    monkeypatch.setattr(keys, "step_key", lambda step: asked.append(step))
    steps = committed(begin(), (STEP, FIRST, SECOND))
    assert steps.folder.names("run") == frozenset() and asked == [STEP]


# Values


def test_values_of_a_model_are_found_again(begin: Any) -> None:
    deployed, facts = Deployed(EQUAL, ()), EndFacts(({"seed": 1},), None)
    steps = begin()
    assert steps.find_whole("n", SECOND) is None and steps.found == 0
    steps.note_whole("n", SECOND, EQUAL)
    steps.note_deployed(SECOND, deployed)
    steps.note_end(SECOND, facts)
    steps.finish()
    assert len(steps.folder.names("run")) == 3
    steps = begin()
    found = steps.find_whole("n", SECOND)
    assert found == EQUAL and steps.find_deployed(SECOND) == deployed and steps.find_end(SECOND) == facts
    assert steps.found == 3
    for nothing in (steps.find_whole("m", SECOND), steps.find_whole("n", THIRD), steps.find_end(THIRD)):
        assert nothing is None
    # Under another history it is another value.
    steps._history = "more"
    assert steps.find_whole("n", SECOND) is None
    steps.finish()
    assert steps.find_whole("n", SECOND) is None and begin("other").find_end(SECOND) is None


@pytest.mark.parametrize(("status", "stored"), [(Status.CLOSE, 2), (Status.DIFFERENT, 0), (Status.UNVERIFIED, 0)])
def test_only_what_accepts_a_model_is_stored(begin: Any, status: Status, stored: int) -> None:
    steps = begin()
    steps.note_whole("n", SECOND, Verdict(status))
    steps.note_deployed(SECOND, Deployed(Verdict(status), ()))
    steps.note_whole("m", SECOND, replace(EQUAL, cached=True))
    steps.finish()
    assert len(steps.folder.names("run")) == stored


def test_a_value_of_another_type_is_dropped(begin: Any, tmp_path: Path) -> None:
    warnings: list[str] = []
    folder = CacheFolder(tmp_path / "cache", warnings.append)
    steps = begin(folder=folder)
    steps._note_value("whole n", SECOND, "a text")
    steps._note_value("whole m", SECOND, {1, 2})
    steps.finish()
    assert len(folder.names("run")) == 1
    assert begin(folder=folder).find_whole("n", SECOND) is None
    assert len(warnings) == 1 and folder.names("run") == frozenset()


def test_a_writer_that_fails_ends_writing(begin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    steps = begin(folder=CacheFolder(tmp_path / "cache", warnings.append))
    monkeypatch.setattr(steps, "_store", lambda *_: 1 / 0)
    committed(steps, (STEP, FIRST, SECOND), (OTHER, SECOND, THIRD))
    assert len(warnings) == 1 and warnings[0].endswith("ZeroDivisionError: division by zero")
    assert steps.folder.names("run") == frozenset()


def test_a_cache_is_bounded_at_the_end_of_each_run(begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded: list[CacheFolder] = []
    monkeypatch.setattr(housekeeping, "bound", bounded.append)
    steps = begin()
    steps.finish()
    steps.finish()
    assert bounded == [steps.folder] and not steps.folder.uses.exists()


def test_a_run_that_cannot_be_cached(begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def unread(*_: Any) -> str:
        raise UsageError("x.npz cannot be read")

    steps = committed(begin(), (STEP, FIRST, SECOND))
    start = RunStart(loading.opened(FIRST.proto), FIRST, parse("steps: [drop-identity]"), STANDARD, contained=True)
    monkeypatch.setattr(keys, "run_key", unread)
    steps.begin(start)
    assert steps.refusal == "x.npz cannot be read"
    steps.begin(replace(start, contained=False))
    assert steps.refusal == "passes run in this process, for debugging"
    assert not steps.may_know(STEP, FIRST)
    steps.note(STEP, judged(), record(), FIRST, SECOND)
    steps.note_end(SECOND, EndFacts((), None))
    steps.finish()
    assert len(steps.folder.names("run")) == 1


def test_a_few_models_are_kept_in_their_portable_form(begin: Any) -> None:
    steps = begin()
    operators = ("Relu", "Neg", "Abs", "Exp", "Log", "Sin", "Cos", "Tan", "Erf", "Sqrt")
    for op in operators:
        assert steps._digest(state(op)) == steps._digest(state(op))
    assert [*steps._portable] == [state(op).data for op in operators[-8:]]
    steps.finish()
