"""The target of a recipe that uses another one, and what is said where the model does not fit the expected target."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

from surgery.base.errors import RecipeError
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.recipe import resolved
from surgery.interface import commands as cli
from surgery.interface.report import terminal
from surgery.interface.report.formats.github import github
from surgery.interface.report.outcomes import of_result
from surgery.model.graph import text


def target(steps: str) -> str:
    return recipes.parse(steps).target


def model(folder: Path, ops: str = "y = Gelu(x)") -> Path:
    onnx.save(text.parse(f"g (float[1,4] x) => (float[1,4] y) {{ {ops} }}", opset=20), folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize(
    "steps",
    [
        "steps: [{use: npu}]",
        "steps: [drop-identity, {repeat: 2, steps: [{use: npu}]}, {use: tidy}]",
        "steps: [{use: {recipe: inner, steps: [{use: npu}]}}]",
        "steps:\n  - use: npu\n    without: decompose\n  - use: npu",
    ],
)
def test_a_recipe_has_the_target_of_the_recipes_it_uses(steps: str) -> None:
    assert target(steps) == "rknn-like"
    assert target(f"target: standard\n{steps}") == "standard"
    assert target(f"target: ort-cpu\n{steps}") == "ort-cpu"
    found = recipes.parse(steps)
    assert recipes.parse(resolved.brief(found)).target == "rknn-like"


def test_a_recipe_without_targets_is_for_the_standard() -> None:
    assert target("steps: [{use: default}]") == "standard"


def test_recipes_for_several_targets_need_a_decision() -> None:
    with pytest.raises(RecipeError) as caught:
        recipes.parse("steps: [{use: npu}, {use: ort}]", "r.yaml")
    wanted = (
        "it uses recipes for several targets: 'rknn-like' (npu) and 'ort-cpu' (ort); write 'target:' with one of them"
    )
    assert str(caught.value) == f"r.yaml:1:1: {wanted}"
    assert target("target: ort-cpu\nsteps: [{use: npu}, {use: ort}]") == "ort-cpu"


def test_a_used_recipe_fits_the_model_to_its_target(tmp_path: Path) -> None:
    result = runner.apply(model(tmp_path), recipes.parse("steps: [{use: npu}]"))
    assert result.ok and result.target == "rknn-like"
    assert [(one.what, one.ok) for one in result.expectations][-1] == ("npu: target: rknn-like", True)


def test_steps_that_help_are_named(tmp_path: Path) -> None:
    result = runner.apply(model(tmp_path), recipes.parse("steps: [drop-identity]\nexpect: {target: rknn-like}"))
    (item,) = result.expectations
    assert not item.ok
    helps = "steps that would help: decompose, downgrade-opset: {to: 13"
    writes = "the recipe makes the model for standard; write 'target: rknn-like' in it"
    annotations = github(of_result(result, "apply", {}, {}))
    assert helps.replace(":", "%3A") in annotations or helps in annotations
    assert writes in annotations
    with_target = recipes.parse("target: rknn-like\nsteps: [drop-identity]\nexpect: {target: rknn-like}")
    annotations = github(of_result(runner.apply(model(tmp_path), with_target), "apply", {}, {}))
    assert helps in annotations and "write 'target" not in annotations


def test_a_quiet_run_names_what_is_not_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("steps: [drop-identity]\nexpect: {nodes: 1, ops: {Gelu: 3}, target: rknn-like}")
    assert cli.main(["apply", str(path), str(model(tmp_path)), "-q"]) == 1
    first, second, *rest, last = capsys.readouterr().out.splitlines()
    assert first == "not met  Gelu: == 3 (found 1)"
    assert second.startswith("not met  target: rknn-like (opset 20: the target takes 7 to 13; ")
    assert any("steps that would help: decompose, downgrade-opset: {to: 13" in line for line in rest)
    assert re.fullmatch(r"failed: 2 expectations are not met; 1 node; \d.* s; no file was written", last)


def test_a_quiet_run_names_the_step_that_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("steps: [{pass: drop-identity, expect: {sites: 2}}]")
    assert cli.main(["apply", str(path), str(model(tmp_path, "i = Identity(x) y = Relu(i)")), "-q"]) == 1
    said = capsys.readouterr().out
    assert "expected sites: == 2 (found 1)" in said and "no file was written" in said


def test_a_quiet_run_that_is_fine_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("steps: [drop-identity]\nexpect: {ops: {Identity: 0}}")
    assert cli.main(["apply", str(path), str(model(tmp_path, "i = Identity(x) y = Relu(i)")), "-q"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("ok: 2 -> 1 nodes")


def test_the_whole_report_names_steps_that_help_below_the_expectation(tmp_path: Path) -> None:
    from rich.console import Console

    result = runner.apply(model(tmp_path), recipes.parse("steps: [drop-identity]\nexpect: {target: rknn-like}"))
    console = Console(width=300, quiet=False)
    with console.capture() as captured:
        console.print(terminal.result(result))
    assert "steps that would help: decompose, downgrade-opset" in captured.get()


def _said(result: runner.Result) -> str:
    from rich.console import Console

    console = Console(width=1000)
    with console.capture() as captured:
        console.print(terminal.result(result))
    return captured.get()


def test_a_result_that_the_target_does_not_run_is_named_once(tmp_path: Path) -> None:
    steps = recipes.parse("target: rknn-like\nsteps: [drop-identity]")
    result = runner.apply(model(tmp_path), steps)
    assert result.ok and result.exit_code == 1
    assert result.misfits is not None
    assert result.misfits.words.startswith("rknn-like does not run the result: opset 20: the target takes 7 to 13; ")
    assert result.to_json()["misfits"] == result.misfits.words
    assert _said(result).count("rknn-like does not run the result") == 1


@pytest.mark.parametrize(
    ("text", "ops"),
    [
        ("steps: [drop-identity]", "y = Gelu(x)"),
        ("target: ort-cpu\nsteps: [drop-identity]", "y = Gelu(x)"),
        (
            "target: rknn-like\nsteps: [decompose, {downgrade-opset: {to: 13, lower_ir_version: true}}]",
            "i = Identity(x) y = Relu(i)",
        ),
        ("target: rknn-like\nsteps: [drop-identity]\nexpect: {target: rknn-like}", "y = Gelu(x)"),
    ],
    ids=["no target", "runs it", "made to fit", "an expectation says so"],
)
def test_nothing_is_said_where_the_target_runs_the_result(tmp_path: Path, text: str, ops: str) -> None:
    result = runner.apply(model(tmp_path, ops), recipes.parse(text))
    assert result.to_json()["misfits"] is None
    assert "does not run the result" not in _said(result)
