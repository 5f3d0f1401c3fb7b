"""Plans: what they say of each site, and that applying one is a plain run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.breadth import sampled

from surgery.base.errors import PlanError, UsageError
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.run_options import RunOptions
from surgery.engine.recipe import Recipe
from surgery.features.planning import following_run, plan_document
from surgery.features.planning.plan_dependencies import changes
from surgery.features.planning.plan_document import Plan
from surgery.features.planning.plan_making import make
from surgery.model import storage
from surgery.model.graph import text

MODEL = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[batch, 4] x) => (float[batch, 4] y, float[batch, 4] z)
<float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}, float[4] b = {1, 2, 3, 4}>
{
    [first] i = Identity(x)
    [product] m = MatMul(i, w)
    [sum] s = Add(m, b)
    [second] j = Identity(s)
    [third] k = Identity(j)
    [last] y = Relu(k)
    [other] z = Neg(j)
}
"""
RECIPE = "recipe: r\nsteps:\n  - drop-identity\n  - fuse-matmul-add\nexpect: {ops: {Identity: 0}}\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(text.parse(MODEL), path)
    return path


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    path = tmp_path / "r.yaml"
    path.write_text(RECIPE)
    return recipes.load(path)


def planned(model: Path, recipe: Recipe, verify: plan_document.Checks = "none") -> Plan:
    planning = make(storage.load(model), recipe, "r.yaml", folder=model.parent, verify=verify)
    assert planning.ok and planning.exit_code == 0
    return planning.plan


def applied(plan: Plan, model: Path, recipe: Recipe, output: Path) -> following_run.Follower:
    """Apply a plan as the command does."""
    where = model.parent / "plan.json"
    stored = storage.load(model)
    following_run.require_unchanged(plan, stored, recipe, where)
    follower = following_run.Follower(plan, recipe, where)
    result = runner.apply(
        model, recipe, output=output, options=RunOptions(observer=follower, choice=follower, accept=follower.accept)
    )
    assert result.ok
    return follower


@pytest.mark.parametrize("verify", ["none", "each", "end"])
def test_a_plan_lists_nodes_and_savings_of_each_site(model: Path, recipe: Recipe, verify: plan_document.Checks) -> None:
    plan = planned(model, recipe, verify)
    assert [(step.step, step.name, step.where, len(step.sites)) for step in plan.steps] == [
        (1, "drop-identity", "r.yaml:3", 3),
        (2, "fuse-matmul-add", "r.yaml:4", 1),
    ]
    first, fused = plan.steps[0].sites[0], plan.steps[1].sites[0]
    assert [node.model_dump() for node in first.removes] == [{"name": "first", "op": "Identity"}]
    assert (first.adds, first.origins, first.outputs, first.saves.nodes) == ((), ("first",), ("i",), 1)
    assert {node.name: node.op for node in fused.removes} == {"product": "MatMul", "sum": "Add"}
    assert [node.op for node in fused.adds] == ["Gemm"]
    assert set(fused.origins) == {"product", "sum"} and fused.outputs == ("s",)
    assert fused.saves.nodes == 1 and plan.steps[1].saves.nodes == 1
    assert (plan.before.nodes, plan.after.nodes) == (7, 3)
    assert plan.verified == verify and [one.what for one in plan.expectations] == ["Identity: == 0 (found 0)"]


def test_planned_bytes_equal_file_sizes(model: Path, recipe: Recipe, tmp_path: Path) -> None:
    plan = planned(model, recipe)
    runner.apply(model, recipe, output=tmp_path / "out.onnx", options=RunOptions(provenance=False))
    assert plan.after.bytes == (tmp_path / "out.onnx").stat().st_size
    assert plan.before.bytes - plan.after.bytes == sum(step.saves.bytes for step in plan.steps)


def test_operations_are_counted_by_definition(tmp_path: Path) -> None:
    # A product with a matrix of 4 x 4: 2 * 4 * 4 operations for each of 3 rows; two of them become one.
    path, file = tmp_path / "m.onnx", tmp_path / "r.yaml"
    body = "<float[4, 4] w = {0,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6}> { a = MatMul(x, w) c = MatMul(x, w) y = Sub(a, c) }"
    onnx.save(text.parse(f"g (float[3, 4] x) => (float[3, 4] y) {body}"), path)
    file.write_text("recipe: r\nsteps: [common-subexpressions]\n")
    (step,) = planned(path, recipes.load(file)).steps
    assert step.saves.operations == 2 * 4 * 4 * 3
    assert step.sites[0].saves.operations == 2 * 4 * 4 * 3


