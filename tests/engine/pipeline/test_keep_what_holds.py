"""What was verified before a step was refused is kept: of the step its sites that hold, and all other steps."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support import SUPPORT
from support.breadth import sampled

from surgery.base.promises import Parity
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import delta_debugging, judging, pipeline, runner
from surgery.engine.pipeline.candidate import Candidate
from surgery.engine.pipeline.run_options import RunOptions
from surgery.engine.recipe import PassStep, RepeatStep, UseStep, recipe_lookup
from surgery.engine.recipe.on_failure import decided
from surgery.engine.registry.catalog import catalog
from surgery.engine.registry.declare import graph_pass
from surgery.engine.registry.passes import Pass
from surgery.interface import commands as cli
from surgery.model.graph import text
from surgery.model.graph.graph import Graph
from surgery.model.graph.state import Site
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.signature.tracker import SignatureTracker

SMALL_WRONG = str(SUPPORT / "plugin_small_wrong.py")

# Of three Relus, the second alone is fed negative numbers.
RELUS = """g (float[batch, 6] x) => (float[batch, 6] y) {
    a = Abs(x)  r1 = Relu(a)  i = Identity(r1)  c = Cos(i)  r2 = Relu(c)  s = Sigmoid(r2)  r3 = Relu(s)  y = Neg(r3)
}"""


@graph_pass("keep-drop-relu", parity=Parity.EXACT)
def keep_drop_relu(graph: Graph) -> None:
    """Drop each Relu."""
    for node in graph.nodes("Relu"):
        with graph.site(node):
            graph.replace(node.outputs[0], node.required_input(0))


@graph_pass("keep-raise", parity=Parity.EXACT)
def keep_raise(graph: Graph) -> None:
    """Raise what no pass should."""
    raise KeyError("else_branch")


@graph_pass("keep-swap", parity=Parity.EXACT)
def keep_swap(graph: Graph) -> None:
    """Write -x in two ways, by turns."""
    for node in [*graph.nodes("Neg"), *graph.nodes("Mul")]:
        with graph.site(node) as new:
            x = node.required_input(0)
            made = (
                new.node("Neg", x) if node.op == "Mul" else new.node("Mul", x, new.constant(np.array(-1, np.float32)))
            )
            new.replace(node.outputs[0], made)


@pytest.fixture(params=sampled(["here", "contained"], 2))
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run passes as standard ones, ahead of the judgement; and as those of others, in a fork."""
    if request.param == "here":
        monkeypatch.setattr(Pass, "is_standard", property(lambda self: True))
    return str(request.param)


def apply(
    steps: str,
    more: str = "on_failure: bisect",
    model: str = RELUS,
    *,
    output: Path | None = None,
    strict: bool = False,
) -> runner.Result:
    recipe = recipes.parse(f"recipe: t\n{more}\nsteps: {steps}", "t.yaml")
    return runner.apply(text.parse(model), recipe, output=output, options=RunOptions(strict=strict))


def outcomes(result: runner.Result) -> list[tuple[str, str]]:
    return [(step.name, step.status) for step in result.steps]


def ops(result: runner.Result) -> list[str]:
    return [node.op_type for node in result.proto.graph.node]


