"""Locks: each thing that changes is named, and nothing else."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import surgery
from surgery.base.errors import UsageError
from surgery.engine import recipe as recipes
from surgery.engine.provenance import code_digests, lock, packages
from surgery.interface.commands import main
from surgery.model.graph import text

MODEL = Path(__file__).parents[3] / "models" / "bert-dropout-tiny.onnx"

RECIPE = """
recipe: outer
plugins: [plugin.py]
target: mine.yaml
inputs: {data: [sets.npz]}
verify: {mode: "off", seed: 3}
rules:
  swish: {match: "s = Sigmoid(x)\\ny = Mul(x, s)", emit: "y = HardSwish(x)"}
steps:
  - use: inner.yaml
  - drop-identity
  - swish
  - from-plugin
"""
PLUGIN = """
from surgery import Graph, graph_pass

@graph_pass("from-plugin")
def f(graph: Graph) -> None:
    "Do nothing."
"""
TARGET = "target: mine\nabout: A runtime.\ndomains: [ai.onnx]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outer.yaml").write_text(RECIPE)
    (tmp_path / "inner.yaml").write_text("steps: [drop-dropout]\n")
    (tmp_path / "plugin.py").write_text(PLUGIN)
    (tmp_path / "mine.yaml").write_text(TARGET)
    np.savez(tmp_path / "sets.npz", input_ids=np.zeros((1, 4), np.int64))
    return tmp_path


def pinned(folder: Path) -> dict[str, object]:
    return lock.pins(recipes.load(folder / "outer.yaml", trust=True))


def test_the_closure_of_a_recipe(folder: Path) -> None:
    found = pinned(folder)
    assert list(found["files"]) == ["inner.yaml", "mine.yaml", "outer.yaml", "plugin.py", "sets.npz"]  # type: ignore[call-overload]
    assert list(found["passes"]) == ["drop-dropout", "drop-identity", "from-plugin"]  # type: ignore[call-overload]
    assert found["settings"] == {
        "inputs": {"data": [{"path": "sets.npz", "found": False, "images": None, "function": ""}]},
        "verify": {"mode": "off"},
    }
    assert (found["target"], found["seed"]) == ("mine.yaml", 3)


def test_a_lock_is_valid_in_another_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    before = pinned(folder)
    other = shutil.copytree(folder, tmp_path_factory.mktemp("other") / "copy")
    assert lock.changes(before, pinned(other)) == []


EDITS: list[tuple[str, str, list[str]]] = [
    ("outer.yaml", "# a comment\n", ["file 'outer.yaml'"]),
    ("inner.yaml", "# a comment\n", ["file 'inner.yaml'"]),
    ("mine.yaml", "# a comment\n", ["file 'mine.yaml'"]),
    ("plugin.py", "# a comment\n", ["file 'plugin.py'", "source of pass 'from-plugin'"]),
    ("sets.npz", "more", ["file 'sets.npz'"]),
]


@pytest.mark.parametrize(("name", "text", "expected"), EDITS, ids=[edit[0] for edit in EDITS])
def test_a_changed_file_is_named(folder: Path, name: str, text: str, expected: list[str]) -> None:
    before = pinned(folder)
    with (folder / name).open("a") as file:
        file.write(text)
    if name == "plugin.py":
        # A process imports a plugin once: that of the other content has another module.
        surgery.engine.registry.catalog.catalog._passes.pop("from-plugin")  # type: ignore[attr-defined]
    assert [one.what for one in lock.changes(before, pinned(folder))] == expected


def test_a_changed_file_that_another_refers_to_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    (folder / "plugin_help").mkdir()
    for name in ("plugin_help/__init__.py", "plugin_help/deep.py", "unused_help.py"):
        (folder / name).write_text("DEPTH = 1\n")
    (folder / "plugin.py").write_text(
        f"{PLUGIN.replace('from-plugin', 'helped')}\n\ndef later():\n    from plugin_help import deep\n"
    )
    (folder / "w.safetensors.index.json").write_text('{"weight_map": {"a": "w-1.safetensors", "b": "w-2.safetensors"}}')
    for number in (1, 2):
        np.zeros(4).tofile(folder / f"w-{number}.safetensors")
    other = text.parse("g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> { y = Add(x, w) }")
    other.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.ones(4, np.float32), "w"))
    onnx.save(other, folder / "o.onnx", save_as_external_data=True, location="o.bin", size_threshold=0)
    (folder / "outer.yaml").write_text(RECIPE.replace("from-plugin", "helped"))
    with (folder / "outer.yaml").open("a") as file:
        file.write("  - import-weights: {file: w.safetensors.index.json}\n  - merge: {model: o.onnx}\n")
    before = pinned(folder)
    others = ["o.bin", "o.onnx", "plugin_help/__init__.py", "plugin_help/deep.py", "w-1.safetensors", "w-2.safetensors"]
    assert {*others} <= set(before["files"]) and "unused_help.py" not in before["files"]  # type: ignore[arg-type, operator]
    for name in ("o.bin", "w-2.safetensors", "plugin_help/deep.py"):
        with (folder / name).open("a") as file:
            file.write("# more\n")
    code_digests._foreign.cache_clear()
    assert [one.what for one in lock.changes(before, pinned(folder))] == [
        *("file 'o.bin'", "file 'plugin_help/deep.py'", "file 'w-2.safetensors'", "source of pass 'helped'")
    ]


def _package(patch: pytest.MonkeyPatch) -> None:
    found = packages.version_of
    patch.setattr(packages, "version_of", lambda name: "1.99" if name == "onnxruntime" else found(name))


def _pass(patch: pytest.MonkeyPatch) -> None:
    found = code_digests._standard
    patch.setattr(code_digests, "_standard", lambda file: "00" * 32 if file.stem == "drop_dropout" else found(file))


def _engine(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(code_digests, "engine", lambda: "00" * 32)


def _processor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(packages, "processor", lambda: "x86_64 avx")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_package, "package onnxruntime"),
        (_pass, "source of pass 'drop-dropout'"),
        (_engine, "the source of surgery"),
        (_processor, "processor"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_another_change_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[pytest.MonkeyPatch], None], expected: str
) -> None:
    before = pinned(folder)
    change(monkeypatch)
    assert [one.what for one in lock.changes(before, pinned(folder))] == [expected]


def test_changes_are_named_in_the_order_of_the_lock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = pinned(folder)
    for change in (_engine, _package, _pass, _processor):
        change(monkeypatch)
    (folder / "sets.npz").write_bytes(b"other")
    assert [one.what for one in lock.changes(before, pinned(folder))] == [
        *("file 'sets.npz'", "source of pass 'drop-dropout'", "package onnxruntime"),
        *("the source of surgery", "processor"),
    ]


def test_a_setting_is_named_with_both_values(folder: Path) -> None:
    recipe = recipes.load(folder / "outer.yaml", trust=True)
    other = replace(recipe, verify=replace(recipe.verify, seed=4))
    assert list(map(str, lock.changes(lock.pins(recipe), lock.pins(other)))) == ["seed: 3 -> 4"]
    accepting = replace(recipe, verify=replace(recipe.verify, unverified="accept"))
    found = lock.changes(lock.pins(recipe), lock.pins(accepting))
    assert list(map(str, found)) == ["setting 'verify.unverified': nothing -> accept"]


def test_the_processor_may_be_removed_from_a_lock(folder: Path) -> None:
    pins = pinned(folder)
    without = {name: value for name, value in pins.items() if name != "processor"}
    assert lock.changes(without, pins) == []
    assert lock.changes({**pins, "processor": "arm"}, pins) != []


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text("steps: [drop-dropout]\nverify: {mode: 'off'}\n")
    apply = ["apply", "r.yaml", str(MODEL), "-o", "out.onnx", "--locked"]
    assert main(apply) == 2
    assert "r.lock: there is no lock; make one: surgery lock r.yaml" in capsys.readouterr().err
    assert main(["lock", "r.yaml"]) == 0
    first = Path("r.lock").read_bytes()
    assert main(["lock", "r.yaml", "--check"]) == 0
    assert main(apply) == 0
    assert main(["lock", "r.yaml"]) == 0
    assert Path("r.lock").read_bytes() == first
    Path("out.onnx").unlink()
    Path("r.lock").write_text(Path("r.lock").read_text().replace("onnx-ir:", "onnx-ir: 0.9.0  #"))
    capsys.readouterr()
    assert main(["lock", "r.yaml", "--check"]) == 1
    assert capsys.readouterr().out == f"package onnx-ir: 0.9.0 -> {packages.version_of('onnx-ir')}\n"
    assert main(apply) == 2
    message = capsys.readouterr().err
    assert "surgery: r.lock: 1 change since the lock was made:\n  package onnx-ir: 0.9.0 -> " in message
    assert not Path("out.onnx").exists()
    assert main(["apply", "r.yaml", str(MODEL), "--target", "ort-cpu", "--lock", "r.lock"]) == 2
    assert "target: standard -> ort-cpu" in capsys.readouterr().err


def test_a_single_pass_has_no_lock(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "drop-dropout", str(MODEL), "--locked"]) == 2
    assert "a single pass has no lock; save its recipe with --save-recipe, and lock that" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("steps: [a]\n", "this is not a lock: it has no 'format_version'"),
        ("format_version: 2\n", "the lock has format version 2, but this release reads 1"),
        ("format_version: 1\nfiles: {}\npasses: {}\n", "this is not a lock: it has no 'packages'"),
        ("a: [", "this is not a lock: it is not YAML"),
    ],
)
def test_a_file_that_is_not_a_lock(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "r.lock"
    path.write_text(text)
    with pytest.raises(UsageError, match="lock") as error:
        lock.read(path)
    assert expected in str(error.value)
    recipe = tmp_path / "r.yaml"
    recipe.write_text("steps: [drop-dropout]\n")
    assert main(["lock", str(recipe)]) == 2
    assert path.read_text() == text
