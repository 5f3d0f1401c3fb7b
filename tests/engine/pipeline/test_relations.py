"""What a pass says of its ends: compared through the declared mapping, whatever steps came before."""

from pathlib import Path

import numpy as np
import pytest
from support import SUPPORT
from support.breadth import sampled

from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.registry.catalog import catalog
from surgery.model.graph import text

IMAGE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 3, h, w] x) => (float[n, 2, h, w] y)
<float[2, 3, 1, 1] k = {0.5, -1, 2, 1, 0.25, -3}> {
    i = Identity(x)
    c = Conv(i, k)
    y = Relu(c)
}"""

AFFINE = IMAGE.replace("y = Relu(c)", "m = Mul(c, q) y = Add(m, q)").replace(
    "3}>", "3}, float[2, 1, 1] q = {0.3, 0.7}>"
)


@pytest.fixture(autouse=True, scope="module")
def passes_of_the_tests() -> None:
    for name in ("plugin_intended.py", "plugin_signature.py"):
        catalog.load_plugin(str(SUPPORT / name))


def apply(steps: str, source: str = IMAGE, head: str = "") -> runner.Result:
    return runner.apply(text.parse(source), recipes.parse(f"recipe: test\n{head}\nsteps: {steps}", "test.yaml"))


def verdicts(result: runner.Result) -> list[tuple[str, str]]:
    return [(step.status, step.verdict.status if step.verdict else "") for step in result.steps]


def test_an_input_in_another_layout_is_compared_through_the_layout() -> None:
    result = apply("[rel-nhwc, drop-identity]")
    assert verdicts(result) == [("committed", "equal"), ("committed", "equal")]
    dims = [dim.dim_param or dim.dim_value for dim in result.proto.graph.input[0].type.tensor_type.shape.dim]
    assert dims == ["n", "h", "w", 3]


def test_a_wrong_layout_is_a_difference() -> None:
    result = apply("[{rel-nhwc: {wrong: true}}]")
    assert [step.status for step in result.steps] == ["failed"]


def test_byte_inputs_are_generated_for_a_former_float_image() -> None:
    result = apply("[rel-bytes, drop-identity]")
    assert [status for status, _ in verdicts(result)] == ["committed", "committed"]
    assert [value.name for value in result.proto.graph.input] == ["pixels"]
    assert verdicts(apply("[{rel-bytes: {mean: 0.25}}]")) == [("failed", "different")]


def test_relations_compose() -> None:
    result = apply("[rel-bytes, rel-turned-output, rel-softmax, sig-rename]", head="")
    assert [status for status, _ in verdicts(result)] == ["committed"] * 4
    assert [value.name for value in result.proto.graph.input] == ["pixels"]


@pytest.mark.parametrize("kept", sampled(["true", "false"], 2))
def test_an_output_derived_from_an_original_output_is_compared(kept: str) -> None:
    result = apply(f"[{{rel-softmax: {{kept: {kept}}}}}, drop-identity]")
    assert verdicts(result)[0] == ("committed", "equal") and result.ok
    assert verdicts(apply(f"[{{rel-softmax: {{kept: {kept}, axis: 1}}}}]")) == [("failed", "different")]


def test_an_output_without_a_relation_is_not_compared() -> None:
    (step,) = apply("[{rel-softmax: {said: false, kept: true}}]").steps
    assert step.status == "committed" and step.verdict
    assert "output 'probabilities' is not compared" in step.verdict.message
    (step,) = apply("[{rel-softmax: {said: false}}]").steps
    assert step.status == "failed" and step.verdict and step.verdict.status == "unverified"


def test_an_output_keeps_its_name_and_position_in_another_layout() -> None:
    source = IMAGE.replace("=> (", "=> (float[n, 2, h, w] c, ")
    result = apply("[rel-turned-output, drop-identity]", source)
    assert verdicts(result) == [("committed", "equal")] * 2
    assert [value.name for value in result.proto.graph.output] == ["c", "y"]
    assert verdicts(apply("[{rel-turned-output: {wrong: true}}]", source)) == [("failed", "different")]


def test_a_relation_to_a_missing_input_fails_the_pass() -> None:
    (step,) = apply("[rel-nothing]").steps
    assert (step.status, step.exit_code) == ("failed", 3)
    assert "input 'x' is related to 'nobody', but the changed model has no such input" in step.message


def test_an_exact_step_after_a_relation_must_keep_its_bits() -> None:
    head = "verify: {rtol: 1e-4, atol: 1e-4}"
    result = apply("[fold-affine, rel-bytes, rel-turned-output, drop-identity]", AFFINE, head=head)
    assert [step.status for step in result.steps] == ["committed"] * 4, [step.message for step in result.steps]
    assert result.steps[0].verdict and result.steps[0].verdict.status == "close"


@pytest.mark.parametrize(("invert", "used"), [("true", True), ("false", False)])
def test_input_sets_are_converted_if_the_pass_gives_the_inverse(tmp_path: Path, invert: str, used: bool) -> None:
    np.savez(tmp_path / "set.npz", x=np.random.default_rng(0).normal(size=(2, 3, 5, 4)).astype(np.float32))
    head = f"inputs: {{data: [{tmp_path / 'set.npz'}]}}"
    result = apply(f"[{{rel-nhwc: {{invert: {invert}}}}}, drop-identity]", head=head)
    assert verdicts(result) == [("committed", "equal")] * 2
    assert (result.bindings[0]["character"] == "set.npz") is used
    assert result.steps[0].verdict
    assert ("'set.npz' no longer fit the model" in result.steps[0].verdict.message) is not used


def test_an_extracted_piece_can_change_its_layout() -> None:
    source = IMAGE.replace("i = Identity(x)", "e = Exp(a) x = Identity(e)").replace(
        "g (float[n, 3, h, w] x", "g (float[n, 3, h, w] a"
    )
    source = source.replace("Conv(i, k)", "Conv(x, k)")
    result = apply("[{extract: {inputs: x, outputs: y}}, rel-nhwc]", source)
    assert verdicts(result) == [("committed", "equal")] * 2
    result = apply("[{extract: {inputs: x, outputs: y}}, {rel-nhwc: {wrong: true}}]", source)
    assert verdicts(result)[1][0] == "failed"


def test_inputs_of_an_extracted_piece_can_be_renamed() -> None:
    cut = "{extract: {inputs: i, outputs: y}}"
    turned = "{rename: {inputs: {i: stem}}}, {set-layout: {layout: NHWC, inputs: stem}}, {rename: {inputs: {stem: z}}}"
    result = apply(f"[{cut}, {turned}]")
    assert verdicts(result) == [("committed", "equal")] * 4
    assert [value.name for value in result.proto.graph.input] == ["z"]
    renamed = "{rename: {inputs: {i: stem}}}"
    assert verdicts(apply(f"[{cut}, {renamed}, sig-rename]", AFFINE)) == [("committed", "equal")] * 3
    assert verdicts(apply(f"[{cut}, {renamed}, sig-rename-wrong]", AFFINE))[2] == ("failed", "different")


@pytest.mark.parametrize("kind", sampled(["float16", "int8"], 2))
def test_inputs_of_a_cut_piece_can_have_a_narrower_type(kind: str) -> None:
    cut = "{cut: {inputs: i}}, {rename: {inputs: {i: stem}}}"
    result = apply(f"[{cut}, {{set-dtype: {{inputs: {{stem: {kind}}}}}}}, sig-rename]", AFFINE)
    assert verdicts(result) == [("committed", "equal")] * 4
    twice = f"{{set-dtype: {{inputs: {{stem: {kind}}}}}}}, {{set-dtype: {{inputs: {{stem: double}}}}}}"
    assert verdicts(apply(f"[{cut}, {twice}, sig-rename]", AFFINE)) == [("committed", "equal")] * 5
    assert verdicts(apply(f"[{cut}, {twice}, sig-rename-wrong]", AFFINE))[-1] == ("failed", "different")


def test_input_sets_are_converted_for_renamed_inputs(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", image=np.random.default_rng(0).normal(size=(2, 3, 5, 4)).astype(np.float32))
    source = IMAGE.replace("w] x)", "w] image)").replace("Identity(x)", "Identity(image)")
    head = f"inputs: {{data: [{tmp_path / 'set.npz'}]}}"
    result = apply("[{set-layout: {layout: NHWC, inputs: image}}]", source, head)
    assert verdicts(result) == [("committed", "equal")]
    assert result.bindings[0]["character"] == "set.npz"


# Dims

FIXED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[4, 6] x) => (float[4, 6] y) { e = Exp(x) y = Neg(e) }"""
BAKED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[4, 6] x) => (float[4, 6] y) <int64[2] s = {4, 6}> { e = Exp(x) y = Reshape(e, s) }"""


def test_a_newly_free_dim_is_compared_at_its_former_size() -> None:
    result = apply("[rel-free, {rel-free: {dim: m}}]", FIXED)
    assert verdicts(result) == [("committed", "equal")] * 2
    assert {tuple(binding["dims"].values()) for binding in result.bindings} == {()}


def test_a_dim_cannot_be_freed_if_the_model_runs_at_one_size_only() -> None:
    (step,) = apply("[rel-free]", BAKED).steps
    assert (step.status, step.verdict and step.verdict.status) == ("failed", "different")
    assert step.message.startswith("dim 0 of input 'x' is now dynamic, but the model only runs at 4")


def test_a_newly_fixed_dim_is_compared_at_its_size() -> None:
    source = FIXED.replace("[4, 6]", "[n, 6]")
    assert verdicts(apply("[{rel-free: {dim: '3'}}]", source)) == [("committed", "equal")]


def test_a_relation_in_an_opset_missing_from_the_original_is_reported() -> None:
    # Of one size: where nothing runs, inputs of all sizes are tried.
    source = IMAGE.replace('"" : 17', '"" : 12').replace("[n, ", "[2, ").replace("h, w]", "5, 4]")
    result = apply("[{upgrade-opset: {to: 18}}, rel-mean]", source)
    step = result.steps[1]
    assert (step.status, step.verdict and step.verdict.reason) == ("failed", "not-run")
    assert "the relations of this step are in ai.onnx 18, and the original imports 12" in step.message
    assert verdicts(apply("[rel-mean]", IMAGE.replace('"" : 17', '"" : 18'))) == [("committed", "equal")]
