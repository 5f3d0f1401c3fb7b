"""YAML that people read: on one line if it fits, texts of several lines as blocks, nothing that is empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surgery.engine.recipe.count_condition import CountCondition
from surgery.engine.recipe.writer import Remarked, bare, flow, written
from surgery.engine.yaml.source import documents


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain words", "plain words"),
        ("a: b", '"a: b"'),
        ("", '""'),
        ("no, commas", '"no, commas"'),
        ("1.5", '"1.5"'),
        ("true", '"true"'),
        ("null", '"null"'),
        ("line\nbreak", '"line\\nbreak"'),
        ("bell\x07 é", '"bell\\u0007 é"'),
        ("\u200b", '"\\U0000200b"'),
        (True, "true"),
        (None, "null"),
        (3, "3"),
        (0.25, "0.25"),
        (float("inf"), ".inf"),
        (float("-inf"), "-.inf"),
        (float("nan"), ".nan"),
        ([1, "a b", {"k": [2]}], "[1, a b, {k: [2]}]"),
        ((), "[]"),
        (Remarked(3, "of four"), "3"),
        (Path("/a/b"), "/a/b"),
    ],
)
def test_a_value_on_one_line(value: Any, text: str) -> None:
    assert flow(value) == text


def test_what_is_empty_is_left_out() -> None:
    assert written({"a": None, "b": "", "c": [], "d": {"e": (), "f": {}}, "g": 0, "h": False}) == "g: 0\nh: false\n"


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({"a": {"b": 1}, "c": [1, 2]}, ["a: {b: 1}", "c: [1, 2]"]),
        ({"steps": ["x"]}, ["steps:", "  - x"]),
        (
            {"steps": [{"pass": "x", "on_failure": "keep"}, "y"]},
            ["steps:", "  - pass: x", "    on_failure: keep", "  - y"],
        ),
        ({"a": {"steps": ["x"]}}, ["a:", "  steps:", "    - x"]),
        ({"a": Remarked(1, "one"), "b": [Remarked("x", "two")]}, ["a:", "  1  # one", "b:", "  - x  # two"]),
        ({"a": "x\ny\n"}, ["a: |", "  x", "  y"]),
        ({"a": "x\n\ny"}, ["a: |-", "  x", "", "  y"]),
        ({"a": ["x\ny\n"]}, ["a:", "  - |", "    x", "    y"]),
        ({"a": {"b": {"c": "x\ny"}}}, ["a:", "  b:", "    c: |-", "      x", "      y"]),
        ({"a": "x \ny"}, ['a: "x \\ny"']),
        ({"a": " x\ny"}, ['a: " x\\ny"']),
        ({"a": "\nx"}, ['a: "\\nx"']),
        ({"a": "x\t\ny"}, ['a: "x\\t\\ny"']),
        ({"a": "x\n\n"}, ["a: |", "  x", ""]),
        ({"a": ["b" * 46, "c" * 46]}, [f"a: [{'b' * 46}, {'c' * 46}]"]),
        ({"a": ["b" * 47, "c" * 47]}, ["a:", f"  - {'b' * 47}", f"  - {'c' * 47}"]),
        ({"a": "b" * 200}, [f"a: {'b' * 200}"]),
        ({"a b": 1, "c:": 2}, ["a b: 1", '"c:": 2']),
    ],
)
def test_lines_of_a_mapping(values: dict[str, Any], lines: list[str]) -> None:
    assert written(values).split("\n") == [*lines, ""]
    assert written(values, "first\nsecond").split("\n")[:3] == ["# first", "# second", lines[0]]
    (document,) = documents(written(values))
    assert not document.mistakes


def test_values_as_json_has_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"a": (Path("b"), Remarked([1], "one")), "c": None}
    assert bare(given) == {"a": [str(tmp_path / "b"), [1]], "c": None}


@pytest.mark.parametrize(("condition", "value"), [("== 3", 3), (">= 3", ">= 3"), ("< 4", "< 4")])
def test_a_condition_on_a_count_is_a_number_if_it_is_equality(condition: str, value: Any) -> None:
    assert bare(CountCondition.parse(condition)) == value
