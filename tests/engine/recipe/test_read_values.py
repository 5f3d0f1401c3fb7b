"""Values of a recipe read one by one, by their types, and the mistakes in them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import Field

from surgery.base.errors import Problem
from surgery.engine.recipe.count_condition import CountCondition
from surgery.engine.recipe.draft import Draft, NotedError, PluginUse, _either, _find
from surgery.engine.recipe.fields import (
    Count,
    Flag,
    Line,
    OneOrMore,
    Section,
    Unsigned,
    Whole,
    Word,
    entries,
    key,
    needed,
    reads,
    takes,
    text,
    value_of,
)
from surgery.engine.yaml.source import documents
from surgery.engine.yaml.yaml_nodes import Scalar, Table, YamlNode

More = Annotated[float, Field(gt=1.5), takes("a number", int, float)]
Most = Annotated[int, Field(le=9), takes("a whole number", int)]
Positive = Annotated[int, Field(ge=1), takes("a whole number", int)]
Name = Annotated[Line, text("a name")]
Text = Annotated[Line, text("a text", lines=True)]
Many = Annotated[tuple[Whole, ...], OneOrMore("{} lists nothing")]
Any_ = Annotated[tuple[Whole, ...], OneOrMore()]
Either = Annotated[Literal["red", "green"], Word]
Both = Annotated[str | bool, takes("a text or a flag", str, bool)]
Mapped = Annotated[dict[str, Whole], entries("a mapping such as {a: 1}")]


def node_of(written: str) -> YamlNode:
    (document,) = documents(written)
    assert document.root is not None
    return document.root


def read(kind: Any, written: str, name: str = "key") -> tuple[Any, list[str]]:
    draft = Draft("r.yaml", Path())
    found = draft.read(kind, node_of(written), name)
    assert draft.reading == ""
    return found, [str(one).removeprefix("r.yaml:") for one in draft.problems]


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        (Whole, "3", 3),
        (Whole, "0", 0),
        (Unsigned, "0", 0),
        (Unsigned, "1.5", 1.5),
        (More, "1.6", 1.6),
        (Most, "9", 9),
        (Positive, "1", 1),
        (Flag, "true", True),
        (Flag, "False", False),
        (Both, "yes", "yes"),
        (Both, "true", True),
        (Name, "a b", "a b"),
        (Name, "'5'", "5"),
        (Name, "|\n  a\n", "a"),
        (Text, "|\n  a\n  b\n", "a\nb"),
        (Many, "[1, 2]", (1, 2)),
        (Many, "1", (1,)),
        (Any_, "[]", ()),
        (Either, "red", "red"),
        (Either, "'green'", "green"),
        (Mapped, "{a: 1, b: 2}", {"a": 1, "b": 2}),
        (Count, "3", CountCondition.parse(3)),
        (Count, "'>= 3'", CountCondition.parse(">= 3")),
    ],
)
def test_values_that_are_read(kind: Any, written: str, value: Any) -> None:
    assert read(kind, written) == (value, [])


@pytest.mark.parametrize(
    ("kind", "written", "message"),
    [
        (Whole, "-1", "'key' is at least 0, not -1"),
        (Whole, "1.5", "'key' takes a whole number, not 1.5"),
        (Whole, "true", "'key' takes a whole number, not true"),
        (Whole, "x", "'key' takes a whole number, not 'x'"),
        (Whole, "'5'", "'key' takes a whole number, not '5'; remove the quotes"),
        (Whole, "''", "'key' takes a whole number, not ''"),
        (Whole, "'x'", "'key' takes a whole number, not 'x'"),
        (Whole, "[1]", "'key' takes a whole number, not a list"),
        (Whole, "{a: 1}", "'key' takes a whole number, not a mapping"),
        (Whole, "~", "'key' takes a whole number, not nothing"),
        (Unsigned, "-0.5", "'key' is never negative: -0.5"),
        (Unsigned, ".inf", "'key' takes a number, not .inf"),
        (Unsigned, ".nan", "'key' takes a number, not .nan"),
        (More, "1.5", "'key' is more than 1.5, not 1.5"),
        (Most, "10", "'key' is at most 9, not 10"),
        (Positive, "0", "'key' is at least 1, not 0"),
        (Flag, "1", "'key' takes true or false, not 1"),
        (Flag, "'true'", "'key' takes true or false, not 'true'; remove the quotes"),
        (Both, "1", "'key' takes a text or a flag, not 1"),
        (Name, "5", "'key' takes a name, not 5"),
        (Name, "' '", "'key' takes a name, not ' '"),
        (Name, "|\n  a\n  b\n", "'key' takes a name on one line, without control characters"),
        (Name, '"a\\tb"', "'key' takes a name on one line, without control characters"),
        (Text, "' '", "'key' takes a text, not ' '"),
        (Many, "[]", "'key' lists nothing"),
        (Many, "[1, x]", "'key' takes a whole number, not 'x'"),
        (Either, "gren", "'key' takes red or green, not 'gren'; did you mean 'green'?"),
        (Either, "blue", "'key' takes red or green, not 'blue'"),
        (Either, "5", "'key' takes red or green, not 5"),
        (Either, "[red]", "'key' takes red or green, not a list"),
        (Mapped, "[1]", "'key' takes a mapping such as {a: 1}, not a list"),
        (Count, "''", "'key' has an empty text here; put the comparison in quotes: '>= 1'"),
        (Count, "1.5", "'key' takes a number or a comparison such as '>= 1', not 1.5"),
        (Count, "true", "'key' takes a number or a comparison such as '>= 1', not true"),
        (Count, "-1", "a count is never negative: -1"),
    ],
)
def test_values_that_are_wrong(kind: Any, written: str, message: str) -> None:
    found, problems = read(kind, written)
    assert found is None and len(problems) == 1 and problems[0].split(": ", 1)[1] == message


def test_a_mistake_has_the_position_and_the_key_of_its_part() -> None:
    assert read(Mapped, "{a: 1, b: x, c: -1}")[1] == [
        "1:11: 'b' takes a whole number, not 'x'",
        "1:17: 'c' is at least 0, not -1",
    ]
    assert read(Mapped, "{a: 1, 5: 2, a: 3}") == ({"a": 1}, ["1:8: a key is text, not 5; quote it"])
    assert read(Mapped, "{? [b] : 2}")[1] == ["1:4: a key is text, not a list"]
    assert read(Many, "- 1\n- x\n")[1] == ["2:3: 'key' takes a whole number, not 'x'"]

    def noted(node: YamlNode, draft: Draft) -> Any:
        raise NotedError("reported elsewhere")

    assert read(Annotated[int, reads(noted)], "1") == (None, [])


def test_where_a_mistake_is() -> None:
    table: Any = node_of("{a: [1, {b: ~, c: 2}], b: ~, b: 3, d: ~}")
    (_, listed), *_ = table.pairs
    assert _find(table, "top", ("a", 1, "c")) == (listed.items[1].pairs[1][1], "c")
    # Null gives way to a value of the same key, and what is not there is passed over.
    assert _find(table, "top", ("b",)) == (table.pairs[2][1], "b")
    assert _find(table, "top", ("d",)) == (table.pairs[3][1], "d")
    assert _find(table, "top", ("e",)) == (table, "top") and _find(table, "top", (0,)) == (table, "top")
    assert _find(listed, "top", ("x", 0)) == (listed.items[0], "top")
    assert [_either([*names]) for names in ("a", "ab", "abc")] == ["a", "a or b", "a, b or c"]


# Sections


class Own(Section):
    wanted = "a mapping such as {size: 1}"
    needs: ClassVar = {"size": "{} needs 'size'"}
    checks_rest = True

    size: Whole = needed("A size.")
    color: Either = key("A color.")
    more: Many = key("More.", alias="rest")

    @classmethod
    def seen(cls, draft: Draft, node: Table, found: dict[str, YamlNode]) -> None:
        draft.plugins.append(PluginUse("", ",".join(found), "", node))

    def made(self, draft: Draft, node: Table, given: dict[str, Any]) -> Any:
        if "size" not in given:
            draft.problem(node, "made without size")
        if given.get("more") == (13,):
            draft.problem(node, "13 is unlucky")
        return given


class Lenient(Own):
    checks_rest = False


@pytest.mark.parametrize(
    ("written", "value", "problems"),
    [
        ("{size: 1}", {"size": 1}, []),
        ("{size: 1, color: red, rest: 2}", {"size": 1, "color": "red", "more": (2,)}, []),
        ("{size: 1, color: ~}", {"size": 1}, []),
        ("{size: 1, size: x}", {"size": 1}, []),
        ("{size: ~, size: 2}", {"size": 2}, []),
        ("[1]", None, ["1:1: 'key' takes a mapping such as {size: 1}, not a list"]),
        ("{color: red}", None, ["1:1: 'key' needs 'size'"]),
        ("{color: red, size: }", None, ["1:14: 'key' needs 'size'"]),
        ("{size: 1, colour: red}", {"size": 1, "color": "red"}, ["1:11: no key 'colour'; did you mean 'color'?"]),
        # The value of a misspelled key is not read if there is another one.
        ("{size: 1, colour: x, color: red}", {"size": 1, "color": "red"}, [
            "1:11: no key 'colour'; did you mean 'color'?",
        ]),
        ("{size: 1, colour: x}", None, [
            "1:11: no key 'colour'; did you mean 'color'?",
            "1:19: 'color' takes red or green, not 'x'",
        ]),
        ("{size: 1, zzz: 2, 5: 3, qqq: 4}", {"size": 1}, [
            "1:11: no key 'zzz'; known here: size, color, rest",
            "1:19: a key is text, not 5; quote it",
            "1:25: no key 'qqq'; known here: size, color, rest",
        ]),
        # What is made without the wrong keys may have more mistakes.
        ("{size: 1, color: x, rest: 13}", None, ["1:1: 13 is unlucky", "1:18: 'color' takes red or green, not 'x'"]),
        ("{size: x, rest: 13}", None, ["1:8: 'size' takes a whole number, not 'x'"]),
    ],
)  # fmt: skip
def test_sections(written: str, value: Any, problems: list[str]) -> None:
    found, mistakes = read(Own, written)
    assert found == value and sorted(mistakes) == sorted(problems)
    found, mistakes = read(Lenient, written)
    assert found == value and sorted(mistakes) == sorted(one for one in problems if "unlucky" not in one)


def test_what_a_section_has_is_seen_even_if_it_is_wrong() -> None:
    draft = Draft("r.yaml", Path())
    assert draft.read(Own, node_of("{size: x, colour: red, rest: ~}"), "key") is None
    assert [one.text for one in draft.plugins] == ["size,color"] and draft.runs_code


# Drafts


def test_drafts_of_a_recipe_and_of_those_that_it_uses() -> None:
    first, second, third = (Draft(name, Path()) for name in ("a", "b", "c"))
    first.nested, second.nested, third.nested = [second, third], [third], [first]
    assert {one.path for one in first.all()} == {"a", "b", "c"} and len(first.all()) == 3
    assert third.all()[0] is third
    assert not first.runs_code
    first.local.append(PluginUse("", "", "", Scalar(1, 1, "", "")))
    assert first.runs_code and not second.runs_code


def test_a_mistake_is_recorded_once() -> None:
    draft = Draft("r.yaml", Path())
    node = Scalar(2, 3, "x", "x")
    for message in ("a", "b", "a", "c\nd"):
        draft.problem(node, message)
    assert draft.problems == [Problem("r.yaml", 2, 3, message) for message in ("a", "b", "c d")]
    assert draft.key(node) == "x" and draft.key(Scalar(1, 1, 5, "5")) is None and value_of(Table(1, 1)) is None
