"""Passes that change the inputs and outputs of a model by declaration, and what later steps are held to."""

from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import SUPPORT
from support.breadth import sampled

from surgery import Graph, Value
from surgery.base.errors import UsageError, WorkerError
from surgery.base.promises import Parity
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.registry.catalog import catalog
from surgery.features.bisection.bisect import bisect
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.signature_mappings import Joined, Relation
from surgery.model.runtime.engine import Engine, RunOutcome
from surgery.verification.comparing.ports import retype
from surgery.verification.comparing.probing import SearchEnded
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.inputs.spec import DataSpec, InputsSpec, VerifySpec
from surgery.verification.signature.tracker import SignatureTracker

PLUGIN = SUPPORT / "plugin_signature.py"
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 4] x, float[4] s, float[4] w, int64 unused) => (float[batch, 4] y, float[batch, 4] z)
<float[4] w = {1, -2, 3, 4}> {
    i = Identity(x)
    m = Mul(i, w)
    y = Add(m, s)
    z = Exp(i)
}"""


@pytest.fixture(autouse=True, scope="module")
def passes_of_the_tests() -> None:
    catalog.load_plugin(str(PLUGIN))


def apply(steps: str, source: str = MODEL) -> runner.Result:
    recipe = recipes.parse(f"recipe: test\n{steps}", "test.yaml")
    return runner.apply(text.parse(source), recipe)


def ports(result: runner.Result) -> tuple[list[str], list[str]]:
    graph = result.proto.graph
    return [value.name for value in graph.input], [value.name for value in graph.output]


def verdicts(result: runner.Result) -> list[tuple[str, str]]:
    return [(step.status, step.verdict.status if step.verdict else "") for step in result.steps]


def test_later_steps_are_checked_against_a_declared_signature_change() -> None:
    result = apply("steps: [initializers-from-inputs, drop-unused-inputs, drop-identity]")
    assert verdicts(result) == [("committed", "equal")] * 3
    assert ports(result) == (["x", "s"], ["y", "z"])
    assert result.ok


def test_the_message_names_the_changed_ports() -> None:
    result = apply("steps: [initializers-from-inputs, drop-unused-inputs]")
    first, second = (step.verdict for step in result.steps)
    assert first is not None and "input 'w' is missing" in first.message
    assert second is not None and "input 'unused' is missing" in second.message


def test_an_initializer_is_constant_once_it_is_no_longer_an_input() -> None:
    source = MODEL.replace("w = {1, -2, 3, 4}", "w = {1, 1, 1, 1}")
    assert verdicts(apply("steps: [drop-no-op]", source=source)) == [("unchanged", "")]
    result = apply("steps: [initializers-from-inputs, drop-no-op]", source=source)
    # Runs that set `w` to anything else would speak against it.
    assert verdicts(result) == [("committed", "equal"), ("committed", "equal")]
    assert "Mul" not in result.output.ops


def test_the_expectation_of_a_recipe_compares_with_the_original() -> None:
    result = apply("steps: [drop-unused-inputs, drop-identity]\nexpect: {signature: unchanged}")
    assert [step.status for step in result.steps] == ["committed", "committed"]
    assert [(found.what, found.ok) for found in result.expectations] == [("signature: unchanged", False)]
    assert result.exit_code == 1


@pytest.mark.parametrize("name", sampled(["sig-rename", "sig-rename-proto"], 2))
def test_renamed_inputs_and_outputs_are_compared_under_both_names(name: str) -> None:
    result = apply(f"steps: [{name}, drop-identity, drop-unused-inputs]")
    assert verdicts(result) == [("committed", "equal")] * 3
    assert ports(result)[0] == ["pixels", "s", "w"]
    assert result.bindings and all(binding["dims"] for binding in result.bindings)


def test_names_changed_twice_are_traced_to_the_original() -> None:
    result = apply("steps: [sig-rename, {sig-rename-taken: {name: logits}}, drop-identity]")
    assert verdicts(result) == [("committed", "equal")] * 3
    assert ports(result)[1] == ["logits", "z"]


def test_a_name_in_use_is_refused() -> None:
    result = apply("steps: [sig-rename-taken]")
    (step,) = result.steps
    assert step.status == "unchanged"
    assert [refused.reason for refused in step.refusals] == ["the name 'z' is taken"]


def test_a_wrong_pass_is_found_after_new_names() -> None:
    result = apply("steps: [sig-rename-wrong]")
    assert verdicts(result) == [("failed", "different")]
    result = apply("steps: [sig-rename, sig-rename-wrong]")
    assert verdicts(result) == [("committed", "equal"), ("failed", "different")]


def test_swapped_names_are_a_difference_of_values() -> None:
    result = apply("steps: [sig-swap-proto]")
    assert verdicts(result) == [("failed", "different")]


def test_a_change_that_is_not_declared_is_named() -> None:
    result = apply("steps: [sig-rename-undeclared]")
    (step,) = result.steps
    assert (step.status, step.verdict) == ("failed", None)
    expected = "signature: input 'x' is now called 'pixels'; the pass does not declare that it changes names"
    assert step.message == expected
    assert step.exit_code == 1


def test_rollback_restores_the_names() -> None:
    result = apply("steps: [{pass: sig-rename-wrong, on_failure: rollback}, sig-rename, drop-identity]")
    assert verdicts(result) == [("rolled_back", "different"), ("committed", "equal"), ("committed", "equal")]
    assert ports(result)[1] == ["scores", "z"]


def test_a_kept_wrong_step_still_changes_the_signature() -> None:
    result = apply("steps: [{pass: sig-rename-wrong, on_failure: keep}, {pass: drop-identity, on_failure: keep}]")
    assert [status for status, _ in verdicts(result)] == ["committed", "committed"]
    assert ports(result)[0][0] == "pixels"


def test_outputs_that_are_left_are_compared() -> None:
    result = apply("steps: [sig-drop-output, drop-identity, drop-dead]")
    assert [step.status for step in result.steps] == ["committed", "committed", "unchanged"]
    assert ports(result)[1] == ["z"]
    assert result.output.ops == {"Exp": 1}
    assert verdicts(apply("steps: [sig-drop-output-wrong]")) == [("failed", "different")]
    assert verdicts(apply("steps: [sig-drop-output, sig-drop-output-wrong]"))[1] == ("failed", "different")


def test_a_new_output_is_compared_with_the_inner_value_of_the_original() -> None:
    result = apply("steps: [sig-add-output, drop-identity]")
    assert verdicts(result) == [("committed", "equal"), ("committed", "equal")]
    assert ports(result)[1] == ["y", "z", "m"]
    contract = SignatureTracker(text.parse(MODEL).SerializeToString(), InputsSpec(), VerifySpec())
    body = MODEL.replace("float[batch, 4] z)", "float[batch, 4] z, float[batch, 4] m)")
    wrong = text.parse(body.replace("m = Mul(i, w)", "t = Mul(i, w) m = Neg(t)").replace("Add(m, s)", "Add(t, s)"))
    verdict = contract.verify(wrong, wrong.SerializeToString(), Parity.CLOSE, {})
    contract.close()
    assert verdict.status == "different"


def test_a_new_output_that_the_original_does_not_have_is_not_compared() -> None:
    contract = SignatureTracker(text.parse(MODEL).SerializeToString(), InputsSpec(), VerifySpec())
    body = MODEL.replace("y, float[batch, 4] z)", "fresh)").replace("y = Add(m, s)", "fresh = Add(m, s)")
    model = text.parse(body.replace("    z = Exp(i)\n", ""))
    verdict = contract.verify(model, model.SerializeToString(), Parity.CLOSE, {})
    contract.close()
    assert (verdict.status, verdict.reason) == ("unverified", "not-run")
    assert verdict.message.startswith("the original has no outputs to compare")


@pytest.mark.parametrize(("operator", "status"), [("Neg", "equal"), ("Abs", "different")])
def test_what_the_original_cannot_be_composed_with_is_compared_with_the_model_before(
    operator: str, status: str
) -> None:
    # The other model has the opset that an earlier step upgraded to.
    first = text.parse('<ir_version: 8, opset_import: ["" : 13]> g (float[N,4] x) => (float[N,4] m) { m = Tanh(x) }')
    upgraded = text.parse('<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] m) { m = Tanh(x) }')
    other = text.parse('<ir_version: 8, opset_import: ["" : 17]> h (float[N,4] m) => (float[N,4] y) { y = Neg(m) }')
    merged = text.parse(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] b_y)'
        f"{{ m = Tanh(x) b_y = {operator}(m) }}"
    )
    joined = (Joined(other.SerializeToString(), {"m": "m"}, "b_"),)
    with closing(SignatureTracker(first.SerializeToString(), InputsSpec(), VerifySpec())) as tracker:
        data = upgraded.SerializeToString()
        assert tracker.verify(upgraded, data, Parity.CLOSE, {}).passed
        tracker.references.adopt(upgraded, data, {}, right=True, accepted=True)
        assert tracker.references.moves_baseline(merged, {}, joined)
        verdict = tracker.verify(merged, merged.SerializeToString(), Parity.CLOSE, {}, joined)
    assert verdict.status == status
    assert "compared with the model before this step" in verdict.message and "imports ai.onnx 13" in verdict.message


def test_relations_in_turn_are_each_judged_by_their_own_terms() -> None:
    # Each relation is freed after its verdict; the next one may be stored at the same address.
    original = text.parse("g (float[4] x) => (float[4] y) { y = Neg(x) }")
    changed = text.parse("g (float[4] x) => (float[4] y) { t = Neg(x) y = Add(t, t) }")
    with closing(SignatureTracker(original.SerializeToString(), InputsSpec(), VerifySpec())) as tracker:

        def judge(factor: float) -> bool:
            relation = Relation("output", "y", f"f = Constant<value_float={factor}>() r = Mul(y, f)")
            return tracker.verify(changed, changed.SerializeToString(), Parity.CLOSE, {}, (relation,)).passed

        found = [judge(factor) for factor in (2.0, 3.0, 2.0, 4.0, 5.0, 2.0, 6.0, 7.0)]
    assert found == [True, False, True, False, False, True, False, False]


def test_an_output_that_cannot_be_compared_is_named() -> None:
    result = apply("steps: [sig-fresh-output, drop-identity]")
    assert [status for status, _ in verdicts(result)] == ["committed", "committed"]
    assert all(step.verdict and "output 'fresh' is not compared" in step.verdict.message for step in result.steps)


def test_an_input_that_is_read_is_not_dropped() -> None:
    (step,) = apply("steps: [sig-drop-read-input]").steps
    assert [refused.reason for refused in step.refusals] == ["x is still read, but has no other value"]


def test_an_input_that_becomes_constant_is_compared_at_that_value() -> None:
    result = apply("steps: [sig-bind-input, drop-identity, drop-unused-inputs]")
    assert verdicts(result) == [("committed", "equal")] * 3
    assert ports(result)[0] == ["x", "w"]


INSIDE = """<ir_version: 10, opset_import: ["" : 18]>
g (float[n, 2] x, float[n, 3] v) => (float[n, 2] y, float[n, 2] z, float[n, 3] u) {
    a = Relu(x)
    b = Exp(a)
    y = Neg(b)
    z = Abs(x)
    u = Sqrt(v)
}"""


@pytest.mark.parametrize("rows", ["n", "2"])
def test_an_input_from_inside_the_original_that_becomes_constant_is_compared_at_that_value(rows: str) -> None:
    # With a free dim, the constant is filled into the dims of another input.
    steps = "steps: [{cut: {inputs: a}}, {remove-inputs: {inputs: {a: 2}}}, {fold-constants: {}}]"
    result = apply(steps, INSIDE.replace("[n", f"[{rows}"))
    assert result.ok and verdicts(result)[:2] == [("committed", "equal")] * 2
    assert ports(result) == (["x", "v"], ["y", "z", "u"])


def test_a_wrong_step_is_found_after_an_input_from_inside_the_original_became_constant() -> None:
    steps = "steps: [{cut: {inputs: a}}, {remove-inputs: {inputs: {a: 2}}}, sig-rename-exp]"
    assert verdicts(apply(steps, INSIDE))[-1] == ("failed", "different")


def test_an_input_that_the_original_lacks_cannot_be_fed() -> None:
    (step,) = apply("steps: [sig-new-input]").steps
    assert step.status == "failed" and step.verdict is not None
    assert (step.verdict.status, step.verdict.reason) == ("unverified", "not-run")
    assert step.message.startswith("input 'extra' is new, but the original has no value of that name")


def test_a_fixed_dim_is_run_only_at_its_size() -> None:
    result = apply("inputs: {dims: {batch: [1, 3]}}\nsteps: [sig-fix-batch, drop-identity]")
    assert verdicts(result) == [("committed", "equal")] * 2
    assert {tuple(binding["dims"]) for binding in result.bindings} == {()}


def test_dims_in_a_recipe_follow_a_renamed_dim() -> None:
    result = apply("inputs: {dims: {batch: [2, 7]}}\nsteps: [sig-name-batch, drop-identity]")
    assert verdicts(result) == [("committed", "equal")] * 2
    assert {binding["dims"]["n"] for binding in result.bindings} == {2, 7}


def test_another_element_type_is_compared_through_casts() -> None:
    result = apply("steps: [sig-double, drop-identity]")
    assert [status for status, _ in verdicts(result)] == ["committed"] * 2
    assert result.proto.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.DOUBLE


def test_casts_are_added_at_both_ends() -> None:
    like = text.parse("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    other = retype(text.parse("g (double[2] x) => (double[2] y) { y = Neg(x) }"), like)
    onnx.checker.check_model(other, full_check=True)
    assert [node.op_type for node in other.graph.node] == ["Cast", "Neg", "Cast"]


def test_repeat_until_stable_ends_with_the_new_signature() -> None:
    steps = "steps: [{repeat: until-stable, steps: [initializers-from-inputs, drop-unused-inputs, drop-identity]}]"
    result = apply(steps)
    assert [step.status for step in result.steps] == ["committed"] * 3 + ["unchanged"] * 3


@pytest.mark.parametrize("mode", sampled(["end", "off"], 2))
def test_the_end_result_is_compared_under_the_new_signature(mode: str) -> None:
    verify = f"verify: {{mode: {mode}}}\n"
    result = apply(f"{verify}steps: [sig-rename, drop-identity, initializers-from-inputs, drop-unused-inputs]")
    assert result.ok and ports(result) == (["pixels", "s"], ["scores", "z"])
    if mode == "end":
        assert result.steps[-1].verdict is not None and result.steps[-1].verdict.passed
        assert verdicts(apply(f"{verify}steps: [sig-rename-wrong]"))[-1] == ("failed", "different")


def test_bisect_leaves_out_the_guilty_sites_and_keeps_the_names() -> None:
    result = apply("steps: [{pass: sig-rename-wrong, on_failure: bisect}, drop-identity]")
    first, second = result.steps
    assert (first.status, [site.number for site in first.refused_sites]) == ("committed", [3])
    assert second.status == "committed"
    assert ports(result) == (["pixels", "s", "w", "unused"], ["scores", "z"])


def test_bisect_names_the_site_after_new_names(tmp_path: Path) -> None:
    recipe = recipes.parse("recipe: test\nsteps: [sig-rename-wrong]", "test.yaml")
    blame = bisect(text.parse(MODEL), recipe)
    assert [found.site.number for found in blame.guilty] == [3]
    assert blame.rest


@pytest.mark.parametrize(
    "before", sampled(["drop-identity", "sig-rename", "sig-drop-output", "initializers-from-inputs"], 4)
)
def test_bisect_writes_a_repro_after_new_names(tmp_path: Path, before: str) -> None:
    recipe = recipes.parse(f"recipe: test\nsteps: [{before}, sig-rename-exp]", "test.yaml")
    blame = bisect(text.parse(MODEL), recipe, output=tmp_path / "repro")
    assert blame.folder is not None, blame.no_repro
    assert blame.reproduced and blame.nodes is not None and max(blame.nodes) <= 2


def test_input_sets_are_used_with_the_new_signature(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {"x": rng.normal(size=(3, 4)), "s": rng.normal(size=4), "w": rng.normal(size=4)}
    floats = {name: array.astype(np.float32) for name, array in arrays.items()}
    np.savez(tmp_path / "set.npz", unused=np.array(0, dtype=np.int64), **floats)
    result = apply(
        f"inputs: {{data: [{tmp_path / 'set.npz'}]}}\nsteps: [initializers-from-inputs, sig-drop-output, drop-identity]"
    )
    assert [step.status for step in result.steps] == ["committed"] * 3
    assert result.bindings[0]["character"] == "set.npz"


def test_an_abandoned_run_blames_no_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step with a new signature kills the run of the original, which then looks as if it lacked memory."""
    np.savez(tmp_path / "set.npz", x=np.ones(4, np.float32))
    skeleton = text.parse("g (float[n] x) => (float[n] y) { y = Neg(x) }").SerializeToString()
    original = ReferenceRun(skeleton, InputsSpec(data=(DataSpec(tmp_path / "set.npz"),)), VerifySpec())

    def killed(*_: object, **__: object) -> RunOutcome:
        original._preparation.is_abandoned = True
        return RunOutcome(crash=WorkerError("session ran out of memory", stage="session", signal="SIGKILL"))

    monkeypatch.setattr(Engine, "run", killed)
    with pytest.raises(SearchEnded):
        original.prepare()


