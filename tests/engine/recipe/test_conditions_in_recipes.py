"""Expectations, baselines and predicates as they are written, and what is wrong with them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from support.recipe_texts import mistakes

from surgery.engine import recipe
from surgery.engine.recipe.conditions import target_of
from surgery.engine.recipe.count_condition import CountCondition
from surgery.engine.recipe.schema import Share

pytestmark = pytest.mark.usefixtures("passes", "shelf")

STEPS = "steps: [drop-dropout]\n"


def wrong(text: str) -> list[str]:
    return [one.removeprefix("r.yaml:") for one in mistakes(text)]


def expect(text: str) -> Any:
    return recipe.parse(f"{STEPS}expect: {{{text}}}\n").expect


@pytest.mark.parametrize(
    ("written", "speed"),
    [("1.2", 1.2), ("2", 2), ("0", 0), ("'>= 1.5'", 1.5), ("' >=2 '", 2.0), ("'>= .5'", 0.5), ("1e300", 1e300)],
)
def test_a_minimum_speed(written: str, speed: float) -> None:
    assert expect(f"speed: {written}").speed == speed


@pytest.mark.parametrize(
    "written", ["-1", "true", "fast", "'> 1'", "'>= -1'", "'<= 1'", "'>= 1x'", ".inf", ".nan", "[1]", "'1.5'"]
)
def test_what_is_no_minimum_speed(written: str) -> None:
    (found,) = wrong(f"{STEPS}expect: {{speed: {written}}}\n")
    assert found.startswith("2:17: 'speed' takes the minimum speed, such as 1.2, not ")


@pytest.mark.parametrize(
    ("written", "executed"),
    [
        ("400", CountCondition.parse(400)),
        ("'<= 400'", CountCondition.parse("<= 400")),
        ("'<= 1x'", Share("<=", 1.0)),
        ("'< 0.5 x '", Share("<", 0.5)),
        ("' <= .5x'", Share("<=", 0.5)),
    ],
)
def test_how_many_nodes_are_executed(written: str, executed: Any) -> None:
    assert expect(f"executed: {written}").executed == executed


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("'>= 1x'", "'>= 1x': this figure needs an upper bound, such as '<= 1.1x'"),
        (
            "'1x'",
            "'1x' is not a comparison such as 0, '>= 1' or '<= 500', or a multiple of the original's nodes such as "
            "'<= 1x'",
        ),
        (
            "true",
            "a comparison is a number, or text such as '>= 1', or a multiple of the original's nodes such as '<= 1x'",
        ),
        ("-1", "a count is never negative: -1, or a multiple of the original's nodes such as '<= 1x'"),
    ],
)
def test_what_is_no_number_of_executed_nodes(written: str, message: str) -> None:
    assert wrong(f"{STEPS}expect: {{executed: {written}}}\n") == [f"2:20: {message}"]


@pytest.mark.parametrize(
    ("key", "written", "share"),
    [
        ("nodes", "'<= 1x'", Share("<=", 1.0)),
        ("nodes", "'< 2'", Share("<", 2.0)),
        ("bytes", "'<=1.1x'", Share("<=", 1.1)),
        ("tolerance", "'< 3x'", Share("<", 3.0)),
        ("speed", "'>= 0.9x'", Share(">=", 0.9)),
        ("speed", "'> 1'", Share(">", 1.0)),
    ],
)
def test_bounds_of_a_baseline(key: str, written: str, share: Share) -> None:
    found = recipe.parse(f"{STEPS}baseline: {{report: last.json, {key}: {written}}}\n", Path("folder/r.yaml")).baseline
    assert found is not None and found.report == Path("folder/last.json") and found.bounds()[key] == share
    assert found.where(f"baseline {key}: more") == "folder/r.yaml:2:31"
    assert found.where("baseline other: more") == "folder/r.yaml:2:12"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{nodes: '<= 1x'}", "2:11: 'baseline' needs 'report', the JSON report of an earlier run"),
        ("last.json", "2:11: 'baseline' takes a mapping such as {report: last.json}, not 'last.json'"),
        ("{report: a, nodes: '>= 1x'}", "2:30: '>= 1x': this figure needs an upper bound, such as '<= 1.1x'"),
        ("{report: a, speed: '<= 1x'}", "2:30: '<= 1x': a speed needs a lower bound, such as '>= 0.9x'"),
        ("{report: a, nodes: 1}", "2:30: 'nodes' takes a multiple of the last figure such as '<= 1.1x', not 1"),
        ("{report: a, speed: fast}", "2:30: 'speed' takes a multiple of the last figure such as '>= 0.9x', not 'fast'"),
        (
            "{report: a, speed: '== 1x'}",
            "2:30: 'speed' takes a multiple of the last figure such as '>= 0.9x', not '== 1x'",
        ),
        (
            "{report: a, nodes: '<= -1x'}",
            "2:30: 'nodes' takes a multiple of the last figure such as '<= 1.1x', not '<= -1x'",
        ),
    ],
)
def test_what_is_no_bound_of_a_baseline(text: str, message: str) -> None:
    assert wrong(f"{STEPS}baseline: {text}\n") == [message]


def test_the_positions_of_expectations() -> None:
    found = recipe.parse(f"{STEPS}expect:\n  nodes: 5\n  ops:\n    Relu: 1\n    Exp: 2\n", "r.yaml").expect
    assert [found.where(f"{what}: 3") for what in ("nodes", "ops", "Relu", "Exp", "Neg")] == [
        "r.yaml:3:3",
        "r.yaml:4:3",
        "r.yaml:5:5",
        "r.yaml:6:5",
        "",
    ]
    text = "steps:\n  - pass: drop-dropout\n    expect: {sites: '>= 1', signature: unchanged}\n"
    step: Any = recipe.parse(text, "r.yaml").steps[0]
    assert step.expect.where("sites: 0") == "r.yaml:3:14" and step.expect.signature == "unchanged"


@pytest.mark.parametrize(
    "place",
    ["expect: {predicates: {no-such: true}}", "steps: [{pass: drop-dropout, when: {predicates: {no-such: false}}}]"],
)
def test_a_predicate_that_does_not_exist(place: str) -> None:
    text = place if place.startswith("steps") else STEPS + place
    (found,) = wrong(text + "\n")
    line, column, message = found.split(":", 2)
    assert message.startswith(" no predicate 'no-such'")
    assert text.splitlines()[int(line) - 1][int(column) - 1 :].startswith("no-such")


def test_a_predicate_has_a_name() -> None:
    assert wrong(f"{STEPS}expect: {{predicates: {{5: true}}}}\n") == ["2:23: a key is text, not 5; quote it"]


def test_a_target_is_a_name_or_a_path(tmp_path: Path) -> None:
    shipped = files("surgery.model.targets") / "profiles" / "coreml.yaml"
    (tmp_path / "own.yaml").write_text(shipped.read_text())
    assert target_of(tmp_path, "ort-cpu") == "ort-cpu"
    with pytest.raises(ValueError, match="ort-cpuu"):
        target_of(tmp_path, "ort-cpuu")
    with pytest.raises(ValueError, match=r"none\.yaml"):
        target_of(tmp_path, "none.yaml")
    assert target_of(tmp_path, "own.yaml") == str(tmp_path / "own.yaml")
