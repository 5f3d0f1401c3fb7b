"""What is shown while a recipe runs."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from rich.console import Console

from surgery.engine import recipe as recipes
from surgery.engine.pipeline.agenda import Agenda, users
from surgery.engine.pipeline.records import StepRecord
from surgery.interface.report.progress import Progress, Remaining

TEXT = """
steps:
  - drop-identity
  - repeat: until-stable
    steps:
      - drop-no-op
      - use: {recipe: inner, steps: [merge-transposes, {pass: drop-dead, when: {nodes: "> 3"}}]}
  - drop-no-op
  - drop-dropout
"""


@pytest.fixture
def agenda() -> Agenda:
    return Agenda(recipes.parse(TEXT, "r.yaml"))


def note(agenda: Agenda, *numbers: int) -> tuple[int, int]:
    for number in numbers:
        agenda.note(*agenda.steps[number].key)
    return agenda.done, agenda.total


def test_nested_and_repeated_steps_are_counted(agenda: Agenda) -> None:
    names = ["drop-identity", "drop-no-op", "merge-transposes", "drop-dead", "drop-no-op", "drop-dropout"]
    assert [one.step.name for one in agenda.steps] == names
    assert note(agenda) == (0, 6)
    assert note(agenda, 0, 1, 2, 3) == (4, 6)
    # A second round, of which nothing was known, and the steps after it.
    assert note(agenda, 1) == (5, 9)
    assert note(agenda, 2, 3, 4, 5) == (9, 9)


def test_skipped_steps_count_as_done(agenda: Agenda) -> None:
    assert note(agenda, 0, 4) == (5, 6)
    agenda.note("(end)", "")
    assert note(agenda) == (5, 6)


def test_a_round_without_its_first_step_is_counted(agenda: Agenda) -> None:
    assert note(agenda, 0, 1, 2, 3, 2) == (5, 8)


def test_nested_places_resolve_to_the_step_of_the_outer_recipe() -> None:
    agenda = Agenda(recipes.parse("steps:\n  - drop-dropout\n  - use: tidy\n", "r.yaml"))
    found = users(agenda.steps)
    assert found["r.yaml:2"] == "r.yaml:2:5"
    assert {place for key, place in found.items() if "tidy.yaml" in key} == {"r.yaml:3:5"}


def test_the_time_left_is_not_shown_before_it_can_be_estimated() -> None:
    left = Remaining()
    for done in range(1, 11):
        left.note(done, 100, float(done))
        assert left.text(float(done)) == ""
    left.note(11, 100, 11.0)
    assert left.seconds(11.0) == pytest.approx(89.0)
    assert left.text(11.0) == "about 90 s left" and left.text(51.0) == "about 50 s left"
    assert left.text(92.0) == "about 8 s left" and left.text(1000.0) == ""


def test_a_short_run_does_not_show_the_time_left() -> None:
    left = Remaining()
    for done in range(1, 100):
        left.note(done, 100, done * 0.01)
    assert left.text(1.0) == ""


def test_the_time_left_changes_smoothly_when_steps_become_fast() -> None:
    left, now, shown = Remaining(), 0.0, []
    for done in range(1, 101):
        now += 2.0 if done <= 20 else 0.1
        left.note(done, 100, now)
        shown.append(left.seconds(now))
    known = [one for one in shown if one is not None]
    assert max(abs(a - b) for a, b in pairwise(known)) < 20
    assert known[-1] < 6 < known[0]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (80, "step 1/6, fuse-contrib-rotary-embedding, 12 s"),
        (40, "step 1/6, fuse-cont..., 12 s"),
        (23, "step 1/6, fuse-cont..."),
        (10, "step 1/6, "),
    ],
)
def test_the_line_never_exceeds_the_width(width: int, expected: str, agenda: Agenda) -> None:
    times = iter([0.0, 12.0])
    console = Console(file=io.StringIO())
    shown = Progress(console, agenda=agenda, interactive=False, clock=lambda: next(times))
    shown.stage("fuse-contrib-rotary-embedding", "parity")
    assert shown.line(width) == expected


def test_the_whole_line(agenda: Agenda) -> None:
    now = [0.0]
    shown = Progress(Console(file=io.StringIO()), agenda=agenda, interactive=False, clock=lambda: now[0])
    assert shown.line() == "loading"
    for place in range(6):
        now[0] += 3.0
        shown.done(record(agenda, place))
    shown.stage("fuse-gelu", "bisect, run 3: parity")
    assert shown.line() == "step 6/6, fuse-gelu: bisect, run 3: parity, 18 s"


def record(agenda: Agenda, place: int) -> StepRecord:
    name, where = agenda.steps[place].key
    return StepRecord(name, "committed", 9, 8, where=where)


def test_without_an_agenda_steps_are_counted_alone() -> None:
    shown = Progress(Console(file=io.StringIO()), interactive=False, clock=lambda: 1.0)
    shown.done(StepRecord("a", "unchanged", 1, 1))
    shown.stage("b", "pass")
    assert shown.line() == "step 2, b, 0 s"


def test_no_progress_is_written_without_a_terminal(agenda: Agenda) -> None:
    file = io.StringIO()
    with Progress(Console(file=file), agenda=agenda) as shown:
        shown.stage("a", "pass")
        shown.done(record(agenda, 0))
    assert file.getvalue() == ""
