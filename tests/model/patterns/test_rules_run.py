"""Rules in a run: as good as the passes that do the same, and treated like any pass."""

import re
from pathlib import Path

import onnx
import pytest
from support import ROOT
from support.breadth import sampled

from surgery.engine.pipeline.records import Result
from surgery.engine.pipeline.runner import apply
from surgery.engine.recipe import Recipe, parse
from surgery.interface import commands as cli
from surgery.model.graph import text

GUIDE = (ROOT / "docs" / "how-to" / "write-a-rule.md").read_text(encoding="utf-8")
NO_DROPOUT, FOLD_BN = re.findall(r"^rules:\n(.*?)^steps:", GUIDE, flags=re.MULTILINE | re.DOTALL)[:2]


def recipe(rules: str, steps: str, more: str = "") -> Recipe:
    return parse(f"rules:\n{rules}steps:\n{steps}\n{more}", "r.yaml")


def model(source: str) -> onnx.ModelProto:
    return text.parse(source)


def ops(result: Result) -> dict[str, int]:
    return dict(result.output.ops)


CLEAN = "  - use: tidy\n  - fold-constants\n  - drop-no-op\n  - fold-constants\n"


@pytest.mark.parametrize(
    ("name", "rules", "mine", "theirs", "by"),
    sampled(
        [
            ("bert-dropout-tiny", NO_DROPOUT, ["remove-dropout"], "drop-dropout", "remove-dropout"),
            pytest.param(
                *("resnet-tiny", FOLD_BN, ["fold-bn", "fold-bn-with-bias"], "fuse-conv-bn", "fold-bn"),
                marks=pytest.mark.slow,
            ),
            ("mobilenet-tiny", FOLD_BN, ["fold-bn", "fold-bn-with-bias"], "fuse-conv-bn", "fold-bn-with-bias"),
        ],
        3,
    ),
)
def test_a_rule_gives_the_same_result_as_the_pass(
    name: str, rules: str, mine: list[str], theirs: str, by: str, short_models: Path
) -> None:
    clean = "" if name == "bert-dropout-tiny" else CLEAN
    end = "  - fold-constants\nverify: {mode: end}\n"
    found = recipe(rules, clean + "".join(f"  - {rule}\n" for rule in mine) + end)
    one, other = (
        apply(short_models / f"{name}.onnx", each) for each in (found, parse(f"steps:\n{clean}  - {theirs}\n{end}"))
    )
    assert one.ok and other.ok
    assert ops(one) == ops(other)
    assert sites(one, by) == sites(other, theirs) > 0


def sites(result: Result, name: str) -> int:
    return next(step.sites for step in result.steps if step.name == name)


WRONG = """\
  halve:
    match: y = Relu(x)
    emit: |
      t = Abs(x)
      y = Mul(t, 0.5)
    where:
      - dims(x)[-1] == 4
"""
RELUS = "g (float[2,4] x, float[2,3] z) => (float[2,4] y, float[2,3] u) { y = Relu(x) u = Relu(z) }"


def test_a_wrong_rule_is_found_and_rolled_back() -> None:
    result = apply(model(RELUS), recipe(WRONG, "  - halve"))
    (step,) = result.steps
    assert (step.status, step.sites, step.exit_code) == ("failed", 1, 1)
    assert step.verdict is not None and step.verdict.status == "different"
    assert [refused.reason for refused in step.refusals] == [
        "dims(x)[-1] == 4 does not hold: dims(x)[-1] is 3",
    ]
    assert step.where == "r.yaml:10"
    result = apply(model(RELUS), recipe(WRONG, "  - pass: halve\n    on_failure: rollback"))
    assert (result.ok, result.steps[0].status) == (True, "rolled_back")


def test_bisect_leaves_out_the_sites_that_are_wrong() -> None:
    rules = "  clip:\n    match: y = Relu|Abs(x)\n    emit: y = Max(x, 0)\n"
    source = RELUS.replace("u = Relu(z)", "u = Abs(z)")
    result = apply(model(source), recipe(rules, "  - pass: clip\n    on_failure: bisect"))
    (step,) = result.steps
    assert (step.status, step.sites, len(step.refused_sites)) == ("committed", 1, 1)


