"""Seals of statements, and which files the source of a pass consists of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from surgery.engine.provenance import code_digests, referred, statement
from surgery.engine.provenance.statement import INPUT, SEAL, carried, embed, entries, index, leaves, repeats, sealed

DIGESTS = [f"{number:02x}" * 32 for number in (1, 2, 255)]


def test_an_index_has_the_beginnings_of_digests() -> None:
    found = entries(index(DIGESTS))
    assert found == [digest[:4] for digest in DIGESTS]
    assert entries("") == [] and index([]) == ""
    with pytest.raises(ValueError, match=r"base64|padding|digit|characters"):
        entries("no base64!")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": 2}, [("a", 2), ("b", 1)]),
        ({"a": {"c": [1, {"d": 2}], "b": 3}}, [("a.b", 3), ("a.c[0]", 1), ("a.c[1].d", 2)]),
        ({"a": {}, "b": [], "c": None}, [("a", {}), ("b", []), ("c", None)]),
        ([[1], 2], [("[0][0]", 1), ("[1]", 2)]),
        ({1: "x"}, [("1", "x")]),
        (7, [("", 7)]),
    ],
)
def test_fields_are_listed_by_name(value: Any, expected: list[tuple[str, Any]]) -> None:
    assert [*leaves(value)] == expected


def stated(**more: Any) -> dict[str, Any]:
    dependencies = [{"name": INPUT, "digest": {"sha256": "1"}}, {"name": "recipe:r.yaml"}, {"uri": "pkg:pypi/onnx@1"}]
    definition = {"buildType": "b", "resolvedDependencies": dependencies, **more}
    return {"subject": [{"name": "model"}], "predicate": {"buildDefinition": definition, "steps": [1, 2]}}


def test_a_seal_covers_each_field() -> None:
    found = sealed(stated())
    assert sealed(found) == found and set(found["predicate"][SEAL]) == {"sha256", "fields"}
    other = sealed(stated(buildType="c"))
    before, after = (entries(one["predicate"][SEAL]["fields"]) for one in (found, other))
    places = [place for place, _ in leaves(stated())]
    changed = [place for place, one, two in zip(places, before, after, strict=True) if one != two]
    assert changed == ["predicate.buildDefinition.buildType"]
    assert found["predicate"][SEAL]["sha256"] != other["predicate"][SEAL]["sha256"]


def test_a_statement_repeats_one_of_the_same_build_of_another_input() -> None:
    text = statement.text_of(sealed(stated()))
    assert repeats(text, stated()) and text.isascii() and ": " not in text
    other = stated()
    other["predicate"]["buildDefinition"]["resolvedDependencies"][0]["digest"]["sha256"] = "2"
    assert repeats(text, other)
    other["predicate"]["buildDefinition"]["resolvedDependencies"][1]["name"] = "recipe:s.yaml"
    assert not repeats(text, other)
    assert not repeats(text, {**stated(), "subject": []}) and not repeats(statement.text_of(stated()), stated())
    for damaged in ("{", "[]", "{}", text.replace('"b"', '"c"')):
        assert not repeats(damaged, stated())


def test_a_model_carries_one_statement() -> None:
    model = onnx.ModelProto()
    model.metadata_props.add(key="author", value="me")
    assert carried(model) is None
    first = embed(model, {"a": 1})
    assert carried(first) == '{"a":1}' and carried(embed(first, {"a": 2})) == '{"a":2}'
    assert len(embed(first, {"a": 2}).metadata_props) == 2 and embed(first, None) == model


@pytest.mark.parametrize(
    ("source", "used"),
    [
        ("from ._one import x", ["_one.py"]),
        ("from . import _one, _two", ["_one.py", "_two.py"]),
        ("from . import (\n    _one,\n    _two,\n)", ["_one.py", "_two.py"]),
        ("    from ._two import y", ["_two.py"]),
        ("from .public import z\nfrom ._absent import a\nimport _one", []),
        ("from .. import _one", []),
    ],
)
def test_modules_of_the_same_folder_are_part_of_a_pass(tmp_path: Path, source: str, used: list[str]) -> None:
    for name in ("_one", "_two", "public"):
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "own.py").write_text(source)
    assert [path.name for path in code_digests._used(tmp_path / "own.py")] == used


def test_modules_that_a_file_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    referred._file_of.cache_clear()
    package = tmp_path / "own_package_of_a_test"
    package.mkdir()
    for path, source in (
        (tmp_path / "own.py", "import own_helper_of_a_test, os, numpy\nfrom own_package_of_a_test import part\n"),
        (tmp_path / "own_helper_of_a_test.py", "def f():\n    import own_deeper_of_a_test.none, own\n"),
        (tmp_path / "own_deeper_of_a_test.py", "from . import x\nfrom surgery import Graph\n"),
        (package / "__init__.py", ""),
        (package / "part.py", "syntax error"),
    ):
        path.write_text(source)
    found = {path.relative_to(tmp_path).as_posix() for path in referred.imported(tmp_path / "own.py")}
    assert found >= {"own_helper_of_a_test.py", "own_package_of_a_test/__init__.py", "own_package_of_a_test/part.py"}
    assert "own.py" not in found and all("own" in one for one in found)
    assert referred.referred(tmp_path / "own.py") == referred.imported(tmp_path / "own.py")
    assert referred.referred(tmp_path / "data.bin") == [] == referred.referred(tmp_path / "none.onnx")
    referred._file_of.cache_clear()


def test_files_that_others_refer_to(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors.index.json").write_text('{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}')
    assert referred.referred(tmp_path / "m.safetensors.index.json") == []  # which is said where they are read
    for name in "12":
        (tmp_path / f"{name}.safetensors").write_bytes(b"")
    found = referred.referred(tmp_path / "m.safetensors.index.json")
    assert sorted(path.name for path in found) == ["1.safetensors", "2.safetensors"]
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[2], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["w"], ["y"])], "g", [], [], [tensor])
    (tmp_path / "m.onnx").write_bytes(onnx.helper.make_model(graph).SerializeToString())
    assert referred.referred(tmp_path / "m.onnx") == [tmp_path / "w.bin"]