def test_a_generator_may_still_give_removed_inputs(tmp_path: Path) -> None:
    (tmp_path / "inputs.py").write_text(
        "import numpy as np\n"
        "def make(dims, seed):\n"
        "    rng = np.random.default_rng(seed)\n"
        "    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)\n"
        "    return {'x': draw(dims['batch'], 4), 's': draw(4), 'w': draw(4), 'unused': np.array(1)}\n"
    )
    (tmp_path / "recipe.yaml").write_text(
        "recipe: test\ninputs: {generator: 'inputs.py:make'}\n"
        "steps: [drop-identity, sig-bind-input, initializers-from-inputs, drop-unused-inputs]\n"
    )
    result = runner.apply(text.parse(MODEL), tmp_path / "recipe.yaml", trust=True)
    assert verdicts(result) == [("committed", "equal")] * 4
    assert ports(result)[0] == ["x"]


def test_a_generator_of_another_batch_does_not_give_its_inputs(tmp_path: Path) -> None:
    (tmp_path / "inputs.py").write_text(
        "import numpy as np\n"
        "def make(dims, seed):\n"
        "    return {'x': np.random.default_rng(seed).normal(size=(2, 4)).astype(np.float32)}\n"
    )
    (tmp_path / "recipe.yaml").write_text(
        "recipe: test\ninputs: {generator: 'inputs.py:make'}\nsteps: [{set-dims: {rebatch: 6}}, drop-identity]\n"
    )
    source = "g (float[2,4] x) => (float[2,4] y) { i = Identity(x) y = Exp(i) }"
    result = runner.apply(text.parse(source), tmp_path / "recipe.yaml", trust=True)
    assert verdicts(result) == [("committed", "equal")] * 2, [step.message for step in result.steps]


