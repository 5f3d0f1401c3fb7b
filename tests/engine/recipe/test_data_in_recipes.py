"""Files, functions and images under `data`: what a recipe may write, and what it means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surgery.engine.recipe import data_files
from surgery.engine.recipe.draft import Draft, TakesError
from surgery.engine.yaml.yaml_tree import compose


def node(text: str) -> Any:
    return compose(text).root


DRAFT = Draft("r.yaml", Path("/no/such/folder"))


@pytest.mark.parametrize(
    ("text", "scale"),
    [("1/255", 1 / 255), ("0.5", 0.5), ("2", 2.0), ("'3/4'", 0.75), ("1/2", 0.5), ("-1/4", -0.25), (" 1 / 8 ", 0.125)],
)
def test_a_scale_is_a_number_or_a_fraction(text: str, scale: float) -> None:
    assert data_files._scale(node(text), DRAFT) == scale


@pytest.mark.parametrize("text", ["many", "1/0", "1/2/3", "true", ".inf", "1/", "[1]", "~"])
def test_what_is_no_scale(text: str) -> None:
    with pytest.raises(TakesError, match=r"a number such as 0\.0039, or 1/255"):
        data_files._scale(node(text), DRAFT)


@pytest.mark.parametrize(("text", "values"), [("0.5", (0.5,)), ("[0.5, 1, 2]", (0.5, 1.0, 2.0)), ("3", (3.0,))])
def test_a_mean_has_one_number_or_one_per_channel(text: str, values: tuple[float, ...]) -> None:
    assert data_files._channels(node(text), DRAFT) == values


@pytest.mark.parametrize("text", ["many", "[]", "[1, many]", "true", "[1, .nan]", "~", "[true]"])
def test_what_is_no_mean(text: str) -> None:
    with pytest.raises(TakesError, match="a number, or a list with one for each channel"):
        data_files._channels(node(text), DRAFT)


@pytest.mark.parametrize(("text", "size"), [("224", (224, 224)), ("[224, 320]", (224, 320)), ("1", (1, 1))])
def test_a_size_is_a_number_or_a_pair(text: str, size: tuple[int, int]) -> None:
    assert data_files._size(node(text), DRAFT) == size


@pytest.mark.parametrize("text", ["0", "-1", "[224]", "[1, 2, 3]", "[1, 0]", "1.5", "true", "big", "[1, true]"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(TakesError, match="a whole number, or height and width"):
        data_files._size(node(text), DRAFT)


@pytest.mark.parametrize("text", ["batches", "data.py", "data.py:", "data.txt:batches", "data.py:1st", "3"])
def test_what_is_no_function(text: str) -> None:
    with pytest.raises(TakesError, match="a function"):
        data_files.function_of(node(text), DRAFT, "a function")


def test_files_have_a_place_and_must_exist(tmp_path: Path) -> None:
    draft = Draft("r.yaml", tmp_path)
    for name in ("a.npz", "b.txt"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "sets").mkdir()
    found = data_files._data(node("a.npz"), draft)
    assert found.path == tmp_path / "a.npz" and not found.function
    assert data_files._data(node("sets"), draft).path == tmp_path / "sets"
    with pytest.raises(TakesError):
        data_files._data(node("b.txt"), draft)
    with pytest.raises(ValueError, match="no file or folder 'none' in the recipe's folder"):
        data_files._data(node("none"), draft)
    assert data_files._folder(node("sets"), draft) == tmp_path / "sets"
    place = data_files.place_of(draft, node("\n  a"))
    assert (place.path, place.line, place.column) == ("r.yaml", 2, 3)
    (tmp_path / "data.py").write_text("")
    function = data_files._data(node("data.py:batches"), draft)
    assert (function.path, function.function) == (tmp_path / "data.py", "batches") and draft.runs_code
