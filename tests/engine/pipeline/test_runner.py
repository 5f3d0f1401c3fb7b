"""Transactions: what is committed, what is rolled back, what a recipe is told."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import SUPPORT

from surgery.base.errors import OutputError, PassError
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import pipeline, runner
from surgery.engine.registry.catalog import catalog
from surgery.model.graph import text

PLUGIN = SUPPORT / "plugin_wrong.py"
MODEL = """g (float[batch, 4] x) => (float[batch, 4] y)
<float[4, 4] w = {1, -2, 3, 4, 5, -6, 7, 8, 9, 1, -2, 3, 4, 5, -6, 7}, float[4] b = {1, -2, 3, -4}> {
    i = Identity(x)
    d = Dropout(i)
    m = MatMul(d, w)
    a = Add(m, b)
    r = Relu(a)
    y = Neg(r)
}"""


@pytest.fixture(autouse=True, scope="module")
def wrong_passes() -> None:
    catalog.load_plugin(str(PLUGIN))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(text.parse(MODEL), path)
    return path


def apply(model: Path, steps: str, **options: Path) -> runner.Result:
    recipe = recipes.parse(f"recipe: test\n{steps}", "test.yaml")
    return runner.apply(model, recipe, **options)  # type: ignore[arg-type]


def statuses(result: runner.Result) -> dict[str, str]:
    return {step.name: step.status for step in result.steps}


def infer(path: Path, x: np.ndarray) -> np.ndarray:
    """Run a model in a plain reference evaluator, which shares no code with the runner."""
    from onnx.reference import ReferenceEvaluator

    return np.asarray(ReferenceEvaluator(str(path)).run(None, {"x": x})[0])


def test_correct_steps_are_committed_and_the_output_agrees(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    result = apply(model, "steps: [drop-identity, drop-dropout, fuse-matmul-add, drop-no-op]", output=output)
    assert statuses(result) == {
        "drop-identity": "committed",
        "drop-dropout": "committed",
        "fuse-matmul-add": "committed",
        "drop-no-op": "unchanged",
    }
    assert result.ok and result.exit_code == 0
    assert result.output.ops == {"Gemm": 1, "Neg": 1, "Relu": 1}
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    np.testing.assert_allclose(infer(output, x), infer(model, x), rtol=1e-5)
    assert {step.verdict.status for step in result.steps if step.verdict} <= {"equal", "close"}


def test_an_unchanged_step_is_not_verified(model: Path) -> None:
    result = apply(model, "steps: [merge-transposes]")
    assert [(step.status, step.verdict, step.sites) for step in result.steps] == [("unchanged", None, 0)]
    assert result.steps[0].exit_code == 0
    assert result.proto is result.stored.proto


def test_a_wrong_pass_ends_the_run_without_an_output(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    result = apply(model, "steps: [drop-identity, wrong-drop-relu, drop-dropout]", output=output)
    assert statuses(result) == {"drop-identity": "committed", "wrong-drop-relu": "failed"}
    assert result.failure is not None and result.failure.verdict is not None
    assert result.failure.verdict.status == "different"
    assert result.exit_code == 1
    assert not output.exists()


def test_a_wrong_pass_is_rolled_back_and_the_rest_is_committed(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    steps = "steps: [drop-identity, {pass: wrong-drop-relu, on_failure: rollback}, drop-dropout]"
    result = apply(model, steps, output=output)
    assert statuses(result) == {
        "drop-identity": "committed",
        "wrong-drop-relu": "rolled_back",
        "drop-dropout": "committed",
    }
    assert result.exit_code == 0
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_array_equal(infer(output, x), infer(model, x))


def test_the_option_for_failures_comes_before_that_of_the_recipe(model: Path) -> None:
    wrong = recipes.parse("recipe: t\non_failure: rollback\nsteps: [wrong-drop-relu]")
    for option, status in ((None, "rolled_back"), ("keep", "committed"), ("abort", "failed")):
        found = runner.apply(model, wrong, options=runner.RunOptions(on_failure=option))
        assert [step.status for step in found.steps] == [status]
        assert found.made_by is not None and found.made_by.on_failure == (option or "rollback")


def test_keep_commits_in_spite_of_the_verdict(model: Path) -> None:
    result = apply(model, "steps: [{pass: wrong-drop-relu, on_failure: keep}]")
    (step,) = result.steps
    assert (step.status, step.verdict and step.verdict.status) == ("committed", "different")
    assert "Relu" not in result.output.ops


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("wrong-rename-output", 1, "signature: output"),
        ("wrong-invalid-node", 1, "checker: "),
        ("wrong-raise", 3, "pass 'wrong-raise' raised ValueError: gave up"),
        ("wrong-by-a-little", 1, "y"),
    ],
)
def test_each_kind_of_difference_is_named(model: Path, name: str, code: int, message: str) -> None:
    result = apply(model, f"steps: [{name}]")
    assert (result.steps[0].status, result.exit_code) == ("failed", code)
    assert message in result.steps[0].message
    assert result.proto is result.stored.proto


def test_a_pass_that_raises_leaves_the_model_unchanged(model: Path) -> None:
    result = apply(model, "steps: [{pass: wrong-raise, on_failure: rollback}, drop-identity]")
    assert statuses(result) == {"wrong-raise": "rolled_back", "drop-identity": "committed"}
    assert "Abs" not in result.output.ops


def test_the_tolerance_of_the_recipe_is_used(model: Path) -> None:
    steps = "steps: [{wrong-by-a-little: {error: 0.001}}]"
    assert apply(model, steps).exit_code == 1
    loose = apply(model, f"verify: {{rtol: 0.01, atol: 0.0}}\n{steps}")
    assert loose.ok
    assert loose.steps[0].verdict is not None and loose.steps[0].verdict.needed is not None
    assert 1e-4 < loose.steps[0].verdict.needed["rtol"] < 1e-2


def test_conditions_and_expectations(model: Path) -> None:
    result = apply(
        model,
        """steps:
  - {pass: drop-dropout, when: {ops: {Dropout: ">= 2"}}}
  - {pass: drop-identity, expect: {sites: 1, ops: {Identity: 0}}}
