"""Which parts of a model or of a statement differ, in words; and the labels of the files of a recipe."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from surgery.base.errors import UsageError
from surgery.engine.provenance import checking, recipe_closure
from surgery.engine.provenance.checking import Checked
from surgery.engine.provenance.model_digests import ALGORITHM
from surgery.engine.provenance.recipe_closure import closure_of, paths_in, settings_of
from surgery.engine.provenance.statement import BUILD_TYPE, STEPS
from surgery.engine.recipe import parse
from surgery.engine.registry import discovery


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("abc", "abc", []),
        ("abc", "axc", ["x was changed"]),
        ("abcd", "axyd", ["x was changed", "y was changed"]),
        ("abcd", "axcy", ["x was changed", "y was changed"]),
        ("abc", "abxc", ["x was added"]),
        ("abc", "xabc", ["x was added"]),
        ("abc", "abcx", ["x was added"]),
        ("abc", "ac", ["after a: a part is gone"]),
        ("abcd", "ad", ["after a: 2 parts are gone"]),
        ("abc", "bc", ["at the beginning: a part is gone"]),
        ("abc", "ab", ["after b: a part is gone"]),
        ("ab", "", ["at the beginning: 2 parts are gone"]),
        ("", "ab", ["a was added", "b was added"]),
        ("abcde", "axe", ["x was changed", "after x: 2 parts are gone"]),
        ("abcd", "axd", ["x was changed", "after x: a part is gone"]),
        ("abcde", "axcyze", ["x was changed", "y was changed", "z was changed"]),
        ("abcbd", "abd", ["after b: 2 parts are gone"]),
    ],
)
def test_parts_that_differ(old: str, new: str, found: list[str]) -> None:
    def words(name: str, problem: str) -> str:
        return f"{name}{': ' if 'gone' in problem else ' '}{problem.removeprefix('it ')}"

    assert [words(*one) for one in checking._differing([*old], [*new], [*new])] == found


def test_very_many_parts_are_compared_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "_MOST", 3)
    assert [name for name, _ in checking._differing([*"abcd"], [*"axd"], [*"axd"])] == ["x", "after x"]
    found = [name for name, _ in checking._differing([*"abcde"], [*"xyz"], [*"xyz"])]
    assert found == ["x", "y", "z"]
    # Four parts against three: without the alignment, all that stand at another place are changed.
    assert [*checking._differing([*"abcde"], [*"bcdx"], [*"bcdx"])] == [(name, "it was changed") for name in "bcdx"]


@dataclass
class Identity:
    tensors: dict[str, str] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("digests", "tensors", "found"),
    [
        ({"m#a": {"sha256": "1"}}, {"a": "1"}, []),
        ({"m#a": {"sha256": "1"}}, {"a": "2"}, [("a", "it was changed")]),
        ({"m#a": {"sha256": "1"}, "m#b": {"sha256": "1"}}, {"a": "1"}, [("b", "it is gone")]),
        ({"m#a": {"sha256": "1"}}, {"a": "1", "c": "1"}, [("c", "it was added")]),
        ({"other#a": {"sha256": "1"}}, {"a": "2"}, []),  # the shorter statement lists none
    ],
)
def test_tensors_that_differ(digests: dict[str, Any], tensors: dict[str, str], found: list[Any]) -> None:
    assert [*checking._tensors("m#", digests, Identity(tensors))] == found  # type: ignore[arg-type]


def test_the_digest_of_a_model_is_that_of_its_content() -> None:
    described = [{"name": "m", "digest": {"sha256": "file"}}, {"name": "n"}, {"name": "m", "digest": {ALGORITHM: "1"}}]
    assert checking._of_content(described, "m") == "1"
    assert checking._of_content(described, "n") is None
    assert checking._of_content(described[:2], "m") is None


def statement(**more: Any) -> dict[str, Any]:
    definition = {"buildType": BUILD_TYPE, "externalParameters": {}, "resolvedDependencies": [{"uri": "u"}]}
    subject = [{"name": "m", "digest": {"sha256": "1"}}]
    predicate = {"buildDefinition": definition, "runDetails": {"builder": {}}, STEPS: [{}]}
    return {"subject": subject, "predicate": predicate, **more}


WRONG_STATEMENTS: list[tuple[list[Any], Any]] = [
    (["subject"], {}),
    (["subject", 0, "name"], 1),
    (["subject", 0, "digest"], []),
    (["subject", 0, "digest", "sha256"], 1),
    (["predicate", STEPS], {}),
    (["predicate", STEPS, 0], "step"),
    (["predicate", "runDetails", "builder"], "b"),
    (["predicate", "buildDefinition", "externalParameters"], []),
    (["predicate", "buildDefinition", "resolvedDependencies"], {}),
    (["predicate", "buildDefinition", "resolvedDependencies", 0, "uri"], 1),
]


@pytest.mark.parametrize(("place", "value"), WRONG_STATEMENTS)
def test_each_part_of_a_statement_has_its_type(place: list[Any], value: Any) -> None:
    given = statement()
    assert checking._stated(given, "s.json") == given
    inner: Any = given
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(UsageError, match=r"^s\.json: this is not a provenance statement by surgery$"):
        checking._stated(given, "s.json")


def test_a_statement_of_another_tool() -> None:
    given = statement()
    given["predicate"]["buildDefinition"]["buildType"] = "other"
    with pytest.raises(UsageError, match="this is a statement of another tool"):
        checking._stated(given, "s.json")


def test_a_statement_in_a_model_agrees_with_a_longer_one() -> None:
    result = Checked({})
    checking._agreement({"a": 1, "b": {"c": [2]}, "d": {}, "e": []}, {"a": 1, "b": {"c": [2, 3]}, "x": 4}, result)
    assert result.findings == []
    checking._agreement({"a": 1, "b": {"c": [3]}}, {"a": 2, "b": {"c": [2]}}, result)
    assert [str(one) for one in result.findings] == [
        "statement, field 'a': it differs in the model",
        "statement, field 'b.c[0]': it differs in the model",
    ]
    assert result.to_json()["ok"] is False and Checked({}).to_json()["ok"] is True


def test_files_of_a_recipe_have_labels_that_do_not_depend_on_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "recipes", tmp_path / "elsewhere"
    for path in (folder / "sub", elsewhere / "sub"):
        path.mkdir(parents=True)
    for path in (folder / "sub/p.py", elsewhere / "p.py", elsewhere / "sub/p.py"):
        path.write_text(f"# {path}\n")
    inner = folder / "inner.yaml"
    inner.write_text("steps: [drop-identity]\n")
    outer = folder / "r.yaml"
    plugins = f"[sub/p.py, {elsewhere}/p.py, {elsewhere}/sub/p.py]"
    outer.write_text(f"plugins: {plugins}\ntarget: openvino\nsteps: [{{use: inner.yaml}}, {{use: inner.yaml}}]\n")
    monkeypatch.setattr(discovery._TrialImport, "fate", lambda self, name: "")  # which would take three processes
    found = closure_of(parse(outer.read_text(), outer, trust=True))
    labels = ["inner.yaml", "p.py", "p.py (2)", "r.yaml", "sub/p.py", "target:openvino"]
    assert list(found.files) == labels and len({*found.files.values()}) == len(labels)
    assert list(closure_of(parse("steps: [drop-identity]")).files) == [recipe_closure.IN_MEMORY]


def test_only_settings_that_are_no_defaults_are_listed() -> None:
    assert settings_of(parse("steps: [drop-identity]")) == {}
    text = "target: openvino\nverify: {rtol: 0.01}\ninputs: {dims: {N: 2}}\nsteps: [drop-identity]"
    found = settings_of(parse(text))
    assert found == {"inputs": {"dims": {"N": [2]}}, "verify": {"rtol": "0.01"}, "target": "openvino"}


def test_settings_are_compared_entry_by_entry() -> None:
    given, usual = {"a": 1, "b": {"c": 2, "d": 3}, "e": [1]}, {"a": 1, "b": {"c": 2, "d": 4}, "f": 5}
    assert recipe_closure._other(given, usual) == {"b": {"d": 3}, "e": [1]}
    assert recipe_closure._other({"a": {"b": 1}}, {}) == {"a": {"b": 1}}


@dataclass(frozen=True)
class Named:
    path: Path
    source: Path = field(default=Path("s"), compare=False)


def test_paths_are_found_in_any_value_but_not_where_it_came_from() -> None:
    value = {"a": Path("1"), "b": [Path("2"), {"c": (Path("3"), "no")}], "d": Named(Path("4")), "e": None}
    assert [str(path) for path in paths_in(value)] == ["1", "2", "3", "4"]
