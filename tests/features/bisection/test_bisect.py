"""From a wrong step to its guilty site, to a small model that shows it without surgery."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import ROOT, SUPPORT
from support.breadth import sampled

import surgery
from surgery.base.errors import OutputError
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.recipe import schema
from surgery.engine.registry.catalog import catalog
from surgery.features.bisection.bisect import Blame, bisect
from surgery.interface import commands as cli
from surgery.model.graph import text

BERT = ROOT / "models" / "bert-tiny.ts.onnx"
PLUGIN = SUPPORT / "plugin_one_wrong.py"

# Of five Relus, the third alone is fed negative numbers.
RELUS = """g (float[batch, 6] x) => (float[batch, 6] y)
<float[6, 6] w = {1, -2, 3, 4, 5, -6, 7, 8, 9, 1, -2, 3, 4, 5, -6, 7, 1, 2, 3, -4, 5, 6, 7, 8, 1, 2, -3, 4, 5, 6,
 1, 2, 3, 4, -5, 6}> {
    a = Abs(x)   r1 = Relu(a)
    e = Exp(r1)  r2 = Relu(e)
    m = MatMul(r2, w)  t = Tanh(m)  r3 = Relu(t)
    q = Sqrt(r3) r4 = Relu(q)
    s = Sigmoid(r4)  r5 = Relu(s)
    y = Neg(r5)
}"""

SOFTMAXES = """g (float[n, 4] x) => (float[n, 4] y) {
    a = Softmax(x)  b = Softmax(a)  c = Softmax(b)  d = Softmax(c)
    e = Softmax(d)  f = Softmax(e)  h = Softmax(f)  y = Softmax(h)
}"""


@pytest.fixture(autouse=True, scope="module")
def wrong_passes() -> None:
    catalog.load_plugin(str(PLUGIN))
    catalog.load_plugin(str(SUPPORT / "plugin_small_wrong.py"))


@pytest.fixture
def find(tmp_path: Path) -> Callable[..., Blame]:
    def find(model: str | Path | onnx.ModelProto, steps: str, **options: bool) -> Blame:
        recipe = recipes.parse(f"recipe: test\n{steps}", "test.yaml")
        given = text.parse(model) if isinstance(model, str) else model
        return bisect(given, recipe, output=tmp_path / "repro", **options)

    return find


def reproduce(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the script as a stranger would, from anywhere."""
    return subprocess.run([sys.executable, folder / "repro.py"], capture_output=True, text=True, cwd="/")


def nodes(folder: Path, name: str) -> list[str]:
    model = onnx.load(folder / f"{name}.onnx")
    onnx.checker.check_model(model, full_check=True)
    return [node.op_type for node in model.graph.node]