def test_weights_that_only_a_site_reads_are_its_saving(tmp_path: Path) -> None:
    path, file = tmp_path / "m.onnx", tmp_path / "r.yaml"
    body = "<float[1] one = {1}> { a = Mul(x, one) y = Relu(a) }"
    onnx.save(text.parse(f"g (float[3, 4] x) => (float[3, 4] y) {body}"), path)
    file.write_text("recipe: r\nsteps: [drop-no-op]\n")
    plan = planned(path, recipes.load(file))
    assert [step.sites[0].saves.bytes for step in plan.steps] == [4]


def test_an_applied_plan_gives_the_bytes_of_a_plain_run(model: Path, recipe: Recipe, tmp_path: Path) -> None:
    runner.apply(model, recipe, output=tmp_path / "plain.onnx")
    for verify in ("none", "each"):
        output = tmp_path / f"{verify}.onnx"
        follower = applied(planned(model, recipe, verify), model, recipe, output)
        assert output.read_bytes() == (tmp_path / "plain.onnx").read_bytes()
        assert follower.summary() == "as planned: 4 sites in 2 steps"


def test_a_plan_round_trips(model: Path, recipe: Recipe, tmp_path: Path) -> None:
    plan = planned(model, recipe)
    (tmp_path / "plan.json").write_text(plan.text())
    assert plan_document.read(tmp_path / "plan.json") == plan
    assert plan_document.is_plan(plan.text().encode()) and plan_document.is_plan(json.dumps(plan.to_json()).encode())
    assert planned(model, recipe).text() == plan.text()


def test_an_empty_plan_round_trips(model: Path, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("recipe: r\nsteps: [drop-dropout]\n")
    plan = planned(model, recipes.load(tmp_path / "r.yaml"))
    (tmp_path / "plan.json").write_text(plan.text())
    assert plan.steps == () and plan_document.read(tmp_path / "plan.json") == plan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plan: plan | {"format_version": 9}, "the plan has format version 9, and this release reads 1"),
        (lambda plan: plan | {"verified": "some"}, "verified: Input should be 'none', 'each' or 'end'"),
        (lambda plan: plan | {"more": 1}, "more: Extra inputs are not permitted"),
        (lambda plan: [], "the plan has format version None"),
    ],
)
def test_a_wrong_field_of_a_plan_is_named(
    model: Path, recipe: Recipe, tmp_path: Path, change: Any, message: str
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(change(planned(model, recipe).to_json())))
    with pytest.raises(UsageError) as caught:
        plan_document.read(path)
    assert str(caught.value).startswith(f"{path}: {message}")


# What skipped sites bring about


def test_a_skipped_site_is_left_out(model: Path, recipe: Recipe, tmp_path: Path) -> None:
    plan = following_run.skipping(planned(model, recipe), ["1:1"])
    relaxed = replace(recipe, expect=replace(recipe.expect, ops={}))
    follower = applied(planned(model, relaxed).model_copy(update={"steps": plan.steps}), model, relaxed, tmp_path / "o")
    names = {node.name: node.op_type for node in onnx.load(tmp_path / "o").graph.node}
    assert names["first"] == "Identity" and "second" not in names
    assert [one["anchor"] for one in follower.to_json()["skipped"]] == ["first"]
    assert follower.summary().startswith("as planned: 1 site skipped")


def test_sites_without_nodes_are_skipped_together(tmp_path: Path) -> None:
    body = "g (float[2] x, float[2] a, float[2] b) => (float[2] y) { y = Neg(x) }"
    onnx.save(text.parse(body), tmp_path / "m.onnx")
    (tmp_path / "r.yaml").write_text("recipe: r\nverify: {mode: 'off'}\nsteps: [drop-unused-inputs]\n")
    recipe = recipes.load(tmp_path / "r.yaml")
    plan = planned(tmp_path / "m.onnx", recipe)
    assert len(plan.steps[0].sites) == 2
    with pytest.raises(PlanError, match="site 1 has no nodes by which to skip it alone; skip 1:1, 1:2"):
        applied(following_run.skipping(plan, ["1:1"]), tmp_path / "m.onnx", recipe, tmp_path / "o.onnx")
    applied(following_run.skipping(plan, ["1:1", "1:2"]), tmp_path / "m.onnx", recipe, tmp_path / "o.onnx")
    assert len(onnx.load(tmp_path / "o.onnx").graph.input) == 3