def test_an_exact_step_after_a_close_step_must_keep_its_bits() -> None:
    """The fused step rounds differently; what is exact after it must equal it, not the original, in new names too."""
    source = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 8] x, int64 unused) => (float[N, 3] y) <float[8, 3] w = {
        0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3,
        1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6},
        float[3] b = {0.1, 0.2, 0.3}, float[3] c = {3.3, 0.7, 1.1}> {
        i = Identity(x)
        m = MatMul(i, w)
        a = Add(m, b)
        y = Mul(a, c)
    }"""
    steps = "steps: [fold-affine, fuse-matmul-add, drop-unused-inputs, sig-rename, drop-identity]"
    recipe = recipes.parse(f"recipe: test\n{steps}", "test.yaml")
    result = runner.apply(text.parse(source), recipe)
    assert result.ok, [step.message for step in result.steps]
    assert [step.status for step in result.steps][2:] == ["committed"] * 3


def test_a_change_that_does_not_exist_cannot_be_declared() -> None:
    from surgery import graph_pass

    with pytest.raises(UsageError, match="declares an unknown change 'input'; did you mean 'inputs'"):
        graph_pass("sig-unknown", changes=("input",))(lambda graph: None)  # type: ignore[arg-type]


# The editing surface


def graph_of(source: str = MODEL) -> Graph:
    return Graph(storage.ir_from_proto(text.parse(source)))


def value_of(graph: Graph, name: str) -> Value:
    made = [value for node in graph.nodes() for value in node.outputs]
    return next(value for value in (*graph.inputs(), *made) if value.name == name)


@pytest.mark.parametrize(
    ("edit", "name", "reason"),
    [
        ("drop_input", "m", "m is not an input of the model"),
        ("drop_input", "x", "x is still read, but has no other value"),
        ("drop_output", "m", "m is not an output of the model"),
        ("add_output", "y", "y is not a value of the main graph, or already an output"),
        ("rename", "m", "the name 'y' is taken"),
    ],
)
def test_invalid_edits_of_inputs_and_outputs_are_refused(edit: str, name: str, reason: str) -> None:
    graph = graph_of()
    with graph.site() as new:
        arguments = ["y"] if edit == "rename" else []
        getattr(new, edit)(value_of(graph, name), *arguments)
    assert [refused.reason for refused in graph.refusals] == [reason]
    assert not graph.sites and not graph.renamed


def test_two_ports_cannot_share_a_name() -> None:
    graph = graph_of()
    with graph.site() as new:
        for value in graph.outputs():
            new.rename(value, "result")
    assert [refused.reason for refused in graph.refusals] == ["two values would have the same name"]


def test_a_default_keeps_its_value_under_a_new_name() -> None:
    graph = graph_of()
    for name in ("factor", "scale"):
        with graph.site() as new:
            new.rename(graph.inputs()[2], name)
    assert graph.renamed == {"w": "scale"}
    model = storage.proto_from_ir(graph.ir, storage.Weights())
    assert [tensor.name for tensor in model.graph.initializer] == ["scale"]
    assert [value.name for value in model.graph.input] == ["x", "s", "scale", "unused"]
    onnx.checker.check_model(model, full_check=True)


def test_dropping_an_output_removes_its_dead_nodes() -> None:
    graph = graph_of()
    with graph.site() as new:
        new.drop_output(graph.outputs()[0])
    assert [node.op for node in graph.nodes()] == ["Identity", "Exp"]
    assert [value.name for value in graph.inputs()] == ["x", "s", "w", "unused"]