def test_a_broken_promise_is_found() -> None:
    rules = "  half:\n    match: y = Div(x, 3)\n    emit: y = Mul(x, 0.333333343)\n    parity: exact\n"
    source = "g (float[64] x) => (float[64] y) <float k = {3}> { y = Div(x, k) }"
    assert not apply(model(source), recipe(rules, "  - half")).ok
    assert apply(model(source), recipe(rules.replace("exact", "close"), "  - half")).ok


def test_an_expectation_of_sites_is_explained() -> None:
    rules = "  swap:\n    match: |\n      t = Neg(x)\n      y = Neg(t)\n    emit: y = x\n    where: rank(x) == 1\n"
    steps = "  - pass: swap\n    expect: {sites: 2}"
    source = (
        "g (float[4] x, float[2,2] z) => (float[4] y, float[2,2] u) { a = Neg(x) y = Neg(a) b = Neg(z) u = Neg(b) }"
    )
    (step,) = apply(model(source), recipe(rules, steps)).steps
    assert step.status == "failed"
    assert "sites: == 2 (found 1)" in step.message
    assert [refused.reason for refused in step.refusals] == ["rank(x) == 1 does not hold: rank(x) is 2"]


def test_conditions_of_the_step_and_rounds() -> None:
    rules = "  peel:\n    match: |\n      t = Abs(x)\n      y = Abs(t)\n    emit: y = Abs(x)\n"
    source = "g (float[4] x) => (float[4] y) { a = Abs(x) b = Abs(a) c = Abs(b) y = Abs(c) }"
    steps = "  - repeat: until-stable\n    steps:\n      - pass: peel\n        when: {ops: {Abs: '> 2'}}"
    result = apply(model(source), recipe(rules, steps, "expect: {ops: {Abs: 1}}"))
    assert result.ok
    assert [step.status for step in result.steps] == ["committed", "skipped"]


def test_two_recipes_can_have_rules_of_the_same_name(tmp_path: Path) -> None:
    inner = "rules:\n  change:\n    match: y = Relu(x)\n    emit: y = Max(x, 0)\nsteps: [change]\n"
    outer = "rules:\n  change:\n    match: y = Identity(x)\n    emit: y = x\nsteps: [change, use: inner.yaml, change]\n"
    (tmp_path / "inner.yaml").write_text(inner)
    found = parse(outer, tmp_path / "outer.yaml")
    result = apply(model("g (float[4] x) => (float[4] y) { a = Relu(x) y = Abs(a) }"), found)
    assert [(step.name, step.status) for step in result.steps] == [
        ("change", "unchanged"),
        ("change", "committed"),
        ("change", "unchanged"),
    ]
    assert ops(result) == {"Max": 1, "Abs": 1}


def test_an_endless_rule_fails_with_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(model(RELUS), tmp_path / "m.onnx")
    rules = (
        "rules:\n  grow:\n    match: y = Relu(x)\n    emit: |\n      t = Neg(x)\n      u = Neg(t)\n      y = Relu(u)\n"
    )
    (tmp_path / "r.yaml").write_text(rules + "steps: [grow]\n")
    assert cli.main(["apply", str(tmp_path / "r.yaml"), str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx")]) == 3
    assert "pass 'grow' does not terminate; its result matches its own pattern" in " ".join(
        capsys.readouterr().out.split()
    )
    assert not (tmp_path / "o.onnx").exists()


def test_the_command_line_shows_all_mistakes_with_carets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("rules:\n  r:\n    match: y = Rleu(x)\n    emit: |\n      y = Abs(z)\nsteps: [r]\n")
    assert cli.main(["apply", str(path), "m.onnx"]) == 2
    shown = capsys.readouterr().err
    assert f"{path}:3:16: ONNX has no operator 'Rleu'; did you mean 'Relu'?\n" in shown
    assert "\n          y = Abs(z)\n                  ^" in shown
