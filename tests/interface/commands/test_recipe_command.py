"""`surgery recipe check` and `surgery recipe show`; what is shown is a recipe that means the same."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.short_models import without_residuals

from surgery.engine.recipe import PassStep, Recipe, RepeatStep, Step, load, parse, recipe_lookup, resolved
from surgery.engine.recipe import model as keys
from surgery.engine.recipe.rules import RulePass
from surgery.interface import commands as cli

RICH = """\
recipe: rich
about: |
  Two lines: # no comment
    with "quotes", a \\ and ünïcödé.
model: sub/model.onnx
output: "{stem}.opt.onnx"
plugins: [./mine.py, json]
rules:
  swish:
    about: One operator for two.
    match:
      - |
        s = Sigmoid(x)
        y = Mul(x, s)
      - y = com.acme::Swish(x)
    where:
      - rank(x) == 4: the rank is another one
      - rank(y) == 4
    emit: |
      y = Neg(x)
    opset: ">= 13"
    parity: lossy
inputs:
  dims: {batch: [1, 3], "odd name": 8}
  tensors: {mask: {values: [0, 1, true, "on", "5"]}, ids: {range: [0, .5]}, weights: {file: w.npy}}
  data: set.npz
  generator: mine.py:make
  only_given: true
verify: {rtol: 1e-4, atol: 1e-9, seed: 3, mode: end, unverified: accept, timeout: 60, memory: 2GiB}
accuracy:
  budget: {all: cosine >= 0.9, y: snr >= 30 dB}
  metric: {function: mine.py:score, drop: 0.5 %, better: lower}
  sets: 4
calibration: {sets: 2}
steps:
  - swish
  - use: tidy
    when: {nodes: "> 3"}
  - use: inner.yaml
  - fold-constants: {max_growth: 1MB, keep_dequantize: false}
  - repeat: 3
    when: {opset: "< 20"}
    steps: [drop-dead, repeat: until-stable, steps: [drop-identity]]
  - pass: upgrade-opset
    with: {to: 24}
    when: {ops: {Softmax: ">= 1", com.acme::X: 0}, nodes: "> 10"}
    on_failure: rollback
    expect: {sites: "!= 12", signature: unchanged}
on_failure: rollback
target: ort-cpu
expect: {ops: {Dropout: 0}, nodes: "<= 500", signature: unchanged, executed: "<= 1x", speed: 1.5, empty: allowed}
baseline: {report: last.json, nodes: "<= 1x", speed: ">= 0.9x"}
provenance: false
""".replace(
    "[drop-dead, repeat: until-stable, steps: [drop-identity]]", "[drop-dead, {repeat: until-stable, steps: [swish]}]"
)
INNER = """\
recipe: inner
model: other.onnx
rules:
  own: {match: "y = Neg(x)", emit: "y = Abs(x)"}
