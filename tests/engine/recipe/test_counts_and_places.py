"""Comparisons of counts, bounds, where a recipe is, and how far a run of it is."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from surgery.base.errors import UsageError
from surgery.engine.pipeline.agenda import Agenda, users
from surgery.engine.recipe import parse, recipe_lookup
from surgery.engine.recipe.count_condition import CountCondition
from surgery.engine.recipe.schema import Share


@pytest.mark.parametrize(
    ("given", "text", "holds"),
    [
        (2, "== 2", [2]),
        ("2", "== 2", [2]),
        (" == 2 ", "== 2", [2]),
        ("!=2", "!= 2", [1, 3]),
        ("< 2", "< 2", [1]),
        ("<= 2", "<= 2", [1, 2]),
        ("> 2", "> 2", [3]),
        (">= 2", ">= 2", [2, 3]),
    ],
)
def test_a_count_is_compared(given: object, text: str, holds: list[int]) -> None:
    found = CountCondition.parse(given)
    assert str(found) == text and [count for count in (1, 2, 3) if found.holds(count)] == holds


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (-1, "a count is never negative: -1"),
        (">= -1", "a count is never negative: '>= -1'"),
        (True, "a comparison is a number, or text such as '>= 1'"),
        (1.5, "a comparison is a number, or text such as '>= 1'"),
        ("many", "'many' is not a comparison such as 0, '>= 1' or '<= 500'"),
        ("1" * 19, f"'{'1' * 19}' is not a comparison such as 0, '>= 1' or '<= 500'"),
        ("=> 1", "'=>' does not compare; did you mean '>= 1'?"),
        ("<=> 1", "'<=>' does not compare; use ==, !=, <, <=, > or >="),
    ],
)
def test_other_values_are_no_comparisons(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        CountCondition.parse(given)


@pytest.mark.parametrize(("op", "holds"), [("<", [1.0]), ("<=", [1.0, 2.0]), (">", [3.0]), (">=", [2.0, 3.0])])
def test_a_bound_is_a_multiple_of_an_earlier_figure(op: str, holds: list[float]) -> None:
    bound = Share(op, 0.5)  # type: ignore[arg-type]
    assert [now for now in (1.0, 2.0, 3.0) if bound.holds(now, 4.0)] == holds and str(bound) == f"{op} 0.5x"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for name in ("tidy", "default"):
        (shelf / f"{name}.yaml").write_text("steps: [drop-identity]\n")
    (tmp_path / "tidy").write_text("")
    (tmp_path / "mine.yaml").write_text("")
    (tmp_path / "sub").mkdir()
    monkeypatch.setattr(recipe_lookup, "folder", lambda: shelf)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("tidy", "shelf/tidy.yaml"),
        ("./tidy", "tidy"),
        ("mine.yaml", "mine.yaml"),
        ("sub/../mine.yaml", "sub/../mine.yaml"),
    ],
)
def test_a_name_comes_before_a_file(places: Path, text: str, found: str) -> None:
    assert recipe_lookup.locate(text, places).resolve() == (places / found).resolve()
    assert recipe_lookup.is_shipped(places / found) is found.startswith("shelf") and recipe_lookup.is_name("tidy")
    assert recipe_lookup.names() == ("default", "tidy") and not recipe_lookup.is_name("mine")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sub", "'sub' is a directory, not a recipe"),
        ("tidi", "no recipe 'tidi'; did you mean 'tidy'?"),
        ("zzzz", "no recipe 'zzzz'; shipped are default, tidy"),
        ("mine.yml", "recipe 'mine.yml' does not exist; did you mean 'mine.yaml'?"),
        ("mine2.yaml", "recipe 'mine2.yaml' does not exist; did you mean 'mine.yaml'?"),
        ("sub/default.yaml", "recipe 'sub/default.yaml' does not exist; did you mean 'default'?"),
        ("sub/defaul.yaml", "recipe 'sub/defaul.yaml' does not exist; check the path"),
        ("none/x.yaml", "recipe 'none/x.yaml' does not exist; there is no folder"),
        ("mine yaml", "no recipe 'mine yaml'; did you mean 'mine.yaml'?"),
    ],
)
def test_a_recipe_that_does_not_exist(places: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        recipe_lookup.locate(text, places)
    assert str(error.value).startswith(message)


def test_a_name_is_suggested_where_no_file_is_similar(places: Path) -> None:
    with pytest.raises(UsageError, match=r"recipe 'defaul\.yaml' does not exist; did you mean 'default'\?"):
        recipe_lookup.locate("defaul.yaml", places / "sub")


def test_a_word_is_a_name_rather_than_a_file(places: Path) -> None:
    (places / "tidi.yml").write_text("")
    for text, near in (("tidi", "tidy"), ("tidi.ym", "tidi.yml")):
        with pytest.raises(UsageError, match=f"no recipe '{text}'; did you mean '{near}'"):
            recipe_lookup.locate(text, places)


def test_what_is_read_is_a_recipe(places: Path) -> None:
    with pytest.raises(UsageError, match=r"m\.onnx' is a model, not a recipe; the recipe comes first"):
        recipe_lookup.read(places / "m.onnx")
    with pytest.raises(UsageError, match=r"recipe '.*none\.yaml' cannot be read: No such file"):
        recipe_lookup.read(places / "none.yaml")
    for data, message in (
        (b' { "format":"surgery-plan"', "is a plan, not a recipe"),
        (b"x" * (recipe_lookup.MAX_BYTES + 1), "is too large"),
    ):
        with pytest.raises(UsageError, match=message):
            recipe_lookup.read_stream(io.BytesIO(data), "'r'")
    assert len(recipe_lookup.read_stream(io.BytesIO(b"x" * recipe_lookup.MAX_BYTES), "'r'")) == recipe_lookup.MAX_BYTES


RECIPE = """steps:
  - drop-identity
  - repeat: 3
    steps:
      - drop-dropout
      - fold-constants
  - use: {recipe: inner, steps: [drop-dead]}
  - drop-identity
