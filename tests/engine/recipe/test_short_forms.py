"""Short forms of steps: which kind of step a mapping is, and what is said of one that is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surgery.engine.recipe import step_forms
from surgery.engine.recipe.draft import Draft, NotedError
from surgery.engine.yaml.yaml_nodes import Table, YamlNode, plain
from surgery.engine.yaml.yaml_tree import compose


def node(text: str) -> Any:
    root = compose(text).root
    assert root is not None
    return root


def draft() -> Draft:
    return Draft("r.yaml", Path())


def problems_of(found: Draft) -> list[str]:
    return [f"{one.line}:{one.column} {one.message}" for one in found.problems]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("pass: x", "pass"),
        ("{with: {a: 1}, use: x}", "use"),
        ("repeat: 3", "repeat"),
        ("steps: []", "repeat"),
        ("{pass: x, steps: []}", "pass"),
        ("fold: {}", None),
        ("[a]: b", None),
        # A word for a pass may be misspelled; a name with options is a pass of that name, unless it has other keys.
        ("pas: x", "pass"),
        ("pas: {a: 1}", None),
        ("pas: ~", None),
        ("{pas: {a: 1}, with: {}}", "pass"),
        ("{pas: ~, when: {}}", "pass"),
        ("{usee: x, fold: y}", "use"),
    ],
)
def test_the_kind_of_a_step(text: str, kind: str | None) -> None:
    assert step_forms.kind(node(text)) == kind


@pytest.mark.parametrize(
    ("text", "long", "problems"),
    [
        ("fold", {"pass": "fold"}, []),
        ("fold: ~", {"pass": "fold", "with": {}}, []),
        ("fold: {a: 1}", {"pass": "fold", "with": {"a": 1}}, []),
        ("fold: 3", {"pass": "fold", "with": {}}, ["1:7 'fold' takes a mapping of options, not 3"]),
        ("fold: [a]", {"pass": "fold", "with": {}}, ["1:7 'fold' takes a mapping of options, not a list"]),
        ("{pass: a, use: b, repeat: 2}", {"pass": "a"},
         ["1:11 'use' cannot be combined with 'pass'; a step is one of them"]),
        ("{fold: {a: 1}, when: {nodes: 1}}", {"pass": "fold", "with": {"a": 1}, "when": {"nodes": 1}},
         ["1:16 'when' cannot be combined with 'fold'; write 'pass: fold' and put its options under 'with'"]),
        ("{when: {nodes: 1}, fold: {a: 1}}", {"pass": "fold", "with": {"a": 1}, "when": {"nodes": 1}},
         ["1:2 'when' cannot be combined with 'fold'; write 'pass: fold' and put its options under 'with'"]),
        ("fold:\na: 1\nb: 2", {"pass": "fold", "with": {"a": 1, "b": 2}},
         ["2:1 'a' is at the same level as 'fold', not in it; indent it further",
          "3:1 'b' is at the same level as 'fold', not in it; indent it further"]),
        ("{fold: {a: 1}, other: {}}", {"pass": "fold", "with": {"a": 1}},
         ["1:16 'other' cannot be combined with 'fold'; begin each step with '- '"]),
        ("{fold: {a: 1}, fold: {b: 1}}", {"pass": "fold", "with": {"a": 1}}, []),
        ("{fold: {a: 1}, 3: {b: 1}}", {"pass": "fold", "with": {"a": 1}},
         ["1:16 a key is text, not 3; quote it"]),
    ],
)  # fmt: skip
def test_a_step_in_its_long_form(text: str, long: dict[str, Any], problems: list[str]) -> None:
    found = draft()
    assert plain(step_forms.long(node(text), found)) == long
    assert problems_of(found) == problems


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("~", "an empty step; name a pass or remove the '-'"),
        ("{}", "an empty step; name a pass or remove the '-'"),
        ("' '", "a step is the name of a pass or a mapping, not ' '"),
        ("3", "a step is the name of a pass or a mapping, not 3"),
        ("[a]", "a step is the name of a pass or a mapping, not a list"),
        ("{when: {}, with: {}}", "this step has no 'pass', 'use' or 'repeat'"),
    ],
)
def test_what_is_no_step(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="step") as error:
        step_forms.long(node(text), draft())
    assert str(error.value) == message


def test_a_step_that_is_cut_off_needs_no_message() -> None:
    cut = node("{")
    assert cut.open
    with pytest.raises(NotedError):
        step_forms.long(cut, draft())
    with pytest.raises(NotedError):
        step_forms.long(node("3: {a: 1}"), draft())


@pytest.mark.parametrize(
    ("text", "count", "problems"),
    [
        ("[a, b]", 2, []),
        ("a", 1, ["1:1 'steps' takes a list, not 'a'; begin each step with '- '"]),
        ("a: {b: 1}", 1, ["1:1 'steps' takes a list, not a mapping; begin each step with '- '"]),
        ("{a: 1, b: 2}", 0, ["1:1 'steps' takes a list, not a mapping; begin each step with '- '"]),
        ("[", 0, []),
    ],
)
def test_the_steps_of_a_list(text: str, count: int, problems: list[str]) -> None:
    found = draft()
    assert len(step_forms.listed(node(text), found)) == count
    assert problems_of(found) == problems


def test_a_list_without_steps() -> None:
    with pytest.raises(ValueError, match="lists no step"):
        step_forms.listed(node("[]"), draft())


def test_options_and_names() -> None:
    found = draft()
    values, keys = step_forms.options(node("{a: [1, 2], b: {c: ~}, 1: x, a: 3}"), found)
    assert values == {"a": [1, 2], "b": {"c": None}}
    assert {name: key.column for name, key in keys.items()} == {"a": 2, "b": 13}
    assert problems_of(found) == ["1:24 a key is text, not 1; quote it"]
    assert step_forms.options(node("a"), found) == ({}, {})
    assert step_forms.named(None) == []
    one: YamlNode = node("a")
    assert step_forms.named(one) == [one]
    assert [plain(item) for item in step_forms.named(node("[a, b]"))] == ["a", "b"]


def test_selectors_are_checked() -> None:
    assert step_forms.selectors(node("[a, {op: Conv}]")) == ("a", {"op": "Conv"})
    assert step_forms.selectors(node("a")) == ("a",)
    with pytest.raises(ValueError, match=r"^'except': "):
        step_forms.selectors(node("{opp: Conv}"))


def test_a_step_that_a_recipe_does_not_have() -> None:
    recipe: Any = type("R", (), {"name": "tidy"})
    found = draft()
    known = {"drop-dropout": None, "fold-constants": None}
    assert step_forms.check_step(node("drop-dropout"), known, recipe, found)
    assert not step_forms.check_step(node("3"), known, recipe, found)
    assert problems_of(found) == []
    assert not step_forms.check_step(node("drop-dropuot"), known, recipe, found)
    assert not step_forms.check_step(node("zzz"), known, recipe, found)
    assert problems_of(found) == [
        "1:1 recipe 'tidy' has no step 'drop-dropuot'; did you mean 'drop-dropout'?",
        "1:1 recipe 'tidy' has no step 'zzz'",
    ]
    assert isinstance(node("a: 1"), Table)
