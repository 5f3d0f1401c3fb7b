"""`surgery why`, and what a recipe says when a step has fewer sites than it expects."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper
from support import ROOT

from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.interface import commands as cli
from surgery.model.graph import text

SWISH = """g (float[N,4] x) => (float[N,4] z) <float[4] c = {0, 0, 0, 0}> {
    i = Identity(x)
    t = Relu(i)
    a = Max(t, x)
    b = Min(x, a)
    z = Add(b, c)
}"""
LOST = '''
"""Passes that go wrong."""
import os
import onnx
from surgery import graph_pass, pattern_pass

@graph_pass("why-dies")
def dies(graph):
    """Die."""
    os.abort()

@graph_pass("why-proto")
def proto(model: onnx.ModelProto):
    """Turn each Max into a Min."""
    for node in model.graph.node:
        if node.op_type == "Max":
            node.op_type = "Min"

@pattern_pass("why-plug", match="y = Min(a, b)")
def plug(m, new, *, wanted: str = "a"):
    """Refuse by name."""
    m.require(m.y.name == wanted, "another name")
    return new.node("Max", m.a, m.b)
'''


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(text.parse(SWISH), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    (tmp_path / "lost.py").write_text(LOST, encoding="utf-8")
    return tmp_path / "lost.py"


def surgery(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.main(["why", *(str(argument) for argument in arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_sites_are_listed(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = surgery(capsys, "drop-identity", model)
    assert code == 0
    assert out.startswith("drop-identity: 1 site, 0 refusals")
    assert "site 1 at 'Identity -> i': removes 'Identity -> i'; adds nothing" in out
    assert "looked at: 1 Identity" in out


def test_a_near_miss_shows_the_pattern_and_bound_values(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = surgery(capsys, "fuse-clip", model)
    assert code == 0
    assert "2 of 2 lines" in out and "refused: a bound is not one constant number (idioms/fuse_clip.py:" in out
    assert "ok  y = Min(a, high)" in out
    assert "low" in out and "graph input 'x'" in out


def test_json_has_the_same(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = surgery(capsys, "fuse-clip", model, "--format", "json")
    data = json.loads(out)
    assert code == 0
    assert {"pass", "model", "kind", "at", "sites", "near_misses", "near_misses_total", "refusals"} <= set(data)
    (miss,) = data["near_misses"]
    assert (miss["matched"], len(miss["lines"]), miss["anchor"]) == (2, 2, "Min -> b")
    assert miss["reason"] == "a bound is not one constant number"
    assert {"name": "x", "value": "x", "type": "float[N,4]"}.items() <= miss["bindings"][-1].items() or any(
        bound["value"] == "x" for bound in miss["bindings"]
    )


def test_a_single_node_is_explained(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = surgery(capsys, "fuse-matmul-add", model, "--at", "z")
    assert code == 0
    assert "at 'Add -> z'" in out and "expected MatMul, found 'Min -> b'" in out
    code, out, err = surgery(capsys, "fuse-matmul-add", model, "--at", "zz")
    assert (code, out) == (2, "") and "no node 'zz'; did you mean 'z'?" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fuse-gelo"], "no pass 'fuse-gelo'; did you mean 'fuse-gelu'?"),
        (["fuse-clip", "--set", "wide=1"], "pass 'fuse-clip' has no option 'wide'"),
        (["fuse-clip", "--set", "wide"], "'wide' is not of the form OPTION=VALUE"),
        (["fuse-clip", "--recipe", "nowhere"], "nowhere"),
    ],
)
def test_wrong_arguments(model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    code, out, err = surgery(capsys, arguments[0], model, *arguments[1:])
    assert (code, out) == (2, "") and message in err


def test_a_limit_must_be_positive(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        surgery(capsys, "fuse-clip", model, "--limit", "0")
    assert ended.value.code == 2
    assert "'0' is not a positive integer" in capsys.readouterr().err


def test_a_missing_model_is_reported(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = surgery(capsys, "fuse-clip", "gone.onnx")
    assert code == 2 and "gone.onnx: no such file" in err


# Passes of other people


def test_a_plugin_is_explained_like_any_other(model: Path, plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = surgery(capsys, "why-plug", model, "--plugin", plugin, "--format", "json")
    (miss,) = json.loads(out)["near_misses"]
    assert code == 0 and miss["reason"] == "another name"
    assert "m.y.name = 'b'" in miss["values"] and "wanted = 'a'" in miss["values"]


def test_options_are_set(model: Path, plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--plugin", plugin, "--set", "wanted=b", "--format", "json")
    code, out, _ = surgery(capsys, "why-plug", model, *given)
    assert code == 0 and len(json.loads(out)["sites"]) == 1


def test_a_pass_of_another_api_lists_its_changes(model: Path, plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = surgery(capsys, "why-proto", model, "--plugin", plugin)
    assert code == 0
    assert "why-proto: changes the model" in out and "Max: 1 -> 0" in out
    assert "a pass in the API onnx.ModelProto does not give reasons" in out


def test_a_pass_that_crashes_is_contained(model: Path, plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = surgery(capsys, "why-dies", model, "--plugin", plugin)
    assert (code, out) == (3, "") and "SIGABRT" in err


# Recipes


def test_earlier_steps_are_run_first(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = model.parent / "two.yaml"
    recipe.write_text("steps: [drop-identity, {repeat: 2, steps: [fuse-relu, drop-identity]}]", encoding="utf-8")
    code, out, _ = surgery(capsys, "fuse-relu", model, "--recipe", recipe, "--at", "t")
    assert code == 0 and "'Relu -> t'" in out
    code, _, err = surgery(capsys, "fuse-relu", model, "--recipe", recipe, "--at", "i")
    assert code == 2 and "no node 'i'" in err


def test_options_come_from_the_recipe(model: Path, plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = model.parent / "plug.yaml"
    recipe.write_text("plugins: [lost.py]\nsteps: [{why-plug: {wanted: b}}]", encoding="utf-8")
    code, out, _ = surgery(capsys, "why-plug", model, "--recipe", recipe, "--trust", "--format", "json")
    assert code == 0 and len(json.loads(out)["sites"]) == 1
    given = ("--set", "wanted=a", "--trust", "--format", "json")
    code, out, _ = surgery(capsys, "why-plug", model, "--recipe", recipe, *given)
    assert code == 0 and json.loads(out)["sites"] == []


def test_a_pass_that_is_not_a_step(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = model.parent / "two.yaml"
    recipe.write_text("steps: [drop-identity, {pass: fuse-clip, when: {ops: {Conv: 9}}}]", encoding="utf-8")
    code, _, err = surgery(capsys, "drop-dropout", model, "--recipe", recipe)
    assert code == 2 and "recipe 'two' has no step 'drop-dropout'" in err and "drop-identity, fuse-clip" in err
    code, _, err = surgery(capsys, "fuse-clip", model, "--recipe", recipe)
    assert code == 2 and "its condition 'when' is false" in err


def test_a_failing_earlier_step_is_reported(model: Path, plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = model.parent / "dies.yaml"
    recipe.write_text("plugins: [lost.py]\nsteps: [why-dies, fuse-clip]", encoding="utf-8")
    code, _, err = surgery(capsys, "fuse-clip", model, "--recipe", recipe, "--trust")
    assert code == 3 and "the step 'why-dies' before it fails" in err


def test_a_rule_of_a_recipe_is_explained(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = model.parent / "rule.yaml"
    recipe.write_text(
        "rules:\n  own:\n    match: |\n      a = Max(x, y)\n      b = Relu(a)\n    emit: |\n      b = Max(x, y)\n"
        "steps: [own]",
        encoding="utf-8",
    )
    code, out, _ = surgery(capsys, "own", model, "--recipe", recipe)
    assert code == 0 and "expected Relu, found" in out and "in 'b = Relu(a)'" in out


# Expectations


def applied(model: Path, steps: str) -> runner.Result:
    return runner.apply(model, recipes.parse(f"verify: {{mode: 'off'}}\nsteps: [{steps}]"))


def test_too_few_sites_are_explained(model: Path) -> None:
    (step,) = applied(model, "{pass: fuse-clip, expect: {sites: 1}}").steps
    first, *more = step.message.splitlines()
    assert (step.status, step.exit_code) == ("failed", 1)
    assert first == "expected sites: == 1 (found 0)"
    assert len(more) == 1 and more[0].startswith("near miss 'Min -> b': a bound is not one constant number")
    told = step.to_json()["why"]
    assert told["near_misses"][0]["reason"] == "a bound is not one constant number"


def test_more_lines_than_three_are_not_reported() -> None:
    recipe = recipes.parse("verify: {mode: 'off'}\nsteps: [{pass: fuse-matmul-add, expect: {sites: '> 500'}}]")
    (step,) = runner.apply(ROOT / "models" / "gpt2-tiny.onnx", recipe).steps
    assert 2 <= len(step.message.splitlines()) <= 4


@pytest.mark.parametrize("wanted", ["0", "'< 1'", "'!= 1'"])
def test_too_many_sites_need_no_explanation(model: Path, wanted: str) -> None:
    (step,) = applied(model, f"{{pass: drop-identity, expect: {{sites: {wanted}}}}}").steps
    assert step.status == "failed" and step.why is None and "\n" not in step.message


def test_a_step_that_is_as_expected_is_not_explained(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explain(*_: object, **__: object) -> None:
        raise AssertionError("explained for nothing")

    monkeypatch.setattr("surgery.engine.why.explain.explain", explain)
    (step,) = applied(model, "{pass: drop-identity, expect: {sites: 1}}").steps
    assert step.status == "committed" and step.to_json()["why"] is None


def test_the_explanation_describes_the_model_before_the_step(model: Path) -> None:
    loaded = onnx.load(model)
    loaded.graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(loaded.graph.initializer[0]), "d"))
    onnx.save(loaded, model)
    result = applied(model, "drop-identity, {pass: drop-identity, expect: {sites: 1}}")
    assert [step.status for step in result.steps] == ["committed", "failed"]
    assert "it looked at 0 Identity" in result.steps[1].message