"""


def test_the_progress_of_a_run_counts_rounds() -> None:
    agenda = Agenda(parse(RECIPE, "r.yaml"))
    names = [planned.step.name for planned in agenda.steps]
    assert names == ["drop-identity", "drop-dropout", "fold-constants", "drop-dead", "drop-identity"]
    lines = [2, 5, 6, 7, 8]
    assert [planned.key for planned in agenda.steps] == [(name, f"r.yaml:{line}") for name, line in zip(names, lines)]

    def done(name: str, line: int) -> tuple[int, int]:
        agenda.note(name, f"r.yaml:{line}")
        return agenda.done, agenda.total

    assert (agenda.done, agenda.total) == (0, 5)
    assert done("drop-identity", 2) == (1, 5) and done("(end)", 0) == (1, 5)
    assert done("drop-dropout", 5) == (2, 5) and done("fold-constants", 6) == (3, 5)
    # The second round adds its two steps, and a third one that ends early.
    assert done("drop-dropout", 5) == (4, 7) and done("fold-constants", 6) == (5, 7)
    assert done("drop-dropout", 5) == (6, 9) and done("drop-dropout", 5) == (7, 10)
    # A step that is skipped in between has ended, too.
    assert done("drop-identity", 8) == (10, 10) and done("drop-identity", 8) == (10, 10)


def test_each_step_belongs_to_one_of_the_main_recipe() -> None:
    found = users(Agenda(parse(RECIPE, "r.yaml")).steps)
    assert {place.removeprefix("r.yaml:"): user for place, user in found.items()}["2"] == parse(RECIPE, "r.yaml").steps[
        0
    ].where
    used = found["r.yaml:7"]
    assert used == parse(RECIPE, "r.yaml").steps[2].where and len(found) == 5
