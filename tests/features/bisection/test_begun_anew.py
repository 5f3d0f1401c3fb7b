"""Pieces that begin where only the model before them has a value, compared with that model."""

import json
from pathlib import Path

import pytest
from support import SUPPORT

from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.registry.catalog import catalog
from surgery.features.bisection.bisect import bisect
from surgery.model.graph import text

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x) => (float[n, 4] y)
<float[4] w = {1, -2, 3, 4}> {
    a = Tanh(x)
    s = Sub(a, w)
    i = Identity(s)
    e = Exp(i)
    y = Neg(e)
}"""
RULES = {
    "negate": {"match": "y = Sub(a, b)", "emit": "t = Neg(a)\nu = Add(t, b)\ny = Neg(u)"},
    "subtract": {"match": "b = Exp(a)\ny = Neg(b)", "emit": "b = Exp(a)\ny = Sub(0, b)"},
    "wrong": {"match": "b = Exp(a)\ny = Neg(b)", "emit": "b = Exp(a)\ny = Sub(1, b)"},
}
PIECE = "{extract: {inputs: Neg_output_0, outputs: y}}"


def recipe_of(steps: str, mode: str = "each") -> recipes.Recipe:
    rules = {name: rule for name, rule in RULES.items() if name in steps}
    return recipes.parse(
        f"recipe: test\nverify: {{mode: {mode}}}\nrules: {json.dumps(rules)}\nsteps: {steps}", "test.yaml"
    )


def apply(steps: str, mode: str = "each", source: str = MODEL) -> runner.Result:
    return runner.apply(text.parse(source), recipe_of(steps, mode))


def verdicts(result: runner.Result) -> list[tuple[str, str]]:
    return [(step.status, step.verdict.status if step.verdict else "") for step in result.steps]


def test_a_step_with_new_inputs_is_compared_with_the_model_before_it() -> None:
    result = apply(f"[negate, {PIECE}, drop-identity]")
    # Equal numbers give 0 by a difference and -0 by its negation: the region shows it, though Tanh never gives them.
    assert verdicts(result) == [("committed", "close"), ("committed", "equal"), ("committed", "equal")]
    assert [port.name for port in result.proto.graph.input] == ["Neg_output_0"]
    told = result.steps[1].verdict
    assert told is not None
    assert (
        "compared with the model before this step, because it cannot be compared with the original: input "
        "'Neg_output_0' is new" in (told.message)
    )


@pytest.mark.parametrize("rule", ["subtract", "wrong"])
def test_later_steps_are_compared_with_the_model_before_the_piece(rule: str) -> None:
    result = apply(f"[negate, {PIECE}, {rule}]")
    assert verdicts(result)[-1] == (("committed", "equal") if rule == "subtract" else ("failed", "different"))


def test_a_piece_is_compared_with_the_original_where_possible() -> None:
    result = apply("[negate, {extract: {inputs: a, outputs: y}}]")
    assert verdicts(result) == [("committed", "close"), ("committed", "equal")]
    assert result.steps[1].verdict and "compared with the model before" not in result.steps[1].verdict.message


def test_an_unverified_model_does_not_replace_the_original() -> None:
    result = apply(f"[negate, {{pass: wrong, on_failure: keep}}, {PIECE}]")
    assert [status for status, _ in verdicts(result)] == ["committed", "committed", "failed"]
    assert result.steps[2].verdict and result.steps[2].verdict.status == "unverified"
    assert "the original has no value of that name" in result.steps[2].message


def test_deferred_steps_are_verified_before_the_original_is_replaced() -> None:
    result = apply(f"[negate, {PIECE}, drop-identity]", "end")
    assert verdicts(result) == [
        ("committed", ""),
        ("committed", "equal"),
        ("committed", ""),
        ("committed", ""),
        ("committed", "equal"),
    ]
    assert [step.name for step in result.steps][1::3] == ["(before extract)", "(end)"]
    wrong = apply(f"[negate, wrong, {PIECE}, drop-identity]", "end")
    assert [(step.name, step.status) for step in wrong.steps] == [
        ("(before extract)", "rolled_back"),
        ("negate", "committed"),
        ("wrong", "failed"),
    ]
    wrong = apply(f"[negate, {PIECE}, wrong]", "end")
    assert [(step.name, step.status) for step in wrong.steps][::3] == [("(end)", "rolled_back"), ("wrong", "failed")]


def test_a_revised_piece_is_compared_with_the_piece() -> None:
    source = """<ir_version: 8, opset_import: ["" : 12, "local" : 1]>
    g (float[2, 3, 4] x) => (float[2, 3, 4] y) { p = Softmax<axis = 1>(x) s = local.f(p) i = Identity(s) y = Neg(i) }
    <domain: "local", opset_import: ["" : 12]> f (a) => (b) { b = Softmax<axis = 1>(a) }"""
    result = apply("[{extract: {inputs: s, outputs: y}}, {upgrade-opset: {to: 13}}, drop-identity]", source=source)
    assert verdicts(result) == [("committed", "equal")] * 3


def test_bisect_finds_a_wrong_site_after_a_piece(tmp_path: Path) -> None:
    catalog.load_plugin(str(SUPPORT / "plugin_small_wrong.py"))
    recipe = recipe_of(f"[negate, {PIECE}, {{scale-relu: {{error: 0.5}}}}]")
    blame = bisect(text.parse(MODEL.replace("e = Exp(i)", "r = Relu(i) e = Neg(r)")), recipe, output=tmp_path / "repro")
    assert blame.step is not None and blame.step.name == "scale-relu"
    assert len(blame.guilty) == 1 and blame.reproduced
