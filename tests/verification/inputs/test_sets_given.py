"""Sets of inputs that are given: what is read of them, what is said of one that does not fit, which are left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surgery.base.errors import RecipeError, UsageError
from surgery.model.graph import text
from surgery.verification.inputs.given import Given, GivenBinding, _names, without_given_sets
from surgery.verification.inputs.spec import DataSpec, InputsSpec, Place, TensorSpec

MODEL = text.parse("g (float[N, 2] x) => (float[N, 2] y) { y = Neg(x) }").SerializeToString()


def _file(path: Path, rows: int = 1, **more: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    np.savez(path, x=np.zeros((rows, 2), np.float32), **more)
    return path


def _given(*data: DataSpec, **how: Any) -> Given:
    return Given(MODEL, InputsSpec(data=data, **how))


def test_sets_have_dims_names_and_outputs(tmp_path: Path) -> None:
    place = Place("r.yaml", 1, 2)
    _file(tmp_path / "one" / "a.npz", 3, y=np.ones((3, 2), np.float32))
    _file(tmp_path / "two" / "a.npz", 4)
    _file(tmp_path / "two" / "b.npz", 5)
    specs = DataSpec(tmp_path / "one" / "a.npz", found=True), DataSpec(tmp_path / "two", place=place)
    first, second, third = _given(*specs).sets
    assert [one.character for one in (first, second, third)] == ["one/a.npz", "two/a.npz", "b.npz"]
    assert [one.dims for one in (first, second, third)] == [{"N": 3}, {"N": 4}, {"N": 5}]
    assert [*first.feed] == ["x"] and [*first.expected] == ["y"] and not second.expected
    assert (first.found, first.place, second.found, second.place) == (True, None, False, place)
    assert third.path == tmp_path / "two" / "b.npz"
    again = _given(*specs).as_specs()
    assert [sorted(one.arrays or ()) for one in again] == [["x", "y"], ["x"], ["x"]]
    assert [(one.found, one.place) for one in again] == [(True, None), (False, place), (False, place)]


def test_a_set_that_does_not_fit_is_an_error_about_its_file(tmp_path: Path) -> None:
    wrong = tmp_path / "sets" / "wrong.npz"
    wrong.parent.mkdir()
    np.savez(wrong, x=np.zeros((1, 3), np.float32))
    _file(tmp_path / "sets" / "right.npz")
    for spec, subject in (
        # A file is named by its path, one of a folder likewise, and arrays by their name.
        (DataSpec(wrong), str(wrong)),
        (DataSpec(wrong.parent), str(wrong)),
        (DataSpec(Path("these"), arrays={"x": np.zeros((1, 3), np.float32)}), "these"),
    ):
        with pytest.raises(UsageError) as raised:
            _given(spec)
        assert raised.value.where == subject
    with pytest.raises(RecipeError) as of_recipe:
        _given(DataSpec(wrong.parent, place=Place("r.yaml", 3, 4)))
    assert f"{wrong}: " in str(of_recipe.value) and "r.yaml" in str(of_recipe.value)
    # One that was found is left out, with the reason, and the next ones of its folder with it.
    given = _given(DataSpec(wrong, found=True), DataSpec(tmp_path / "sets" / "right.npz", found=True))
    ((binding, reason),) = given.left_out
    assert binding.character == "wrong.npz" and "x" in reason and [one.character for one in given.sets] == ["right.npz"]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "none.npz"
    with pytest.raises(UsageError):
        _given(DataSpec(missing))
    given = _given(DataSpec(missing, found=True))
    assert not given.sets and [binding.character for binding, _ in given.left_out] == ["none.npz"]


def test_a_rejected_set_is_an_error_unless_it_was_found(tmp_path: Path) -> None:
    path = _file(tmp_path / "a.npz")
    for found in (False, True):
        given = _given(DataSpec(path, found=found))
        (binding,) = given.sets
        given.accept(binding, None)
        assert given.accepted == [binding] and not given.left_out
        if found:
            given.accept(binding, "no good")
            assert given.left_out == [(binding, "no good")] and given.accepted == [binding]
        else:
            with pytest.raises(UsageError, match="the original rejects these inputs: no good"):
                given.accept(binding, "no good")


def test_only_given_sets_need_one_unless_the_inputs_are_covered(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no input set is given"):
        _given(only_given=True)
    assert _given(only_given=True, tensors={"x": TensorSpec()}).sets == []
    assert len(_given(DataSpec(_file(tmp_path / "a.npz")), only_given=True).sets) == 1
    assert _given().sets == []


def test_paths_are_named_by_their_last_part_where_that_is_enough() -> None:
    paths = [Path("a/x"), Path("b/x"), Path("b/y")]
    assert _names(paths) == {paths[0]: "a/x", paths[1]: "b/x", paths[2]: "y"}


def test_sets_do_not_fit_a_model_without_defaults() -> None:
    inputs = InputsSpec(data=(DataSpec(Path("a")),), dims={"N": [1]})
    assert without_given_sets(inputs) == InputsSpec(dims={"N": [1]})
    assert without_given_sets(InputsSpec(only_given=True)) is None
    assert GivenBinding({"N": 1}).outcome is None
