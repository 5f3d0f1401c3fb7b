"""What the sources of a batch name, and where results go."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.batches import write

from surgery.base.errors import UsageError
from surgery.engine.batching import folders
from surgery.engine.batching.model_selection import ModelSelection, entries


def names(*sources: object, output: Path, **choice: tuple[str, ...]) -> list[str]:
    found = entries([str(source) for source in sources], ModelSelection("default", output, **choice))
    return [entry.name for entry in found if not entry.skip]


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    return write(tmp_path / "zoo", "a/model.onnx", "b/model.onnx", "b/deep/other.onnx")


def test_a_folder_is_searched_recursively(zoo: Path, tmp_path: Path) -> None:
    (zoo / "notes.md").write_text("no model")
    found = entries([str(zoo)], ModelSelection("default", tmp_path / "out"))
    assert [entry.name for entry in found] == ["a/model.onnx", "b/deep/other.onnx", "b/model.onnx"]
    assert [entry.model for entry in found] == [str(zoo / entry.name) for entry in found]
    assert {entry.recipe for entry in found} == {"default"}


def test_files_have_the_paths_below_the_folder_that_they_share(zoo: Path, tmp_path: Path) -> None:
    both = zoo / "a/model.onnx", zoo / "b/model.onnx"
    assert names(*both, output=tmp_path) == ["a/model.onnx", "b/model.onnx"]
    assert names(both[0], output=tmp_path) == ["model.onnx"]


def test_a_glob_has_the_paths_below_its_part_without_wildcards(zoo: Path, tmp_path: Path) -> None:
    assert names(zoo / "*/model.onnx", output=tmp_path) == ["a/model.onnx", "b/model.onnx"]
    assert names(zoo / "b/**/*.onnx", output=tmp_path) == ["deep/other.onnx", "model.onnx"]
    assert names(f"{zoo}/[b]", output=tmp_path) == ["b/deep/other.onnx", "b/model.onnx"]


def test_an_existing_file_with_wildcards_in_its_name_is_not_a_glob(tmp_path: Path) -> None:
    write(tmp_path, "a[1].onnx")
    assert names(tmp_path / "a[1].onnx", output=tmp_path / "out") == ["a[1].onnx"]


def test_two_stars_in_a_glob_match_any_folders(zoo: Path, tmp_path: Path) -> None:
    all_models = ["a/model.onnx", "b/deep/other.onnx", "b/model.onnx"]
    assert names(zoo / "**/*.onnx", output=tmp_path) == all_models
    assert names(zoo / "**", output=tmp_path) == all_models
    assert names(zoo / "**/deep", output=tmp_path) == ["b/deep/other.onnx"]
    assert names(zoo / "*/**/[!o]*.onnx", output=tmp_path) == ["a/model.onnx", "b/model.onnx"]
    (zoo / "b/around").symlink_to(zoo)
    assert names(zoo / "**/model.onnx", output=tmp_path) == ["a/model.onnx", "b/model.onnx"]


@pytest.fixture
def denied(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that may not be read or searched, even if root runs the tests."""
    folder, scandir, lstat, stat = zoo / "b", os.scandir, os.lstat, os.stat

    def denying(real: Callable[..., Any], path: Any, is_denied: bool, **more: Any) -> Any:
        if is_denied:
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        return real(path, **more)

    def is_below(path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and folder in Path(path).parents

    monkeypatch.setattr(os, "scandir", lambda path=".": denying(scandir, path, Path(path) == folder))
    monkeypatch.setattr(os, "lstat", lambda path, **more: denying(lstat, path, is_below(path), **more))
    monkeypatch.setattr(os, "stat", lambda path, **more: denying(stat, path, is_below(path), **more))
    return folder


@pytest.mark.parametrize(
    ("source", "place", "excluded"),
    [
        ("", "b", "b/*"),
        ("**/*.onnx", "b", "b/*"),
        ("*/*.onnx", "b", "b/*"),
        ("*/model.onnx", "b/model.onnx", "b/model.onnx"),
        ("*", "b", "b/*"),
    ],
)
def test_what_cannot_be_read_is_named(denied: Path, tmp_path: Path, source: str, place: str, excluded: str) -> None:
    zoo = denied.parent
    with pytest.raises(UsageError) as error:
        names(zoo / source, output=tmp_path / "out")
    assert str(error.value) == (
        f"{zoo / place}: cannot be read: Permission denied; "
        f"change its permissions, or leave it out with --exclude '{excluded}'"
    )
    assert names(zoo / source, output=tmp_path / "out", exclude=(excluded,)) == ["a/model.onnx"]
    assert names(zoo / source, output=denied) == ["a/model.onnx"]


def test_single_files_that_cannot_be_read_are_named(denied: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"{denied}/model.onnx\n")
    for source, problem in {
        denied: f"{denied}: cannot be read: Permission denied; change its permissions",
        denied / "model.onnx": f"{denied}/model.onnx: cannot be read: Permission denied",
        tmp_path / "list.txt": f"{tmp_path}/list.txt:1: '{denied}/model.onnx': cannot be read: Permission denied",
    }.items():
        with pytest.raises(UsageError) as error:
            names(source, output=tmp_path / "out")
        assert str(error.value) == problem


def test_include_and_exclude_select_models(zoo: Path, tmp_path: Path) -> None:
    assert names(zoo, output=tmp_path, include=("*/model.onnx",), exclude=("a/*",)) == ["b/model.onnx"]
    with pytest.raises(UsageError, match=r"no \.onnx file after --include and --exclude"):
        names(zoo, output=tmp_path, include=("*.pb",))


def test_results_are_not_sources(zoo: Path) -> None:
    write(zoo / "out", "a/model.onnx")
    assert names(zoo, output=zoo / "out") == ["a/model.onnx", "b/deep/other.onnx", "b/model.onnx"]


def test_an_output_folder_around_the_sources(zoo: Path) -> None:
    assert names(zoo, output=zoo.parent) == ["a/model.onnx", "b/deep/other.onnx", "b/model.onnx"]
    with pytest.raises(UsageError) as error:
        names(zoo, output=zoo)
    assert str(error.value) == (
        f"the result of '{zoo}/a/model.onnx' would be written over a model; name another folder with --out"
    )


def test_a_model_that_is_named_twice_is_skipped_once(zoo: Path, tmp_path: Path) -> None:
    (zoo / "c.onnx").symlink_to(zoo / "a/model.onnx")
    found = entries([str(zoo), str(zoo)], ModelSelection("default", tmp_path / "out"))
    assert [(entry.name, entry.skip) for entry in found] == [
        ("a/model.onnx", ""),
        ("b/deep/other.onnx", ""),
        ("b/model.onnx", ""),
        ("c.onnx", "the same file as 'a/model.onnx'"),
    ]


def test_two_models_with_one_output_are_refused(zoo: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        names(zoo / "a", zoo / "b", output=tmp_path)
    assert str(error.value) == (
        f"'{zoo}/a/model.onnx' and '{zoo}/b/model.onnx' would both be written to 'model.onnx'; "
        "name their common folder, or name the outputs in a manifest"
    )


def test_a_file_name_that_is_not_utf8_is_named(zoo: Path, tmp_path: Path) -> None:
    (zoo / os.fsdecode(b"x\xff.onnx")).symlink_to(zoo / "a/model.onnx")
    with pytest.raises(UsageError) as error:
        names(zoo, output=tmp_path)
    assert str(error.value) == (
        f"the name '{zoo}/x\\udcff.onnx' is not UTF-8; rename the file, or leave it out with --exclude"
    )
    assert len(names(zoo, output=tmp_path / "out", exclude=("x?.onnx",))) == 3


def test_a_source_without_models_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source, what in {
        "nothing.onnx": "no such file or folder",
        "empty": "there is no .onnx file",
        "x*": "no .onnx",
    }.items():
        with pytest.raises(UsageError, match=what):
            names(tmp_path / source, output=tmp_path)


@pytest.mark.parametrize("look", [folders._exists, folders._is_file, folders._names])
def test_what_cannot_be_read_is_reported_and_what_is_not_there_is_not(look: Callable[..., Any], tmp_path: Path) -> None:
    reported: list[OSError] = []
    assert not look(tmp_path / "nothing", reported.append) and not reported
    assert not look(tmp_path / ("long" * 100), reported.append)
    assert [error.errno for error in reported] == [errno.ENAMETOOLONG]
    (tmp_path / "a.onnx").write_bytes(b"")
    place = tmp_path if look is folders._names else tmp_path / "a.onnx"
    assert look(place, reported.append) and len(reported) == 1
