"""Passes that mean to compute something else: what is held against them, and what later steps are compared with."""

from pathlib import Path

import numpy as np
import pytest
from support import SUPPORT
from support.breadth import sampled

from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.registry.catalog import catalog
from surgery.features.bisection.bisect import bisect
from surgery.model.graph import text

PLUGIN = SUPPORT / "plugin_intended.py"
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 4] x) => (float[batch, 4] y, float[batch, 4] z) {
    i = Identity(x)
    y = Exp(i)
    z = Neg(y)
}"""


@pytest.fixture(autouse=True, scope="module")
def passes_of_the_tests() -> None:
    catalog.load_plugin(str(PLUGIN))


def apply(steps: str, source: str = MODEL, head: str = "") -> runner.Result:
    return runner.apply(text.parse(source), recipes.parse(f"recipe: test\n{head}\nsteps: {steps}", "test.yaml"))


def verdicts(result: runner.Result) -> list[tuple[str, str]]:
    return [(step.status, step.verdict.status if step.verdict else "") for step in result.steps]


@pytest.mark.parametrize("name", sampled(["int-swap", "int-proto"], 2))
def test_an_intended_change_becomes_the_reference_of_later_steps(name: str) -> None:
    result = apply(f"[{name}, drop-identity]")
    assert verdicts(result) == [("committed", "intended"), ("committed", "equal")]
    assert result.ok and result.exit_code == 0
    assert result.bindings
    step = result.steps[0].to_json()
    assert (step["verdict"], step["reason"]) == ("intended", None)
    assert result.steps[0].verdict and "intended change" in result.steps[0].verdict.message


def test_reverting_an_intended_change_is_a_difference() -> None:
    assert verdicts(apply("[int-swap, int-swap-honest]")) == [("committed", "intended"), ("failed", "different")]


def test_a_model_that_no_longer_runs_is_not_an_intended_change() -> None:
    result = apply("[int-does-not-run]")
    assert verdicts(result) == [("failed", "different")]
    assert result.exit_code == 1
    assert result.steps[0].message.startswith("the changed model does not run: ")


def test_a_model_that_now_gives_nan_is_not_an_intended_change() -> None:
    result = apply("[int-nan]")
    assert verdicts(result) == [("failed", "different")]
    assert result.steps[0].message.startswith("output 'y' is not finite, unlike in the previous model")


def test_outputs_may_stay_not_finite() -> None:
    source = MODEL.replace("y = Exp(i)", "e = Exp(i) q = Sub(e, e) y = Div(q, q)")
    assert verdicts(apply("[int-swap]", source)) == [("committed", "intended")]


@pytest.mark.parametrize(("unverified", "status"), [("refuse", "failed"), ("accept", "committed")])
def test_an_unsupported_operator_leaves_an_intended_change_unverified(unverified: str, status: str) -> None:
    result = apply("[int-unknown-op]", head=f"verify: {{unverified: {unverified}}}")
    assert verdicts(result) == [(status, "unverified")]
    assert result.steps[0].verdict and result.steps[0].verdict.reason == "not-run"


def test_an_intended_change_must_still_declare_signature_changes() -> None:
    (step,) = apply("[int-undeclared]").steps
    assert (step.status, step.verdict) == ("failed", None)
    assert step.message == "signature: output 'y' is missing; the pass does not declare that it changes outputs"


def test_new_inputs_and_outputs_are_compared_in_later_steps() -> None:
    result = apply("[int-new-ends, drop-identity]")
    assert verdicts(result) == [("committed", "intended"), ("committed", "equal")]
    graph = result.proto.graph
    assert [value.name for value in graph.input] == ["x", "factor"]
    assert [value.name for value in graph.output] == ["y", "z", "product"]


def test_rollback_keeps_the_original_as_the_reference() -> None:
    result = apply("[{pass: int-nan, on_failure: rollback}, drop-identity]")
    assert verdicts(result) == [("rolled_back", "different"), ("committed", "equal")]


def test_an_intended_change_without_effect_is_unchanged() -> None:
    assert verdicts(apply("[{int-swap: {old: Cos, new: Sin}}]")) == [("unchanged", "")]


def test_deferred_verification_splits_at_intended_changes() -> None:
    head = "verify: {mode: end}"
    result = apply("[drop-identity, int-swap, common-subexpressions]", head=head)
    assert [step.name for step in result.steps] == [
        "drop-identity",
        "(before int-swap)",
        "int-swap",
        "common-subexpressions",
    ]
    assert verdicts(result)[1:3] == [("committed", "equal"), ("committed", "intended")]
    result = apply("[int-swap, drop-identity]", head=head)
    assert verdicts(result)[-1] == ("committed", "equal") and result.steps[-1].name == "(end)"
    result = apply("[int-swap, int-swap-honest]", head=head)
    assert verdicts(result)[-1] == ("failed", "different")
    result = apply("[{int-swap-honest: {old: Exp, new: Tanh}}, int-swap]", head=head)
    assert verdicts(result)[-1] == ("failed", "different") and result.exit_code == 1


def test_without_verification_an_intended_change_is_not_run() -> None:
    result = apply("[int-nan, drop-identity]", head="verify: {mode: off}")
    assert verdicts(result) == [("committed", ""), ("committed", "")]


def test_input_sets_are_used_while_they_fit(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=np.ones((3, 4), np.float32))
    result = apply("[int-swap, drop-identity]", head=f"inputs: {{data: [{tmp_path / 'set.npz'}]}}")
    assert result.bindings[0]["character"] == "set.npz"
    result = apply("[int-new-ends, drop-identity]", head=f"inputs: {{data: [{tmp_path / 'set.npz'}]}}")
    assert verdicts(result) == [("committed", "intended"), ("committed", "equal")]
    assert result.steps[0].verdict and "'set.npz' no longer fit the model" in result.steps[0].verdict.message


def test_a_step_after_an_intended_change_can_be_bisected() -> None:
    source = MODEL.replace("z = Neg(y)", "t = Tanh(y) z = Tanh(t)")
    recipe = recipes.parse("recipe: test\nsteps: [int-swap, {int-swap-honest: {old: Tanh, new: Exp}}]", "test.yaml")
    blame = bisect(text.parse(source), recipe)
    assert blame.guilty