plugins: ./theirs.py
steps: [own, use: tidy]
expect: {nodes: 3}
""".replace("[own, use: tidy]", "[own, {use: tidy}]")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.py", "theirs.py", "w.npy", "set.npz"):
        Path(name).touch()
    Path("rich.yaml").write_text(RICH)
    Path("inner.yaml").write_text(INNER)
    return tmp_path


def meaning(recipe: Recipe, *, nested: bool = False) -> Any:
    """All that counts of a recipe: with bound options, absolute paths and the texts of rules, without places."""
    rules = {name: (made.rule, made.parity) for name, made in recipe.rules.items() if isinstance(made, RulePass)}
    own = (recipe.name, recipe.about, rules, tuple(map(_meaning, recipe.steps)), recipe.on_failure, recipe.expect)
    if nested:
        return own
    model = recipe.model.absolute() if recipe.model else None
    inputs = replace(
        recipe.inputs,
        tensors={name: replace(s, file=s.file and s.file.absolute()) for name, s in recipe.inputs.tensors.items()},
        data=tuple(data.path.absolute() for data in recipe.inputs.data),  # type: ignore[misc]
        generator=recipe.inputs.generator
        and (recipe.inputs.generator.file.absolute(), recipe.inputs.generator.function),  # type: ignore[arg-type]
    )
    baseline = recipe.baseline and replace(recipe.baseline, report=recipe.baseline.report.absolute())
    own = (*own, recipe.target, recipe.provenance, baseline)
    accuracy = recipe.verify.accuracy
    metric = accuracy.metric and replace(accuracy.metric, file=accuracy.metric.file.absolute())
    return (*own, model, recipe.output, inputs, replace(recipe.verify, accuracy=replace(accuracy, metric=metric)))


def _meaning(step: Step) -> Any:
    if isinstance(step, PassStep):
        return step.name, step.find().bind(step.options), step.on_failure, step.when, step.expect, bool(step.declared)
    if isinstance(step, RepeatStep):
        return step.times, tuple(map(_meaning, step.steps)), step.when
    return meaning(step.recipe, nested=True), step.when


@pytest.mark.parametrize("name", recipe_lookup.names())
def test_shipped_recipes_mean_the_same(name: str, tmp_path: Path) -> None:
    recipe = load(name)
    shown = parse(resolved.text(recipe), tmp_path / "shown.yaml")
    assert meaning(shown) == meaning(recipe)


def test_a_rich_recipe_means_the_same(folder: Path) -> None:
    recipe = load("rich.yaml", trust=True)
    text = resolved.text(recipe)
    shown = parse(text, folder / "elsewhere" / "shown.yaml", trust=True)
    assert meaning(shown) == meaning(recipe)
    # What a nested recipe would have imported is imported for it.
    assert shown.plugins == (f"{folder}/mine.py", "json", f"{folder}/theirs.py")
    again = resolved.text(shown)
    assert _without_comments(again) == _without_comments(text)
    # The recipe has all keys.
    assert set(resolved.data(shown)) == {field.alias or name for name, field in keys.Recipe.model_fields.items()}


def _without_comments(text: str) -> list[str]:
    return [line.split("  # ")[0] for line in text.splitlines() if not line.startswith("#")]


def test_the_resolved_text_is_readable(folder: Path) -> None:
    lines = resolved.text(load("rich.yaml", trust=True)).splitlines()
    assert lines[0].startswith("# From rich.yaml. ")
    options = "{max_growth: 1MB, max_percent: 1.0, keep_dequantize: false, lift_constants: true}"
    for line in (
        'output: "{stem}.opt.onnx"',
        "    match:",
        "      - |",
        "        s = Sigmoid(x)",
        f"  - use:  # {recipe_lookup.folder()}/tidy.yaml",
        "  - use:  # inner.yaml",
        f"  - fold-constants: {options}",
        "  - pass: upgrade-opset",
        "    with: {to: 24}",
        "  dims: {batch: [1, 3], odd name: [8]}",
        '    when: {ops: {Softmax: ">= 1", "com.acme::X": 0}, nodes: "> 10"}',
    ):
        assert line in lines, line
    assert all(line == line.rstrip() for line in lines)


def test_the_deepest_nesting_can_be_shown(folder: Path) -> None:
    for n in range(7):
        text = f"recipe: r{n}\nsteps: [{{repeat: 2, steps: [drop-dead, {{use: r{n + 1}.yaml}}]}}]\n"
        Path(f"r{n}.yaml").write_text(text)
    Path("r7.yaml").write_text("steps: [{repeat: 2, steps: [drop-identity]}]\n")
    recipe = load("r0.yaml")
    assert meaning(parse(resolved.text(recipe), "shown.yaml")) == meaning(recipe)


def test_json_has_the_same_recipe(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["recipe", "show", "rich.yaml", "--trust", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["model"] == f"{folder}/sub/model.onnx"
    Path("again.yaml").write_text(json.dumps(data))
    assert meaning(load("again.yaml", trust=True)) == meaning(load("rich.yaml", trust=True))


def test_the_shown_recipe_gives_the_same_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(without_residuals("mobilenet-tiny"), "model.onnx")
    assert cli.main(["recipe", "show", "vision"]) == 0
    Path("shown.yaml").write_text(capsys.readouterr().out)
    outcomes = []
    for recipe in ("vision", "shown.yaml"):
        output = ["-o", f"{len(outcomes)}.onnx", "--no-provenance"]
        assert cli.main(["apply", recipe, "model.onnx", "--format", "json", *output]) == 0
        steps = json.loads(capsys.readouterr().out)["steps"]
        outcomes.append([(step["pass"], step["status"], step["nodes_after"]) for step in steps])
    assert outcomes[0] == outcomes[1]
    assert Path("0.onnx").read_bytes() == Path("1.onnx").read_bytes()


def test_check_lists_all_mistakes_of_all_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.yaml").write_text("abuot: x\nsteps: [drop-identityy]\n")
    Path("b.yaml").write_text("steps: []\n")
    assert cli.main(["recipe", "check", "a.yaml", "tidy", "b.yaml", "none.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == "tidy: fine, 7 passes\n"
    assert err.splitlines()[:3] == [
        "a.yaml:1:1: no key 'abuot'; did you mean 'about'?",
        "a.yaml:2:9: no pass 'drop-identityy'; did you mean 'drop-identity'?",
        "b.yaml:1:8: 'steps' lists no step; name at least one pass",
    ]
    assert err.splitlines()[3].startswith("none.yaml: recipe 'none.yaml' does not exist; ")
    assert cli.main(["recipe", "check", "a.yaml", "tidy", "--format", "json"]) == 2
    wrong, fine = json.loads(capsys.readouterr().out)["recipes"]
    assert not wrong["ok"] and wrong["problems"][1]["column"] == 9
    assert fine["ok"] and fine["steps"] == 7


def test_check_asks_for_trust_next_to_other_mistakes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("rich.yaml").write_text(RICH.replace("steps:\n", "stesp: 1\nsteps:\n", 1))
    assert cli.main(["recipe", "check", "rich.yaml"]) == 2
    err = capsys.readouterr().err
    assert "wants to run ./mine.py" in err and "wants to run ./theirs.py" in err and "'stesp'" in err


def test_the_name_of_a_refused_recipe_stands_once(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    Path("own.yaml").write_text("plugins: [./mine.py]\nsteps: [drop-identity]\n")
    assert cli.main(["recipe", "check", "own.yaml"]) == 2
    assert capsys.readouterr().err.startswith("own.yaml wants to run ./mine.py (")
    Path("plan.json").write_text('{"format": "surgery-plan"}')
    assert cli.main(["recipe", "check", "plan.json"]) == 2
    assert capsys.readouterr().err == "plan.json: is a plan, not a recipe; apply it: surgery apply PLAN\n"


def test_a_missing_model_is_a_remark(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["recipe", "check", "rich.yaml", "--trust"]) == 0
    assert "its model sub/model.onnx does not exist" in capsys.readouterr().out


def test_an_inline_recipe_in_use() -> None:
    text = "steps: [{use: {recipe: group, steps: [drop-dead], expect: {nodes: 3}}, when: {nodes: 3}}]"
    (step,) = parse(text).steps
    assert asdict(step)["recipe"]["name"] == "group"
    assert step.when is not None


@pytest.mark.parametrize(
    ("use", "mistake"),
    [
        ("{recipe: x}", "1:15: a recipe needs 'steps', a list of passes"),
        ("{steps: []}", "1:23: 'steps' lists no step; name at least one pass"),
        ("{steps: [drop-deed]}", "1:24: no pass 'drop-deed'; did you mean 'drop-dead'?"),
        (
            "{steps: [drop-dead], model: x}",
            "1:36: no key 'model'; known here: recipe, about, rules, on_failure, steps, expect",
        ),
        ("[tidy]", "1:15: 'use' takes the name or path of a recipe, not a list"),
    ],
)
def test_mistakes_in_an_inline_recipe(use: str, mistake: str) -> None:
    from surgery.base.errors import RecipeError

    with pytest.raises(RecipeError) as caught:
        parse(f"steps: [{{use: {use}}}]", "r.yaml")
    assert str(caught.value) == f"r.yaml:{mistake}"
