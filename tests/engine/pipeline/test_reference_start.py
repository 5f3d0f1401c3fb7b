"""The result, written when the end is verified, and the original, run while the rest is still to be loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from surgery.base.errors import OutputError, RecipeError, WorkerError
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.records import Observer
from surgery.engine.pipeline.reference_start import begin
from surgery.engine.pipeline.run_options import RunOptions
from surgery.engine.recipe.schema import Recipe
from surgery.interface import commands as cli
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.runtime.engine import Engine
from surgery.verification.inputs.spec import InputsSpec, VerifySpec

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x) => (float[n, 4] y)
<float[4] w = {1, -2, 3, 4}> {
    a = Tanh(x)
    i = Identity(a)
    e = Exp(i)
    y = Add(e, w)
}"""
WRONG = '{wrong: {match: "y = Exp(a)", emit: "y = Add(a, 1)"}}'


def folder_with(folder: Path, steps: str = "[drop-identity]", more: str = "") -> tuple[Path, Path]:
    """Write a model and a recipe, and return their paths."""
    model, recipe = folder / "m.onnx", folder / "r.yaml"
    onnx.save(text.parse(MODEL), model)
    recipe.write_text(f"recipe: test\nverify: {{mode: end}}\n{more}\nsteps: {steps}\n")
    return model, recipe


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"m.onnx", "r.yaml"}


# The result, written when the end is verified


def test_a_failed_final_check_keeps_the_existing_output(tmp_path: Path) -> None:
    model, recipe = folder_with(tmp_path, "[wrong]", f"rules: {WRONG}")
    (tmp_path / "out.onnx").write_bytes(b"old")
    assert cli.main(["apply", str(recipe), str(model), "-o", str(tmp_path / "out.onnx"), "--force"]) == 1
    assert (tmp_path / "out.onnx").read_bytes() == b"old"
    assert left(tmp_path) == {"out.onnx"}


def test_a_missed_expectation_leaves_no_file(tmp_path: Path) -> None:
    model, recipe = folder_with(tmp_path, more="expect: {nodes: 1}")
    assert cli.main(["apply", str(recipe), str(model), "-o", str(tmp_path / "out.onnx")]) == 1
    assert left(tmp_path) == set()


def test_an_interrupted_verification_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    model, recipe = folder_with(tmp_path)
    monkeypatch.setattr(runner.Pipeline, "finish", interrupt)
    with pytest.raises(KeyboardInterrupt):
        runner.apply(model, recipe, output=tmp_path / "out.onnx")
    assert left(tmp_path) == set()


def test_a_full_disk_is_reported_after_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    model, recipe = folder_with(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    stages: list[str] = []

    class Watching(Observer):
        def stage(self, step: str, stage: str) -> None:
            stages.append(step)

        def said(self, step: str, text: str) -> None: ...

        def done(self, record: runner.StepRecord) -> None:
            stages.append(record.status)

    with pytest.raises(OutputError, match="No space left"):
        runner.apply(model, recipe, output=tmp_path / "out.onnx", options=RunOptions(observer=Watching()))
    assert stages[-3:] == ["(end)", "committed", "(deployed)"]
    assert left(tmp_path) == set()


def test_a_full_disk_does_not_hide_a_negative_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    model, recipe = folder_with(tmp_path, "[wrong]", f"rules: {WRONG}")
    monkeypatch.setattr(os, "fsync", full)
    result = runner.apply(model, recipe, output=tmp_path / "out.onnx")
    assert result.exit_code == 1
    assert left(tmp_path) == set()


# The original, run while the rest is still to be loaded


def test_a_recipe_is_reported_before_its_passes_are_known(tmp_path: Path) -> None:
    _, recipe = folder_with(tmp_path, "[no-such-pass]", "inputs: {dims: {n: 3}}")
    read: list[Recipe] = []
    with pytest.raises(RecipeError, match="no-such-pass"):
        recipes.load(recipe, on_read=read.append)
    assert [one.inputs.dims["n"] for one in read] == [(3,)]


@pytest.mark.parametrize(
    ("steps", "more"),
    [
        ("[drop-identity", ""),
        ("[drop-identity]", "plugins: [./p.py]"),
        ("[drop-identity]", "inputs: {generator: ./p.py:make}"),
        ("[drop-identity]", "verify: {custom_op_library: ./p.so}"),
    ],
)
def test_a_recipe_with_untrusted_code_is_not_reported_early(tmp_path: Path, steps: str, more: str) -> None:
    (tmp_path / "p.py").write_text("def make(*_): return []\n")
    (tmp_path / "p.so").write_bytes(b"")
    _, recipe = folder_with(tmp_path, steps)
    if more.startswith("verify"):
        recipe.write_text(recipe.read_text().replace("verify: {mode: end}\n", ""))
    recipe.write_text(recipe.read_text() + more + "\n")
    read: list[Recipe] = []
    try:
        recipes.load(recipe, trust=True, on_read=read.append)
    except RecipeError:
        assert not more
    assert read == []


def test_the_early_reference_run_is_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, recipe = folder_with(tmp_path)
    stored = storage.load(model)
    reference = begin(stored, InputsSpec(), VerifySpec(mode="end"))
    reference.tracker.verifier.original.prepare()
    ran: list[bytes] = []
    run = Engine.run

    def watched(self: Engine, skeleton: bytes, *rest: Any, **options: Any) -> Any:
        found = run(self, skeleton, *rest, **options)
        if found.executed is None:  # as deployed, the original runs again
            ran.append(skeleton)
        return found

    monkeypatch.setattr(Engine, "run", watched)
    result = runner.apply(model, recipe, options=RunOptions(reference=reference))
    assert result.ok
    assert reference.skeleton not in ran
    assert ran


def test_no_reference_run_without_verification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_engine(*_: Any, **__: Any) -> None:
        raise WorkerError("nothing is to run here", stage="run")

    monkeypatch.setattr(Engine, "run", no_engine)
    model, recipe = folder_with(tmp_path)
    recipe.write_text(recipe.read_text().replace("mode: end", 'mode: "off"'))
    assert cli.main(["apply", str(recipe), str(model), "-o", str(tmp_path / "out.onnx")]) == 0


@pytest.mark.parametrize(
    ("model", "steps", "message"),
    [
        ("gone.onnx", "[drop-identity]", "gone.onnx"),
        ("r.yaml", "[drop-identity]", "r.yaml"),
        ("m.onnx", "[no-such-pass]", "no pass 'no-such-pass'"),
        ("gone.onnx", "[no-such-pass]", "no pass 'no-such-pass'"),
    ],
)
def test_mistakes_are_reported_once_and_recipe_mistakes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, steps: str, message: str
) -> None:
    _, recipe = folder_with(tmp_path, steps)
    assert cli.main(["apply", str(recipe), str(tmp_path / model)]) == 2
    printed = capsys.readouterr().err.strip()
    assert message in printed
    assert "\n" not in printed


def test_the_reference_run_starts_before_the_graph_is_imported() -> None:
    """What is imported first delays the run of the original, which is most of the time of an `apply`."""
    code = "import sys, surgery.engine.pipeline.reference_start; print(sorted(set(sys.modules) & {'onnx_ir', 'sympy'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