def check_arrays(folder: Path, found: Blame) -> None:
    """The arrays in the folder are what the models make of the inputs."""
    from onnx.reference import ReferenceEvaluator

    with np.load(folder / "inputs.npz") as given, np.load(folder / "expected.npz") as expected:
        feed = dict(given)
        (name,) = expected.files
        results = ReferenceEvaluator(str(folder / "original.onnx")).run(None, feed)
        np.testing.assert_allclose(results[0], expected[name], rtol=1e-5, atol=1e-6)
    with np.load(folder / "actual.npz") as actual:
        results = ReferenceEvaluator(str(folder / "changed.onnx")).run(None, feed)
        np.testing.assert_allclose(results[0], actual[name], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_one_wrong_site_of_a_bert(find: Callable[..., Blame]) -> None:
    found = find(BERT, "steps: [{spell-softmax: {wrong: 7}}]")
    (guilty,) = found.guilty
    anchor = "/model/encoder/layer.6/attention/self/Softmax"
    assert (guilty.site.number, guilty.site.anchor, guilty.site.removed) == (7, anchor, (anchor,))
    assert [name.rpartition("/")[2] for name in guilty.site.added] == ["ReduceMax", "Sub", "Exp", "ReduceSum", "Div"]
    assert found.sites == 12 and found.rest and guilty.tried and not guilty.needs
    assert found.runs <= 8
    assert found.exit_code == 1 and found.step is not None and found.step.name == "spell-softmax"
    assert found.folder is not None and found.reproduced
    assert nodes(found.folder, "original") == ["Softmax", "MatMul"]
    assert nodes(found.folder, "changed") == ["ReduceMax", "Sub", "Exp", "ReduceSum", "Div", "MatMul"]
    done = reproduce(found.folder)
    assert done.returncode == 1 and "AssertionError" in done.stderr


def test_the_repro_describes_itself(find: Callable[..., Blame]) -> None:
    found = find(RELUS, "steps: [drop-relu]")
    (guilty,) = found.guilty
    assert guilty.site.number == 3
    assert found.folder is not None and found.reproduced
    check_arrays(found.folder, found)
    assert (nodes(found.folder, "original"), nodes(found.folder, "changed")) == (["Relu", "Sqrt"], ["Sqrt"])
    assert not onnx.load(found.folder / "original.onnx").graph.initializer
    report = json.loads((found.folder / "report.json").read_text())
    assert report["guilty"][0]["site"] == 3 and report["repro"]["nodes"] == {"original": 2, "changed": 1}
    readme = (found.folder / "README.txt").read_text()
    assert "drop-relu" in readme and "site 3" in readme and report["repro"]["message"] in readme
    assert {path.name for path in found.folder.iterdir()} == {
        "README.txt",
        "actual.npz",
        "changed.onnx",
        "expected.npz",
        "inputs.npz",
        "original.onnx",
        "report.json",
        "repro.py",
        "step.yaml",
    }
    assert recipes.load(found.folder / "step.yaml").steps == (schema.PassStep("drop-relu"),)


def test_a_crash_is_found_and_its_repro_crashes(find: Callable[..., Blame]) -> None:
    model = "g (float[2, 3] x) => (float[2, 3] y) { a = Softmax(x) b = Softmax(a) y = Softmax(b) }"
    found = find(model, "steps: [{spell-softmax: {wrong: 2, how: crash}}]")
    assert [one.site.number for one in found.guilty] == [2]
    assert "SIGFPE" in found.guilty[0].why
    assert found.folder is not None and found.reproduced and not (found.folder / "actual.npz").exists()
    assert reproduce(found.folder).returncode == -8
    assert "crashes the process" in (found.folder / "README.txt").read_text()


@pytest.mark.slow
def test_a_site_the_runtime_refuses_is_found(find: Callable[..., Blame]) -> None:
    model = "g (float[n, 3] x) => (float[n, 3] y) { a = Softmax(x) b = Softmax(a) y = Softmax(b) }"
    found = find(model, "steps: [{spell-softmax: {wrong: 1, how: refused}}]")
    assert [one.site.number for one in found.guilty] == [1]
    assert found.folder is not None and found.reproduced
    done = reproduce(found.folder)
    assert done.returncode == 1 and "Reshape" in done.stderr and "AssertionError" not in done.stderr


@pytest.mark.slow
def test_a_site_the_checker_refuses_needs_no_repro(find: Callable[..., Blame]) -> None:
    model = "g (float[2, 3] x) => (float[2, 3] y) { a = Softmax(x) b = Softmax(a) y = Softmax(b) }"
    found = find(model, "steps: [{spell-softmax: {wrong: 3, how: checker}}]")
    assert [one.site.number for one in found.guilty] == [3]
    assert "temperature" in found.guilty[0].why
    assert found.folder is None and "without a run" in found.no_repro
    assert found.tries > found.runs


def test_two_wrong_sites(find: Callable[..., Blame]) -> None:
    found = find(SOFTMAXES, "steps: [{spell-softmax: {wrong: 2, other: 7}}]")
    assert [one.site.number for one in found.guilty] == [2, 7]
    assert all(one.tried and not one.needs for one in found.guilty) and found.rest


def test_sites_that_are_wrong_only_together(find: Callable[..., Blame]) -> None:
    # The first two negations do nothing to an Abs, the other two cancel out.
    model = """g (float[3] x) => (float[3] y) {
        n = Neg(x)  a = Abs(n)  m = Neg(a)  b = Abs(m)  o = Neg(b)  e = Exp(o)  y = Sqrt(e)
    }"""
    found = find(model, "steps: [swap-halves]")
    (guilty,) = found.guilty
    assert guilty.site.number == 3 and not guilty.needs and found.rest


@pytest.mark.parametrize(
    ("model", "steps", "counts"),
    sampled(
        [
            # A subgraph is cut whole, with what it captures.
            (
                """g (bool c, float[4] x) => (float[4] y) {
                p = Tanh(x)
                q = If(c) <then_branch = t () => (float[4] r) { r = Relu(p) },
                           else_branch = e () => (float[4] s) { s = Exp(p) }>
                y = Neg(q)
            }""",
                "drop-relu",
                (3, 3),
            ),
            # Many read what one site makes: one of them is enough to show it.
            (
                """g (float[2, 5] x) => (float[2, 5] y) {
                t = Tanh(x)  r = Relu(t)  a = Exp(r)  b = Sqrt(r)  c = Cos(r)  d = Sin(r)
                e = Add(a, b)  f = Add(c, d)  y = Add(e, f)
            }""",
                "drop-relu",
                (2, 1),
            ),
            # The site makes an output of the model.
            ("g (float[2, 5] x) => (float[2, 5] y) { t = Tanh(x)  y = Relu(t) }", "drop-relu", (2, 1)),
            # Too little to see where it happens, and too much further down.
            (
                """g (float[4] x) => (float[4] y) <float k = {9}> {
                t = Tanh(x)  r = Relu(t)  m = Mul(r, k)  s = Mul(m, k)  p = Exp(s)  q = Mul(p, p)  y = Mul(q, q)
            }""",
                "{scale-relu: {error: 1.0e-5}}",
                (4, 5),
            ),
            # 0.0 and -0.0 are equal as numbers.
            (
                "g (float[4] x) => (float[4] y) <float z = {0}> { r = Relu(x)  n = Neg(r)  y = Add(n, z) }",
                "drop-zero",
                None,
            ),
            # What is right for one size of the batch is wrong for another.
            (
                """g (float[batch, 6] x) => (float[m, n] y) <int64[2] s = {-1, 3}> {
                t = Tanh(x)  r = Reshape(t, s)  y = Exp(r)
            }""",
                "{pin-reshape: {rows: 2}}",
                (2, 2),
            ),
            # Another weight, and no new node.
            (
                """g (float[4] x) => (float[4] y) <float[4] v = {1, 2, 3, 4}, float[4] w = {1, 2, 3, 5}> {
                a = Mul(x, v)  t = Tanh(a)  b = Mul(t, w)  y = Exp(b)
            }""",
                "swap-scale",
                (1, 1),
            ),
            # A caller may set the weight.
            (
                """g (float[4] x, float[4] w) => (float[4] y) <float[4] v = {1, 2, 3, 4}, float[4] w = {1, 2, 3, 5}> {
                a = Mul(x, v)  t = Tanh(a)  b = Mul(t, w)  y = Exp(b)
            }""",
                "swap-scale",
                (1, 1),
            ),
            # A sequence cannot be in a file of arrays: the cut begins before it is made.
            (
                """g (float[4] x) => (float[4] y) <int64 i = {1}> {
                t = Tanh(x)  s = SequenceConstruct(x, t)  e = SequenceAt(s, i)  r = Relu(e)  y = Exp(r)
            }""",
                "drop-relu",
                (2, 1),
            ),
        ],
        9,
    ),
)
def test_the_repro_is_cut_to_few_nodes(
    find: Callable[..., Blame], model: str, steps: str, counts: tuple[int, int] | None
) -> None:
    found = find(model, f"steps: [{steps}]")
    assert len(found.guilty) == 1
    assert found.folder is not None, found.no_repro
    assert found.reproduced and found.nodes == (counts or found.nodes)
    assert max(found.nodes or ()) <= 10
    done = reproduce(found.folder)
    assert done.returncode == 1 and "AssertionError" in done.stderr


@pytest.mark.slow
def test_the_repro_includes_functions(find: Callable[..., Blame]) -> None:
    model = text.parse(
        """<ir_version: 8, opset_import: ["": 17, "local": 1]>
        g (float[4] x) => (float[4] y) { t = Tanh(x)  f = local.act(t)  y = Exp(f) }
        <domain: "local", opset_import: ["": 17]> act (a) => (b) { r = Relu(a)  b = Neg(r) }"""
    )
    found = find(model, "steps: [drop-relu]")
    assert [one.site.number for one in found.guilty] == [1]
    assert found.folder is not None and found.reproduced
    assert [function.name for function in onnx.load(found.folder / "original.onnx").functions] == ["act"]
    assert "AssertionError" in reproduce(found.folder).stderr


@pytest.mark.slow
def test_weights_in_the_repro_are_reduced(find: Callable[..., Blame]) -> None:
    rng = np.random.default_rng(0)
    weight = onnx.numpy_helper.from_array(rng.normal(size=(384, 512)).astype(np.float32), "w")
    model = text.parse("g (float[b, 384] x, float[384, 512] w) => (float[b, 512] y) { m = MatMul(x, w) y = Relu(m) }")
    del model.graph.input[1]
    model.graph.initializer.append(weight)
    found = find(model, "steps: [drop-relu]")
    assert found.folder is not None and found.reproduced
    (small,) = onnx.load(found.folder / "changed.onnx").graph.initializer
    assert max(small.dims) < 64
    assert "AssertionError" in reproduce(found.folder).stderr


@pytest.mark.parametrize(("name", "nodes"), [("wrong-without-sites", (1, 1)), ("wrong-next-to-sites", None)])
def test_a_pass_that_cannot_be_split(find: Callable[..., Blame], name: str, nodes: tuple[int, int] | None) -> None:
    model = "g (float[4] x) => (float[4] y) { t = Identity(x)  e = Erf(t)  y = Exp(e) }"
    found = find(model, f"steps: [{name}]")
    assert found.guilty == () and found.exit_code == 1
    assert ("reports no sites" if nodes else "even without its sites") in found.remark
    assert found.nodes == nodes


@pytest.mark.slow
def test_the_wrong_place_among_many_of_a_pass_that_cannot_be_split(find: Callable[..., Blame]) -> None:
    chain = "".join(f" r{i} = Relu({'t' if i == 40 else f's{i - 1}'}) s{i} = Sqrt(r{i})" for i in range(1, 50))
    chain = chain.replace(" r40", " t = Mul(x, s39) r40")
    found = find(f"g (float[8] x) => (float[8] y) {{ s0 = Abs(x) {chain} y = Neg(s49) }}", "steps: [relu-to-abs]")
    assert found.guilty == () and found.folder is not None and found.reproduced
    assert list(np.load(found.folder / "inputs.npz")) == ["t"]


def test_the_first_failing_step_is_bisected_whatever_its_on_failure(find: Callable[..., Blame]) -> None:
    steps = """
verify: {mode: 'off'}
steps:
  - drop-identity
  - repeat: 2
    steps: [{pass: drop-relu, on_failure: keep}]
  - {pass: wrong-without-sites, on_failure: rollback}"""
    found = find(RELUS, steps)
    assert found.step is not None and (found.step.name, found.step.where) == ("drop-relu", "test.yaml:7")


def test_bisect_without_a_failing_step(find: Callable[..., Blame], tmp_path: Path) -> None:
    found = find(RELUS, "steps: [drop-identity, {spell-softmax: {wrong: 1}}]")
    assert surgery.bisect(text.parse(RELUS), "tidy").step is None
    assert (found.step, found.exit_code) == (None, 0)
    assert not (tmp_path / "repro").exists()
    found = find(RELUS, "steps: [{pass: drop-identity, expect: {sites: 5}}]")
    assert found.exit_code == 1 and "expectation" in found.remark


@pytest.mark.slow
def test_an_existing_folder_is_overwritten_only_with_force(find: Callable[..., Blame], tmp_path: Path) -> None:
    (tmp_path / "repro").mkdir()
    (tmp_path / "repro" / "mine.txt").write_text("keep")
    with pytest.raises(OutputError, match="--force"):
        find(RELUS, "steps: [drop-relu]")
    found = find(RELUS, "steps: [drop-relu]", force=True)
    assert found.reproduced and (tmp_path / "repro" / "mine.txt").read_text() == "keep"
    assert find(RELUS, "steps: [drop-identity]", force=True).step is None
    assert [path.name for path in (tmp_path / "repro").iterdir()] == ["mine.txt"]


def apply(model: str | Path, steps: str) -> runner.Result:
    recipe = recipes.parse(f"recipe: test\nsteps: [{steps}]", "test.yaml")
    return runner.apply(text.parse(model) if isinstance(model, str) else model, recipe)


def test_bisect_commits_all_but_the_guilty_sites() -> None:
    result = apply(RELUS, "{pass: drop-relu, on_failure: bisect}, drop-identity")
    step = result.steps[0]
    assert (step.status, step.sites, result.exit_code) == ("committed", 4, 0)
    assert step.verdict is not None and step.verdict.status == "equal"
    assert [site.number for site in step.refused_sites] == [3]
    assert step.message.startswith("refused site 3 at ")
    assert step.to_json()["refused_sites"][0]["site"] == 3
    assert result.output.ops["Relu"] == 1
    (relu,) = (node for node in result.proto.graph.node if node.op_type == "Relu")
    assert relu.input[0] == "t"


@pytest.mark.slow
def test_bisect_of_a_contained_pass_continues_with_the_next_step() -> None:
    result = apply(SOFTMAXES, "{pass: spell-softmax, with: {wrong: 4}, on_failure: bisect}, drop-no-op")
    step = result.steps[0]
    assert (step.status, step.sites, [site.number for site in step.refused_sites]) == ("committed", 7, [4])
    assert result.output.ops["Softmax"] == 1
    assert result.ok


def test_bisect_with_nothing_left_is_a_rollback() -> None:
    result = apply(
        "g (float[4] x) => (float[4] y) { t = Tanh(x)  y = Relu(t) }", "{pass: drop-relu, on_failure: bisect}"
    )
    (step,) = result.steps
    assert (step.status, step.sites, len(step.refused_sites)) == ("rolled_back", 0, 1)
    assert result.proto is result.stored.proto and result.exit_code == 0


def test_bisect_of_a_pass_without_sites_is_a_rollback() -> None:
    model = "g (float[4] x) => (float[4] y) { e = Erf(x)  y = Exp(e) }"
    (step,) = apply(model, "{pass: wrong-without-sites, on_failure: bisect}").steps
    assert step.status == "rolled_back" and "not bisected: the pass reports no sites" in step.message


@pytest.mark.slow
def test_bisect_in_a_loop_terminates() -> None:
    result = apply(RELUS, "{repeat: until-stable, steps: [{pass: drop-relu, on_failure: bisect}]}")
    assert [step.status for step in result.steps] == ["committed", "unchanged"]
    assert result.output.ops["Relu"] == 1


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(text.parse(RELUS), "model.onnx")
    Path("wrong.yaml").write_text("recipe: wrong\nsteps: [drop-identity, drop-relu]\n")
    assert cli.main(["bisect", "wrong.yaml", "model.onnx", "--plugin", str(PLUGIN)]) == 1
    out = capsys.readouterr().out
    assert "step 'drop-relu' (wrong.yaml:2): different" in out
    assert "site 3 of 5 at" in out and "fails alone" in out
    assert "1 site is guilty; without it the step holds" in out and "wrote model.repro: 2 nodes before, 1 after" in out
    assert cli.main(["bisect", "wrong.yaml", "model.onnx"]) == 2
    assert "model.repro" in capsys.readouterr().err
    assert cli.main(["bisect", "wrong.yaml", "model.onnx", "-o", "other", "--format", "json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False and data["step"]["pass"] == "drop-relu" and data["guilty"][0]["site"] == 3
    assert data["repro"] == {"folder": "other", "nodes": [2, 1], "reproduced": True}
    assert cli.main(["bisect", "tidy", "model.onnx", "-o", "third"]) == 0
    assert "no step of recipe 'tidy' fails" in capsys.readouterr().out
    assert not Path("third").exists()
