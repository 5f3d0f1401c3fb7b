"""Manifests: lists of models with recipes, outputs and inputs of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.batches import recipe, write

from surgery.base.errors import UsageError
from surgery.engine.batching import manifest
from surgery.engine.batching.model_entry import Entry
from surgery.engine.batching.model_selection import ModelSelection, entries


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    recipe(tmp_path)
    (tmp_path / "sets").mkdir()
    return write(tmp_path, "a.onnx", "deep/b.onnx")


def read(folder: Path, name: str, text: str) -> list[Entry]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return manifest.read(path, "default")


def test_a_manifest_lists_one_path_per_line(folder: Path) -> None:
    found = read(folder, "list.txt", f"# models\na.onnx\n\n  deep/b.onnx\n{folder}/deep/../a.onnx\n")
    assert [(entry.name, entry.model, entry.recipe) for entry in found] == [
        ("a.onnx", f"{folder}/a.onnx", "default"),
        ("deep/b.onnx", f"{folder}/deep/b.onnx", "default"),
        ("a.onnx", f"{folder}/a.onnx", "default"),
    ]
    assert [entry.where for entry in found] == [f"{folder}/list.txt:{line}" for line in (2, 4, 5)]


LINES = """{"model": "a.onnx", "recipe": "quick.yaml", "output": "fast/a.onnx", "inputs": "sets"}

{"model": "deep/b.onnx", "recipe": "default", "inputs": ["sets", "a.onnx"]}
{"model": "gone.onnx", "skip": "not exported yet"}
"""
TABLE = """model,recipe,output,inputs,skip
a.onnx,quick.yaml,fast/a.onnx,sets,
deep/b.onnx,default,,sets;a.onnx,
gone.onnx,,,,not exported yet
"""


@pytest.mark.parametrize(("name", "text"), [("list.jsonl", LINES), ("list.csv", TABLE)])
def test_keys_of_a_model(folder: Path, name: str, text: str) -> None:
    assert read(folder, name, text) == [
        Entry("fast/a.onnx", f"{folder}/a.onnx", f"{folder}/quick.yaml", (f"{folder}/sets",)),
        Entry("deep/b.onnx", f"{folder}/deep/b.onnx", "default", (f"{folder}/sets", f"{folder}/a.onnx")),
        Entry("gone.onnx", f"{folder}/gone.onnx", "default", (), "not exported yet"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("l.txt", "a.onnx\ngone.onnx\n", "l.txt:2: '{folder}/gone.onnx': no such file or folder"),
        ("l.jsonl", '{"model": "a.onnx", "recipes": "x"}', "a manifest has no key 'recipes'; did you mean 'recipe'?"),
        ("l.jsonl", "\n[1]", 'l.jsonl:2: a line must be an object such as {"model": "a.onnx"}'),
        ("l.jsonl", "{", "l.jsonl:1: this line is not JSON"),
        ("l.jsonl", '{"model": 1}', "l.jsonl:1: values are strings"),
        ("l.jsonl", '{"output": "a.onnx"}', "l.jsonl:1: the key 'model' is missing"),
        ("l.csv", "model,recipe\na.onnx,default,x", "l.csv:2: the line has more values than the header has columns"),
        ("deep/l.txt", "../a.onnx", "'{folder}/a.onnx' is not below the folder of the manifest; name an 'output'"),
        (
            "l.jsonl",
            '{"model": "a.onnx", "output": "../b.onnx"}',
            "the output '../b.onnx' is not a path of a file inside",
        ),
        (
            "l.jsonl",
            '{"model": "a.onnx", "inputs": "s3://zoo/sets?key=x", "skip": "later"}',
            "l.jsonl:1: inputs must be local files, not 's3://zoo/sets",
        ),
        (
            "l.jsonl",
            '{"model": "a.onnx", "output": "/b.onnx"}',
            "the output '/b.onnx' is not a path of a file inside of the output folder",
        ),
    ],
)
def test_mistakes_are_named_with_their_line(folder: Path, name: str, text: str, problem: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as error:
        entries([str(folder / name)], ModelSelection("default", folder / "out"))
    assert problem.replace("{folder}", str(folder)) in str(error.value)


@pytest.mark.parametrize("output", [".", "./", "deep/", "deep/.."])
def test_an_output_is_a_file(folder: Path, output: str) -> None:
    with pytest.raises(UsageError, match=r"l\.jsonl:1: the output '.*' is not a path of a file inside of the output"):
        listed(folder, {"model": "a.onnx", "output": output})


def listed(folder: Path, *models: dict[str, str]) -> list[Entry]:
    (folder / "l.jsonl").write_text("".join(f"{json.dumps(model)}\n" for model in models), encoding="utf-8")
    return entries([str(folder / "l.jsonl")], ModelSelection("default", folder / "out"))


def test_outputs_are_compared_as_paths(folder: Path) -> None:
    assert [entry.name for entry in listed(folder, {"model": "a.onnx", "output": "./x//y.onnx"})] == ["x/y.onnx"]
    with pytest.raises(UsageError, match=r"would both be written to 'x\.onnx'"):
        listed(folder, {"model": "a.onnx", "output": "x.onnx"}, {"model": "deep/b.onnx", "output": "./x.onnx"})


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ("x.onnx", "x.onnx/y.onnx", "'x.onnx' would be both an output and the folder of 'x.onnx/y.onnx'"),
        ("x.onnx", "x.onnx.data", "'x.onnx.data' would be both an output and the external data of 'x.onnx'"),
    ],
)
def test_outputs_that_overlap_are_refused(folder: Path, first: str, second: str, problem: str) -> None:
    models = [{"model": "a.onnx", "output": first}, {"model": "deep/b.onnx", "output": second}]
    for both in (models, models[::-1]):
        with pytest.raises(UsageError) as error:
            listed(folder, *both)
        assert problem in str(error.value)
    # What is not written is in the way of nothing.
    assert len(listed(folder, models[0], {**models[1], "skip": "later"})) == 2


def test_a_model_runs_although_it_is_skipped_under_another_name(folder: Path) -> None:
    found = listed(
        folder, {"model": "a.onnx", "output": "x.onnx", "skip": "later"}, {"model": "a.onnx", "output": "y.onnx"}
    )
    assert [(entry.name, entry.skip) for entry in found] == [("x.onnx", "later"), ("y.onnx", "")]


def test_text_that_is_not_unicode_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"l\.jsonl:1: the name 'x\\udcff\.onnx' is not UTF-8"):
        listed(folder, {"model": "a.onnx", "output": "x\udcff.onnx"})


def test_a_manifest_that_cannot_be_read(folder: Path) -> None:
    (folder / "l.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        manifest.read(folder / "l.txt", "default")
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        manifest.read(folder / "gone.txt", "default")