def test_sites_that_arise_from_a_skipped_site_are_left_out_too(model: Path, tmp_path: Path) -> None:
    # The last step would find what the first one skips.
    (tmp_path / "r.yaml").write_text("recipe: r\nsteps:\n  - drop-identity\n  - fuse-matmul-add\n  - drop-identity\n")
    recipe = recipes.load(tmp_path / "r.yaml")
    plan = following_run.skipping(planned(model, recipe), ["1:2", "1:3"])
    follower = applied(plan, model, recipe, tmp_path / "o.onnx")
    ops = [node.op_type for node in onnx.load(tmp_path / "o.onnx").graph.node]
    assert ops.count("Identity") == 2 and "Gemm" in ops
    assert {one["where"] for one in follower.to_json()["left_out"]} == {"r.yaml:5"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("7:1", "--skip 7:1: the plan has no step 7, its steps are 1 to 2"),
        ("1:9", "--skip 1:9: the plan has no site 9 in step 1; the sites of 'drop-identity' are 1, 2, 3"),
        ("1", "--skip 1: expected STEP:SITE, the numbers of a step and of one of its sites"),
    ],
)
def test_a_missing_site_cannot_be_skipped(model: Path, recipe: Recipe, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        following_run.skipping(planned(model, recipe), [text])
    assert str(caught.value) == message


# What is refused


def refusal(plan: Plan, model: Path, recipe: Recipe) -> list[str]:
    output = model.parent / "refused.onnx"
    with pytest.raises(PlanError) as caught:
        applied(plan, model, recipe, output)
    assert caught.value.exit_code == 2 and not output.exists()
    return str(caught.value).splitlines()


def test_another_model_is_refused_with_the_part_that_changed(model: Path, recipe: Recipe) -> None:
    plan = planned(model, recipe)
    onnx.save(text.parse(MODEL.replace("b = {1, 2, 3, 4}", "b = {1, 2, 3, 5}")), model)
    head, line = refusal(plan, model, recipe)
    assert head == f"{model.parent}/plan.json: the dependencies of the plan have changed; make the plan again"
    assert line.startswith("  model 'm.onnx' in initializer 'b': ") and " -> " in line


def test_another_recipe_is_refused(model: Path, recipe: Recipe, tmp_path: Path) -> None:
    plan = planned(model, recipe)
    (tmp_path / "r.yaml").write_text(f"{RECIPE}# more\n")
    (_, line) = refusal(plan, model, recipes.load(tmp_path / "r.yaml"))
    assert line.startswith("  file 'r.yaml': ")


def test_each_changed_dependency_has_its_line(model: Path, recipe: Recipe) -> None:
    plan = planned(model, recipe)
    pins = plan.basis.pins
    other = {
        "passes": {**pins["passes"], "drop-identity": "0" * 64},
        "packages": {**pins["packages"], "onnx": "1.0"},
        "engine": "1" * 64,
    }
    then = plan.basis.model_copy(update={"pins": {**pins, **other}})
    source, package, engine = changes(then, plan.basis)
    assert source.startswith("source of pass 'drop-identity': 000000000000 -> ")
    assert package == f"package onnx: 1.0 -> {onnx.__version__}"
    assert engine.startswith("the source of surgery: 111111111111 -> ")
    assert len(refusal(plan.model_copy(update={"basis": then}), model, recipe)) == 4


def without(plan: Plan, step: int, site: int) -> Plan:
    """The plan as if it had never had a site."""
    steps = [
        one.model_copy(update={"sites": tuple(s for s in one.sites if (one.step, s.site) != (step, site))})
        for one in plan.steps
    ]
    return plan.model_copy(update={"steps": tuple(steps)})


def test_a_site_that_is_not_planned_is_refused(model: Path, recipe: Recipe) -> None:
    (line,) = refusal(without(planned(model, recipe), 1, 3), model, recipe)
    assert "step 1, 'drop-identity' at r.yaml:3: site 3 at 'third' was found, but is not planned" in line


def test_a_site_that_is_not_found_is_refused(model: Path, recipe: Recipe) -> None:
    plan = planned(model, recipe)
    extra = plan.steps[0].sites[2].model_copy(update={"site": 4, "anchor": "fourth"})
    steps = plan.steps[0].model_copy(update={"sites": (*plan.steps[0].sites, extra)}), plan.steps[1]
    (line,) = refusal(plan.model_copy(update={"steps": steps}), model, recipe)
    assert "site 4 at 'fourth' is planned, but was not found" in line


def test_a_planned_step_without_sites_is_refused(model: Path, recipe: Recipe) -> None:
    plan = planned(model, recipe)
    more = plan.steps[1].model_copy(update={"step": 3, "name": "drop-dropout", "where": "r.yaml:5"})
    (line,) = refusal(plan.model_copy(update={"steps": (*plan.steps, more)}), model, recipe)
    assert "step 3, 'drop-dropout' at r.yaml:5: the pass finds no sites" in line


def test_a_step_that_is_not_planned_is_refused(model: Path, recipe: Recipe) -> None:
    plan = planned(model, recipe)
    (line,) = refusal(plan.model_copy(update={"steps": plan.steps[:1]}), model, recipe)
    assert "step 'fuse-matmul-add' at r.yaml:4 is not in the plan: site 1 at " in line


WRONG = """
recipe: r
rules:
  wrong: {match: "y = Neg(x)", emit: "y = Abs(x)"}
steps:
  - pass: wrong
    on_failure: ON_FAILURE
"""


@pytest.mark.parametrize("on_failure", sampled(["rollback", "bisect"], 2))
def test_a_step_undone_by_verification_is_refused(model: Path, tmp_path: Path, on_failure: str) -> None:
    (tmp_path / "r.yaml").write_text(WRONG.replace("ON_FAILURE", on_failure))
    recipe = recipes.load(tmp_path / "r.yaml")
    plan = planned(model, recipe)
    assert [len(step.sites) for step in plan.steps] == [1]
    (line,) = refusal(plan, model, recipe)
    assert "step 1, 'wrong' at r.yaml:6: verification undoes it: " in line
    assert line.endswith("make the plan with --verify each, or skip the site")
    assert planned(model, recipe, "each").steps == ()


def test_a_step_that_ends_the_run_is_reported(model: Path, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(WRONG.replace("ON_FAILURE", "abort"))
    recipe = recipes.load(tmp_path / "r.yaml")
    planning = make(storage.load(model), recipe, "r.yaml", verify="each")
    assert planning.failure is not None and planning.failure.name == "wrong" and planning.exit_code == 1


def test_an_expectation_that_is_not_met_is_reported(model: Path, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("recipe: r\nsteps: [drop-identity]\nexpect: {ops: {Relu: 0}}\n")
    planning = make(storage.load(model), recipes.load(tmp_path / "r.yaml"), "r.yaml")
    assert not planning.ok and planning.exit_code == 1
    assert [(one.what, one.ok) for one in planning.plan.expectations] == [("Relu: == 0 (found 1)", False)]


@pytest.mark.parametrize("skipped", [["1:1"], ["1:2"], ["1:1", "1:2"]])
def test_a_pass_that_revisits_nodes_terminates(tmp_path: Path, skipped: list[str]) -> None:
    # After each site, fold-affine looks at what reads the result: a site that is left out is none.
    path, file = tmp_path / "m.onnx", tmp_path / "r.yaml"
    body = "{ t = MatMul(x, w) u = Mul(t, a) y = Mul(u, b) }"
    weights = "<float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] a = {2, 3}, float[2] b = {4, 5}>"
    onnx.save(text.parse(f"g (float[n, 3] x) => (float[n, 2] y) {weights} {body}"), path)
    file.write_text("recipe: r\nsteps: [fold-affine]\n")
    recipe = recipes.load(file)
    plan = planned(path, recipe)
    assert [len(step.sites) for step in plan.steps] == [2]
    follower = applied(following_run.skipping(plan, skipped), path, recipe, tmp_path / "o.onnx")
    assert len(follower.to_json()["skipped"]) >= 1
    assert "Mul" in {node.op_type for node in onnx.load(tmp_path / "o.onnx").graph.node}