@pytest.mark.parametrize("mode", sampled(["each", "end"], 2))
def test_a_recipe_keeps_correct_sites(where: str, mode: str, tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    more = f"on_failure: bisect\nverify: {{mode: {mode}}}"
    result = apply("[keep-drop-relu, drop-identity, drop-dead]", more, output=output)
    assert outcomes(result)[-3:] == [
        ("keep-drop-relu", "committed"),
        ("drop-identity", "committed"),
        ("drop-dead", "unchanged"),
    ]
    assert (result.ok, result.exit_code) == (True, 0)
    assert ops(result) == ["Abs", "Cos", "Relu", "Sigmoid", "Neg"]
    assert [node.op_type for node in onnx.load(output).graph.node] == ops(result)
    *_, refused = result.refused
    assert [site.number for site in refused.refused_sites] == [2]
    assert result.to_json()["refused"][-1]["pass"] == "keep-drop-relu"
    assert [step.name for step in result.refused] == [*(["(end)"] if mode == "end" else []), "keep-drop-relu"]


HIDDEN = "g (float[N,6] x) => (float[N,6] y) <float zero = {0}> { a = OP(x) r = Relu(a) m = Mul(r, zero) y = Abs(m) }"


@pytest.mark.parametrize(("compare", "op", "status"), [
    ("both", "Abs", "committed"),
    ("both", "Cos", "rolled_back"),
    ("whole", "Abs", "rolled_back"),
])  # fmt: skip
def test_a_change_hidden_from_outputs_can_be_verified_in_its_region(compare: str, op: str, status: str) -> None:
    more = f"on_failure: bisect\nverify: {{compare: {compare}}}"
    result = apply("[keep-drop-relu]", more, HIDDEN.replace("OP", op))
    assert outcomes(result) == [("keep-drop-relu", status)]
    assert result.end is None


def test_hidden_sites_are_kept_after_a_failed_final_check(where: str) -> None:
    model = """g (float[N,6] x) => (float[N,6] y, float[N,6] z) <float zero = {0}> {
        a = Abs(x) r1 = Relu(a) m = Mul(r1, zero) y = Abs(m) c = Cos(x) r2 = Relu(c) z = Neg(r2) }"""
    result = apply("[keep-drop-relu]", "on_failure: bisect\nverify: {mode: end}", model)
    assert [step.name for step in result.refused] == ["(end)", "keep-drop-relu"]
    assert [site.number for site in result.refused[-1].refused_sites] == [2]
    assert sorted(ops(result)) == ["Abs", "Abs", "Cos", "Mul", "Neg", "Relu"]


@pytest.mark.parametrize("mode", sampled(["each", "end"], 2))
def test_a_strict_run_writes_nothing_if_a_step_is_refused(where: str, mode: str, tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    more = f"on_failure: bisect\nverify: {{mode: {mode}}}"
    result = apply("[drop-identity, keep-drop-relu]", more, output=output, strict=True)
    assert (result.ok, result.exit_code, result.failure) == (False, 1, None)
    assert not output.exists() and result.to_json()["strict"] is True
    assert list(tmp_path.iterdir()) == []
    assert apply("[drop-identity]", more, output=output, strict=True).ok and output.exists()


def test_a_pass_that_raises_is_a_refused_step(where: str) -> None:
    result = apply("[drop-identity, keep-raise, drop-dead]")
    assert outcomes(result) == [
        ("drop-identity", "committed"),
        ("keep-raise", "rolled_back"),
        ("drop-dead", "unchanged"),
    ]
    # The exception of a standard pass is a defect of surgery; a pass of the user that breaks is no refusal either.
    assert result.exit_code == (3 if where == "here" else 1) and result.ok
    assert "KeyError: 'else_branch'" in result.steps[1].message
    aborted = apply("[drop-identity, keep-raise, drop-dead]", "on_failure: abort")
    assert outcomes(aborted) == [("drop-identity", "committed"), ("keep-raise", "failed")] and aborted.exit_code == 3


def test_an_internal_error_during_verification_refuses_the_step(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verify = SignatureTracker.verify

    def breaks(self: SignatureTracker, model: onnx.ModelProto, *rest: Any) -> Any:
        if not any(node.op_type == "Identity" for node in model.graph.node):
            raise AttributeError("'dict' object has no attribute 'size'")
        return verify(self, model, *rest)

    monkeypatch.setattr(SignatureTracker, "verify", breaks)
    result = apply("[drop-identity, {pass: drop-dead, on_failure: abort}]")
    assert outcomes(result) == [("drop-identity", "rolled_back"), ("drop-dead", "unchanged")] and result.ok
    assert "internal error: AttributeError: 'dict' object has no attribute 'size' (test_keep" in result.steps[0].message
    aborted = apply("[drop-identity]", "on_failure: abort")
    assert outcomes(aborted) == [("drop-identity", "failed")] and aborted.exit_code == 3


def test_a_refused_step_is_not_judged_again_on_the_same_model(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    complaints = judging.Verifying._complaints

    def counting(self: judging.Verifying, candidate: Candidate, *rest: Any) -> Iterator[str]:
        judged.append(candidate.step.name)
        return complaints(self, candidate, *rest)

    monkeypatch.setattr(judging.Verifying, "_complaints", counting)
    steps = "[{repeat: 5, steps: [drop-identity, {pass: keep-drop-relu, on_failure: rollback}]}]"
    result = apply(steps)
    # Rounds end with the first that changes nothing, one later where that is not known in time.
    assert outcomes(result).count(("keep-drop-relu", "rolled_back")) in (2, 3) and result.ok
    assert judged.count("keep-drop-relu") == 1 and len(result.refused) == 1


def test_sites_that_were_refused_are_not_tried_again(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = apply("[{repeat: until-stable, steps: [keep-drop-relu, drop-identity]}]")
    assert outcomes(result) == [
        ("keep-drop-relu", "committed"),
        ("drop-identity", "committed"),
        ("keep-drop-relu", "unchanged"),
        ("drop-identity", "unchanged"),
    ]


def test_endless_rounds_are_stopped(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_MOST_ROUNDS", 1)
    result = apply("[drop-identity, {repeat: until-stable, steps: [keep-swap]}]")
    assert outcomes(result)[-1] == ("(repeat)", "unchanged") and "ended" in result.steps[-1].message
    assert result.ok and "Identity" not in ops(result) and "Mul" in ops(result)


def test_rounds_end_when_a_model_recurs(where: str) -> None:
    for rounds in ("until-stable", "9"):
        result = apply(f"[{{repeat: {rounds}, steps: [keep-swap]}}]", model=RELUS.replace("Cos(i)", "Neg(i)"))
        assert outcomes(result) == [("keep-swap", "committed")] * 2
        assert result.ok and "Neg" in ops(result)


def test_unverified_sites_are_left_out_and_the_rest_kept(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verify = SignatureTracker.verify

    def doubting(self: SignatureTracker, model: onnx.ModelProto, *rest: Any) -> Any:
        if any("r1" in node.output for node in model.graph.node):
            return verify(self, model, *rest)
        return Verdict(Status.UNVERIFIED, "vacuous", message="nothing shows it")

    monkeypatch.setattr(SignatureTracker, "verify", doubting)
    result = apply("[keep-drop-relu]", model=RELUS.replace("Cos(i)", "Exp(i)"))
    (step,) = result.steps
    assert step.status == "committed" and ops(result).count("Relu") == 1 and result.ok
    assert [(site.number, site.why) for site in step.refused_sites] == [(1, "nothing shows it")]


# A custom operator without a library: the whole cannot be run. What each Relu does shows in its region, except
# where the custom operator alone says what comes in.
CUSTOM = """<ir_version: 8, opset_import: ["" : 17, "com.acme" : 1]>
g (float[batch, 6] x) => (float[batch, 6] y, z) {
    a = Abs(x)  r1 = Relu(a)  y = Sigmoid(r1)  f = com.acme.Foo(y)  r2 = Relu(f)  z = com.acme.Foo(r2)
}"""


def test_sites_of_an_unrunnable_model_are_verified_by_region(where: str) -> None:
    result = apply("[keep-drop-relu]", model=CUSTOM)
    (step,) = result.steps
    assert (result.ok, step.status) == (True, "committed")
    assert ops(result) == ["Abs", "Sigmoid", "Foo", "Relu", "Foo"]
    assert [site.number for site in step.refused_sites] == [2]
    assert "com.acme" in step.refused_sites[0].why


def test_a_search_that_gives_up_keeps_the_largest_correct_set() -> None:
    sites = [Site(number, f"n{number}", (), ()) for number in range(1, 41)]

    class Run:
        def __init__(self, skip: frozenset[int]) -> None:
            self.sites = [replace(site, skipped=site.number in skip) for site in sites]
            self.ok = all(site.skipped for site in self.sites if site.number > 10)

    search = delta_debugging.SiteSearch(Run, Run(frozenset()), most=8)
    with pytest.raises(delta_debugging.SearchLimit, match="after 8 runs"):
        search.guilty()
    assert search.best is not None
    assert [site.number for site in search.best.sites if not site.skipped] == list(range(1, 11))
    hurried = delta_debugging.SiteSearch(Run, Run(frozenset()), seconds=-1.0)
    with pytest.raises(delta_debugging.SearchLimit, match="gave up after"):
        hurried.guilty()


def steps_of(recipe: recipes.Recipe) -> list[str | None]:
    found: list[str | None] = []
    for step in recipe.steps:
        match step:
            case PassStep():
                found.append(step.on_failure)
            case RepeatStep():
                found += [step.on_failure, *steps_of(recipes.Recipe("", step.steps))]
            case UseStep():
                found += steps_of(step.recipe)
    return found


@pytest.mark.parametrize(
    ("outer", "inner", "override", "expected"),
    [
        ("", "", None, ["abort", "keep", "abort", "abort", "abort", "rollback"]),
        ("on_failure: bisect", "", None, ["bisect", "keep", "bisect", "bisect", "bisect", "rollback"]),
        ("", "on_failure: bisect, ", None, ["abort", "keep", "abort", "abort", "bisect", "rollback"]),
        ("on_failure: abort", "on_failure: bisect, ", None, ["abort", "keep", "abort", "abort", "abort", "rollback"]),
        ("on_failure: abort", "on_failure: bisect, ", "rollback", ["rollback"] * 6),
    ],
)
def test_precedence_of_on_failure_settings(outer: str, inner: str, override: Any, expected: list[str]) -> None:
    source = f"""{outer}
steps:
  - drop-dead
  - {{pass: drop-no-op, on_failure: keep}}
  - {{repeat: 2, steps: [drop-identity]}}
  - use: {{{inner}steps: [drop-dropout, {{pass: drop-no-op, on_failure: rollback}}]}}
"""
    assert steps_of(decided(recipes.parse(source), override)) == expected


@pytest.mark.parametrize("name", recipe_lookup.names())
def test_no_shipped_recipe_aborts_on_failure(name: str) -> None:
    assert "abort" not in steps_of(decided(recipes.load(name)))


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = cli.main([str(argument) for argument in arguments])
    return code, " ".join(capsys.readouterr().out.split())


def test_the_command_reports_refused_sites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog.load_plugin(SMALL_WRONG)
    model, output, recipe = tmp_path / "m.onnx", tmp_path / "o.onnx", tmp_path / "r.yaml"
    onnx.save(text.parse(RELUS), model)
    recipe.write_text("recipe: r\nsteps: [drop-identity, drop-relu]\n")
    code, out = run(capsys, "apply", recipe, model, "-o", output)
    assert code == 1 and "no file was written --on-failure bisect keeps the correct sites" in out
    assert not output.exists()
    keep = ("apply", recipe, model, "-o", output, "--on-failure", "bisect")
    code, out = run(capsys, *keep, "--strict")
    assert code == 1 and "1 site was refused and undone, see above; --strict writes no file" in out
    assert not output.exists()
    code, out = run(capsys, *keep)
    assert code == 0 and "1 site was refused and undone, see above" in out and "refused site 2 at" in out
    assert [node.op_type for node in onnx.load(output).graph.node] == ["Abs", "Cos", "Relu", "Sigmoid", "Neg"]
    code, out = run(capsys, *keep, "--force", "--on-failure", "rollback", "--format", "json")
    assert code == 0 and [step["status"] for step in json.loads(out)["steps"]] == ["committed", "rolled_back"]
    code, out = run(capsys, "run", "drop-relu", model, "--on-failure", "bisect")
    assert code == 0 and "5 -> 3" not in out and "refused site 2" in out
