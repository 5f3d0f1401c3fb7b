"""What reports say holds to the letter."""

from pathlib import Path

import numpy as np
import onnxruntime
from onnx import numpy_helper
from rich.console import Console

from surgery.engine import recipe
from surgery.engine.pipeline import runner
from surgery.engine.registry.catalog import catalog
from surgery.engine.why import explain
from surgery.interface.report import terminal
from surgery.model import storage
from surgery.model.graph import text
from surgery.verification.comparing.compare import Element, describe


def said(result: runner.Result, *, every: bool = False) -> str:
    console = Console(width=200, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(terminal.result(result, every=every))
    return captured.get()


def test_input_sets_are_not_mentioned_if_nothing_was_run() -> None:
    model = text.parse("g (float[n] x) => (float[n] y) { y = Relu(x) }")
    result = runner.apply(model, recipe.parse("steps: [{rename: {outputs: {y: z}}}]"))
    assert result.ok and "nothing was run" in said(result) and " inputs" not in said(result)
    model = text.parse("g (float[n] x) => (float[n] y) { i = Identity(x) y = Relu(i) }")
    assert "Same results, bit for bit, on" in said(runner.apply(model, recipe.parse("steps: [drop-identity]")))


def test_a_single_pass_that_changes_nothing_says_why() -> None:
    model = text.parse("g (float[n] x) => (float[n] y) { y = Relu(x) }")
    upgraded = said(runner.apply(model, recipe.parse("steps: [{upgrade-opset: {to: 13}}]")))
    assert "ok: nothing to change: 'upgrade-opset' found that the model has a newer opset, but" in upgraded, upgraded
    assert said(runner.apply(model, recipe.parse("steps: [drop-identity]"))).rstrip().endswith("ok: nothing to change")
    several = said(runner.apply(model, recipe.parse("steps: [{upgrade-opset: {to: 13}}, drop-identity]")))
    assert several.rstrip().endswith("ok: nothing to change")


def test_no_inputs_are_asked_for_if_the_model_runs_on_none() -> None:
    """ONNX Runtime has no kernels for opset 6, and the evaluator of onnx has no Dropout of it."""
    model = text.parse("g (float[2,4] x) => (float[2,4] y) { d = Dropout<is_test = 1>(x) y = Relu(d) }", opset=6)
    line = said(runner.apply(model, recipe.parse("steps: [{upgrade-opset: {to: 13}}]")))
    assert "cannot be verified" in line and "--unverified accept accepts the step unverified" in line, line
    assert "--inputs" not in line, line


def test_the_steps_that_were_verified_in_regions_are_counted() -> None:
    body = "i = Identity(x) t = Tanh(i) z = Add(t, t) s = Sub(z, t) y = Relu(s)"
    model = text.parse(f"g (float[n,4] x) => (float[n,4] y) {{ {body} }}")
    result = runner.apply(model, recipe.parse("steps: [drop-identity]"))
    details = " ".join(said(result, every=True).split())
    assert result.ok and "; 1 of 1 step verified in the region of their change" in details, details


def test_the_reference_of_a_lossy_step_has_not_run_on_any_input_sets() -> None:
    """A step is verified, then a lossy one replaces the reference, and no later step needs that to run."""
    model = text.parse("g (float[1,4] x) => (float[1,4] y) { i = Identity(x) y = MatMul(i, w) }")
    weight = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    steps = "accuracy: {budget: snr >= 10 dB}\nsteps: [drop-identity, to-float16]"
    result = runner.apply(model, recipe.parse(steps))
    line = " ".join(said(result).split())
    assert result.ok and line.rpartition("ok: ")[2].startswith("less accurate on purpose, within the budget: SNR"), line
    assert ". Otherwise same results, bit for bit, on 28 inputs." in line and ",," not in line, line
    details = " ".join(said(result, every=True).split())
    assert "after the other steps, every output" in details, details
    assert "or the model after the last lossy step," in details and ",," not in details, details
    assert "0 input" not in line and "0 input" not in details, details


def test_a_model_that_cannot_run_was_not_compared_as_a_whole_after_a_lossy_step_either() -> None:
    model = text.parse("""<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
        g (float[2,4] x) => (float[2,4] y) <float[4,4] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}>
        { i = MatMul(x, w) s = Neg(i) t = Neg(s) m = MatMul(t, w) y = acme.Foo(m) }""")
    steps = "accuracy: {budget: snr >= 10 dB}\nsteps: [drop-no-op, to-float16]"
    result = runner.apply(model, recipe.parse(steps))
    told = "results around each change; the whole model could not be compared: acme:Foo is a custom operator"
    assert result.ok and f". Otherwise same {told}" in " ".join(said(result).split()), said(result)
    every = " ".join(said(result, every=True).split())
    assert "in the region of their change; the whole model could not be compared: acme:Foo" in every, every


def test_a_matching_pattern_is_not_reported_to_lack_operators() -> None:
    stored = storage.from_proto(
        text.parse("""g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {1,2,3,4}, float[2] b = {1,2}> {
            m = MatMul(x, w) y = Add(m, b) }""")
    )
    found = explain.explain(catalog.find("fuse-matmul-add"), stored.proto, stored.weights)
    assert len(found.sites) == 1 and found.absent == ()
    without = storage.from_proto(text.parse("g (float[2,2] x) => (float[2,2] y) { y = Add(x, x) }"))
    assert explain.explain(catalog.find("fuse-matmul-add"), without.proto, without.weights).absent == ("MatMul",)


def test_two_numbers_that_differ_are_written_differently() -> None:
    one = Element("y", (), (0,), -3.0, -3.0000000000004, 0.0, None)
    assert describe(one) == "output 'y'[0]: -3.0000000000004001 instead of -3"
    assert describe(Element("y", (), (0,), 0.5, 0.25, 0.0, None)) == "output 'y'[0]: 0.25 instead of 0.5"


def test_labels_that_differ_between_near_ties_are_called_so(tmp_path: Path) -> None:
    """The columns of the weight are equal but for the last bits, so rounding decides the order of the scores."""
    model = text.parse(
        "g (float[n,64] x) => (int64[n,8] labels) <int64[1] k = {8}, float c = {0.7}>"
        " { a = MatMul(x, w)  s = Mul(a, c)  top, labels = TopK(s, k) }"
    )
    random = np.random.default_rng(0)
    column = random.normal(size=(64, 1)) * (1 + random.integers(-2, 3, size=(64, 40)) * 2.0**-23)
    model.graph.initializer.append(numpy_helper.from_array(column.astype(np.float32), "w"))
    result = runner.apply(model, recipe.parse("steps: [fold-affine]"))
    line = " ".join(said(result).split())
    assert result.ok and [step.status for step in result.steps] == ["committed"], line
    assert "Same results up to rounding and choices between near ties on" in line, line
    feed = {"x": random.normal(size=(50, 64)).astype(np.float32)}
    result.save(tmp_path / "changed.onnx")
    sessions = [
        onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"])
        for given in (model.SerializeToString(), tmp_path / "changed.onnx")
    ]
    mine, theirs = (session.run(None, feed)[0] for session in sessions)
    assert (mine != theirs).any()


def test_what_holds_for_a_nested_recipe_and_the_whole_is_said_once(tmp_path: Path) -> None:
    inner = tmp_path / "inner.yaml"
    inner.write_text("recipe: inner\nsteps: [drop-identity]\nexpect: {signature: unchanged, nodes: 1}\n")
    outer = recipe.parse(f"steps: [{{use: {inner}}}]\nexpect: {{signature: unchanged}}", "outer.yaml")
    model = text.parse("g (float[N] x) => (float[N] y) { a = Identity(x) y = Neg(a) }")
    lines = [line.split() for line in said(runner.apply(model, outer)).splitlines() if line.startswith("met")]
    assert lines == [["met", "inner:", "nodes:", "==", "1", "(found", "1)"], ["met", "signature:", "unchanged"]]
