"""A recipe that expects a speed: what is measured, and what the report says. The measurement is given here."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.breadth import sampled

from surgery.base.errors import RecipeError, WorkerError
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.model.graph import text
from surgery.model.runtime import engine
from surgery.verification.benchmarking import bench as benching
from surgery.verification.benchmarking import paired_runs as comparing
from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.benchmarking.measurements import Comparison, Measured
from surgery.verification.benchmarking.statistics import Interval
from surgery.verification.benchmarking.subjects import Subject

BODY = "g (float[n, 4] x) => (float[n, 4] y) { i = Identity(x) t = Relu(i) j = Identity(t) y = Neg(j) }"
TIDY = "recipe: tidied\ninputs: {dims: {n: 3}}\nverify: {seed: 4}\nsteps: [drop-identity]\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(text.parse(BODY), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[Subject], Any, dict[str, Any]]]:
    """Note what is to be measured, and say that the result has 1.1 to 1.3 times the speed."""
    asked: list[tuple[list[Subject], Any, dict[str, Any]]] = []

    def compare(subjects: list[Subject], feeds: Any, spec: BenchSpec, **how: Any) -> Comparison:
        asked.append((subjects, feeds, {"spec": spec, **how}))
        speeds = (None, Interval(1.2, 1.1, 1.3))
        models = tuple(Measured(one.name, None, 0.01, speed, 0.1) for one, speed in zip(subjects, speeds))
        return Comparison(models, spec, 10, 1, 2, 1.0, "decided")

    monkeypatch.setattr(benching, "compare", compare)
    return asked


def expectations(model: Path, recipe: str) -> list[tuple[str, bool]]:
    result = runner.apply(model, recipes.parse(recipe, "test.yaml"))
    assert result.ok == all(one.ok for one in result.expectations)
    return [(one.what, one.ok) for one in result.expectations]


def test_a_speed_is_missed_only_below_the_whole_interval(model: Path, measured: list[Any]) -> None:
    found = "found 1.200, between 1.100 and 1.300 with a confidence of 95%"
    remedy = "; 'surgery tune' finds the steps and sites that are faster"
    for least, ok in (("1.1", True), ("'>= 1.05'", True), ("1.15", True), ("1.3", True), ("1.31", False)):
        (told,) = expectations(model, f"{TIDY}expect: {{speed: {least}}}")
        bound = least.strip(chr(39)).removeprefix(">= ")
        assert told == (f"speed: >= {bound} ({found}{'' if ok else remedy})", ok)


def test_original_and_result_run_on_the_inputs_of_the_recipe(model: Path, measured: list[Any]) -> None:
    expectations(model, f"{TIDY}expect: {{speed: 1}}")
    ((subjects, feeds, how),) = measured
    assert [[node.op_type for node in one.proto.graph.node] for one in subjects] == [
        ["Identity", "Relu", "Identity", "Neg"],
        ["Relu", "Neg"],
    ]
    assert [feed["x"].shape for feed in feeds] == [(3, 4)]
    assert how["decide"] == 1.0 and how["spec"].seed == 4 and how["spec"].threads == 1


def test_given_data_decide_the_sizes(model: Path, measured: list[Any], tmp_path: Path) -> None:
    """Generated inputs are small, and integers may pay at other sizes only. Labels are no inputs."""
    for folder, rows in (("calibration", 7), ("evaluation", 9)):
        (tmp_path / folder).mkdir()
        for number in range(6):
            np.savez(tmp_path / folder / f"{number}.npz", x=np.ones((rows, 4), np.float32), label=np.ones(rows))
    calibration = f"calibration: {{data: [{tmp_path}/calibration]}}\n"
    steps = "recipe: quick\nsteps: [drop-identity]\nexpect: {speed: 1}\n"
    for given, rows in (
        (calibration, 7),
        (f"{calibration}accuracy: {{budget: snr >= 20 dB, data: [{tmp_path}/evaluation]}}\n", 9),
    ):
        expectations(model, given + steps)
        feeds = measured.pop()[1]
        assert [feed["x"].shape for feed in feeds] == [(rows, 4)] * 4


def test_an_empty_folder_of_data_is_named(model: Path, measured: list[Any], tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    recipe = f"recipe: quick\ncalibration: {{data: [{tmp_path}/none]}}\nsteps: [drop-identity]\nexpect: {{speed: 1}}\n"
    with pytest.raises(RecipeError, match=r"test\.yaml:2:22: .*none: no inputs in this folder"):
        expectations(model, recipe)
    assert measured == []


def test_a_nested_recipe_is_measured_against_its_input_model(model: Path, measured: list[Any]) -> None:
    nested = "recipe: outer\nsteps:\n  - when: {nodes: 4}\n    use: {steps: [drop-identity], expect: {speed: 1}}\n"
    ((told, ok),) = expectations(model, nested)
    assert ok and "speed: >= 1 (found" in told
    ((subjects, _, _),) = measured
    assert [len(one.proto.graph.node) for one in subjects] == [4, 2]


def test_the_same_model_has_the_same_speed(model: Path, measured: list[Any]) -> None:
    same = "recipe: same\nsteps: [drop-dropout]\nexpect: {speed: %s}\n"
    assert expectations(model, same % 1) == [("speed: >= 1 (the same model)", True)]
    assert expectations(model, same % 1.2) == [("speed: >= 1.2 (the same model)", False)]
    assert measured == []


def test_a_failed_run_is_not_measured(model: Path, measured: list[Any]) -> None:
    recipe = "recipe: failing\nsteps: [{pass: drop-identity, expect: {sites: 9}}]\nexpect: {speed: 1}\n"
    assert not runner.apply(model, recipes.parse(recipe, "test.yaml")).ok
    assert measured == []


def test_a_speed_that_cannot_be_measured_is_not_met(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed = "recipe: renamed\nsteps: [{rename: {inputs: {x: image}}}]\nexpect: {speed: 0.1}\n"
    ((told, ok),) = expectations(model, renamed)
    assert not ok and told.startswith("speed: >= 0.1 (cannot be measured: the result: does not accept the inputs of")

    def dies(*_: object, **__: object) -> Comparison:
        raise WorkerError("a run of the result crashed with SIGFPE", stage="run")

    monkeypatch.setattr(benching, "compare", dies)
    assert expectations(model, f"{TIDY}expect: {{speed: 0.1}}") == [
        ("speed: >= 0.1 (cannot be measured: a run of the result crashed with SIGFPE)", False)
    ]


def test_the_speed_of_a_model_with_too_many_weights_is_not_measured(
    tmp_path: Path, measured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(
        text.parse(BODY.replace("{ i", "<float[4] w = {1, 2, 3, 4}> { z = Add(x, w) i").replace("(x) t", "(z) t")), path
    )
    monkeypatch.setattr(engine, "most_to_measure", lambda memory: 15)
    ((told, ok),) = expectations(path, f"{TIDY}expect: {{speed: 2}}")
    assert (told, ok) == ("speed: >= 2 (not measured: 16 bytes of weights are more than 15)", True)
    monkeypatch.setattr(engine, "most_to_measure", lambda memory: 16)
    ((told, ok),) = expectations(path, f"{TIDY}expect: {{speed: 2}}")
    assert told.startswith("speed: >= 2 (found ") and not ok


LOSSY = "recipe: lossy\ninputs: {dims: {n: 3}}\nsteps: [drop-identity, {quantize-dynamic: {min_size: %d}}]\n"


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """Write a model with a weight that can be quantized."""
    made = text.parse("g (float[n, 64] x) => (float[n, 32] y) { i = Identity(x) y = MatMul(i, w) }")
    weight = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(made, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_a_result_that_no_lossy_step_changed_does_not_have_to_be_measured(product: Path, measured: list[Any]) -> None:
    lossy, exact = LOSSY % 0, LOSSY % 10**9
    for recipe in (f"{exact}expect: {{speed: 1}}", f"recipe: o\nsteps:\n  - use: {{{_inner(exact)}}}\n"):
        ((told, ok),) = expectations(product, recipe)
        assert ok and told.endswith("speed: >= 1 (not measured: no lossy step changed the model)")
    assert measured == []
    for recipe in (f"{lossy}expect: {{speed: 1}}", f"recipe: o\nsteps:\n  - use: {{{_inner(lossy)}}}\n"):
        ((told, ok),) = expectations(product, recipe)
        assert ok and "(found 1.200, between" in told
    # A recipe that expects more is a claim about its other steps, too.
    ((told, ok),) = expectations(product, f"{exact}expect: {{speed: 1.5}}")
    assert not ok and "(found 1.200, between" in told
    assert len(measured) == 3


def _inner(recipe: str) -> str:
    return f"steps: {recipe.strip().rpartition('steps: ')[2]}, expect: {{speed: 1}}"


def test_equal_speed_is_no_failure_of_a_lossy_step(product: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(subjects: list[Subject], feeds: Any, spec: BenchSpec, **_: Any) -> Comparison:
        models = tuple(
            Measured(one.name, None, 0.01, speed, 0.1) for one, speed in zip(subjects, (None, intervals.pop()))
        )
        return Comparison(models, spec, 10, 1, 2, 1.0, "decided")

    monkeypatch.setattr(benching, "compare", compare)
    for interval, ok in ((Interval(0.999, 0.987, 1.010), True), (Interval(0.98, 0.97, 0.99), False)):
        intervals = [interval]
        assert [ok for _, ok in expectations(product, f"{LOSSY % 0}expect: {{speed: 1}}")] == [ok]
        intervals = [interval]
        assert [ok for _, ok in expectations(product, f"{LOSSY % 0}expect: {{speed: 0}}")] == [True]


@pytest.mark.parametrize("recipe", sampled(["int4", "int8", "int8-dynamic"], 3))
def test_weights_in_the_bodies_of_control_flow(recipe: str, tmp_path: Path) -> None:
    """What these recipes leave in float32 cannot be slower for them, whatever a measurement says."""
    body = "{ %s = MatMul(i, %s) }"
    made = text.parse(
        "g (float[n, 64] x, bool c) => (float[n, 64] y) { i = Identity(x) y = If(c) <"
        f"then_branch = t () => (float[n, 64] p) {body % ('p', 'v')}, "
        f"else_branch = e () => (float[n, 64] q) {body % ('q', 'w')}> }}"
    )
    rng = np.random.default_rng(0)
    for attribute, name in zip(made.graph.node[1].attribute, ("v", "w")):
        weight = rng.normal(size=(64, 64)).astype(np.float32)
        attribute.g.initializer.append(onnx.numpy_helper.from_array(weight, name))
    onnx.save(made, tmp_path / "model.onnx")
    result = runner.apply(tmp_path / "model.onnx", recipe, output=tmp_path / "out.onnx")
    assert result.ok and (tmp_path / "out.onnx").is_file()


@pytest.mark.slow
def test_a_real_measurement(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that it takes place: half a second for a speed that any result has."""
    monkeypatch.setattr(BenchSpec, "seconds", 0.5)
    monkeypatch.setattr(comparing, "_WANTED_PAIRS", 1)
    ((told, _),) = expectations(model, f"{TIDY}expect: {{speed: 0.0001}}")
    assert told.startswith("speed: >= 0.0001 (found ")


@pytest.mark.parametrize("wrong", ["'> 1'", "'1.2x'", "-1", "true", "[1]"])
def test_invalid_speeds_are_refused(wrong: str) -> None:
    with pytest.raises(RecipeError, match=r"'speed' takes the minimum speed, such as 1\.2, not"):
        recipes.parse(f"{TIDY}expect: {{speed: {wrong}}}", "test.yaml")


def test_a_step_cannot_expect_a_speed() -> None:
    with pytest.raises(RecipeError, match="no key 'speed'"):
        recipes.parse("recipe: r\nsteps: [{pass: drop-identity, expect: {speed: 1}}]\n", "test.yaml")