expect: {nodes: "<= 5", ops: {Dropout: 0}, signature: unchanged}
""",
    )
    assert statuses(result) == {"drop-dropout": "skipped", "drop-identity": "committed"}
    assert [(item.what, item.ok) for item in result.expectations] == [
        ("drop-identity: Identity: == 0 (found 0)", True),
        ("drop-identity: sites: == 1 (found 1)", True),
        ("Dropout: == 0 (found 1)", False),
        ("nodes: <= 5 (found 5)", True),
        ("signature: unchanged", True),
    ]
    assert result.exit_code == 1


def test_an_expectation_of_a_step_fails_the_step(model: Path) -> None:
    result = apply(model, "steps: [{pass: drop-identity, expect: {sites: 12}}]")
    assert result.steps[0].status == "failed"
    assert "sites: == 12 (found 1)" in result.steps[0].message
    assert result.exit_code == 1


def test_repeat_runs_until_nothing_changes(model: Path) -> None:
    result = apply(model, "steps: [{repeat: until-stable, steps: [drop-identity, drop-dropout]}]")
    assert [step.status for step in result.steps] == ["committed", "committed", "unchanged", "unchanged"]
    again = apply(model, "steps: [{repeat: 1, steps: [drop-identity]}]")
    assert len(again.steps) == 1


def test_passes_that_undo_each_other_are_found(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_MOST_ROUNDS", 5)
    with pytest.raises(PassError, match="still changing after 5 rounds"):
        apply(model, "verify: {mode: 'off'}\nsteps: [{repeat: until-stable, steps: [wrong-by-a-little]}]")


def test_verification_at_the_end_only(model: Path) -> None:
    result = apply(model, "verify: {mode: end}\nsteps: [drop-identity, drop-dropout]")
    assert [step.verdict is not None for step in result.steps] == [False, False, True]
    wrong = apply(model, "verify: {mode: end}\nsteps: [drop-identity, wrong-drop-relu]")
    assert wrong.exit_code == 1
    # The step to blame is named, by the run in which each is verified.
    assert [(step.name, step.status) for step in wrong.steps] == [
        ("(end)", "rolled_back"),
        ("drop-identity", "committed"),
        ("wrong-drop-relu", "failed"),
    ]
    assert wrong.steps[0].verdict is not None and wrong.steps[0].verdict.status == "different"


def test_an_existing_output_is_not_overwritten(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    output.write_bytes(b"precious")
    with pytest.raises(OutputError, match="exists"):
        apply(model, "steps: [drop-identity]", output=output)
    assert output.read_bytes() == b"precious"


def test_the_report_has_the_documented_fields(model: Path) -> None:
    data = apply(model, "steps: [drop-identity]\nexpect: {signature: unchanged}").to_json()
    assert list(data) == [
        *(
            "ok",
            "recipe",
            "input",
            "output",
            "steps",
            "expectations",
            "end",
            "deployed",
            "cached",
            "figures",
            "bindings",
        ),
        *("providers", "seconds", "strict", "original", "unverifiable", "misfits", "shortfall"),
        *("shortfalls", "refused"),
    ]
    assert set(data["input"]) == set(data["output"]) == {"path", "nodes", "ops", "bytes", "sha256"}
    (step,) = data["steps"]
    assert set(step) == {
        "pass",
        "status",
        "sites",
        "verdict",
        "reason",
        "needed",
        "details",
        "region",
        "together",
        "nodes_before",
        "nodes_after",
        "seconds",
        "cached",
        "message",
        "refused_sites",
        "kept",
        "defects",
        "why",
        "where",
        "applied",
        "declined",
    }
    assert data["expectations"] == [{"what": "signature: unchanged", "ok": True}]
    assert len(data["bindings"]) >= 2
    assert len({binding["dims"]["batch"] for binding in data["bindings"]}) >= 2


def test_an_exact_step_after_a_close_step_must_match_the_previous_step(model: Path) -> None:
    close = "{wrong-by-a-little: {error: 0.000001}}"
    right = apply(model, f"steps: [{close}, drop-identity]")
    assert [step.status for step in right.steps] == ["committed", "committed"]
    assert [step.verdict and step.verdict.status for step in right.steps] == ["close", "equal"]
    wrong = apply(model, f"steps: [{close}, wrong-not-exact]")
    assert [step.status for step in wrong.steps] == ["committed", "failed"]
    assert "bit-identical to the previous step" in wrong.steps[1].message


def test_an_unrunnable_step_is_committed_only_if_unverified_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(text.parse("g (float[N] x) => (float[N] y) { s = Sigmoid(x) y = Mul(x, s) }"), path)
    # No release has an operator that somebody else defines.
    rule = {"match": "s = Sigmoid(x)\ny = Mul(x, s)", "emit": "y = com.acme::Swish(x)"}
    steps = f"rules: {json.dumps({'swish': rule})}\nsteps: [swish]"
    (step,) = apply(path, steps).steps
    assert (step.status, step.verdict and step.verdict.reason) == ("failed", "not-run")
    assert (
        step.message
        == "com.acme:Swish is a custom operator that is in no --custom-op-library or verify.custom_op_library"
    )
    (step,) = apply(path, f"verify: {{unverified: accept}}\n{steps}").steps
    assert (step.status, step.verdict and step.verdict.status) == ("committed", "unverified")


def test_a_used_recipe_compares_with_the_signature_of_its_input_model(tmp_path: Path) -> None:
    (tmp_path / "inner.yaml").write_text("recipe: inner\nsteps: [drop-identity]\nexpect: {signature: unchanged}\n")
    outer = (
        "recipe: outer\nsteps:\n  - rename: {inputs: {x: image}}\n  - use: inner.yaml\nexpect: {signature: unchanged}\n"
    )
    (tmp_path / "outer.yaml").write_text(outer)
    model = text.parse("g (float[2] x) => (float[2] y) { i = Identity(x) y = Relu(i) }")
    result = runner.apply(model, tmp_path / "outer.yaml")
    assert [step.status for step in result.steps] == ["committed", "committed"]
    assert [(item.what, item.ok) for item in result.expectations] == [
        ("inner: signature: unchanged", True),
        ("signature: unchanged", False),
    ]
