"""A recipe that expects a number of executed nodes: those that ONNX Runtime runs with its default options."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

from surgery.base.errors import RecipeError
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.interface import commands as cli
from surgery.model.graph import text

# ONNX Runtime folds the BatchNormalization into the Conv, and drops the Identity.
BODY = """g (float[n,1,4,4] x) => (float[n,1,4,4] y)
    <float[1,1,1,1] w = {2}, float[1] s = {3}, float[1] h = {1}, float[1] mu = {0}, float[1] v = {1}> {
        c = Conv(x, w)  b = BatchNormalization(c, s, h, mu, v)  i = Identity(b)  y = Sin(i)
    }"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(text.parse(BODY), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def optimized_nodes(model: Path) -> int:
    """Count the nodes of the graph that the extended level of ONNX Runtime leaves, as its own tool does."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(model.with_suffix(".optimized.onnx"))
    ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return len(onnx.load(options.optimized_model_filepath).graph.node)


def expectation(model: Path, expected: str) -> tuple[str, bool]:
    recipe = recipes.parse(f"recipe: r\nsteps: [drop-identity]\nexpect: {{executed: {expected}}}\n", "test.yaml")
    (found,) = runner.apply(model, recipe).expectations
    return found.what, found.ok


def test_a_count_is_that_of_the_optimized_graph(model: Path) -> None:
    result = runner.apply(model, recipes.parse("recipe: r\nsteps: [drop-identity]\n", "test.yaml"))
    assert result.deployed is not None and result.deployed.executed is not None
    # The layout level adds nodes that reorder between its layout and the usual one.
    executed = result.deployed.executed
    assert executed.total - executed.operators["ReorderOutput"] == optimized_nodes(model) == 2
    assert expectation(model, f"{executed.total}") == (f"executed: == {executed.total} (found {executed.total})", True)
    assert not expectation(model, f"'< {executed.total}'")[1]


def test_a_multiple_is_relative_to_the_original(model: Path) -> None:
    what, ok = expectation(model, "'<= 1x'")
    assert ok and what.startswith("executed: <= 1x (found ") and "of the original" in what
    assert not expectation(model, "'< 1x'")[1]


def test_an_unchanged_model_has_executed_nodes_too(tmp_path: Path) -> None:
    onnx.save(text.parse("g (float[n] x) => (float[n] y) { y = Sin(x) }"), tmp_path / "model.onnx")
    assert expectation(tmp_path / "model.onnx", "1")[1]


@pytest.mark.parametrize("wrong", ["'<= x'", "-1", "'>= 2x'", "few"])
def test_what_is_no_bound_is_refused_with_its_place(wrong: str) -> None:
    with pytest.raises(RecipeError, match=r"test\.yaml:3:\d+"):
        recipes.parse(f"recipe: r\nsteps: [drop-identity]\nexpect: {{executed: {wrong}}}\n", "test.yaml")


def test_inspect_counts_executed_nodes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", str(model), "--executed", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["nodes"] == 4 and found["ops"] == {"Conv": 1, "BatchNormalization": 1, "Identity": 1, "Sin": 1}
    assert found["executed"]["nodes"] == sum(found["executed"]["providers"]["CPUExecutionProvider"].values())
    assert cli.main(["inspect", str(model), "--executed", "-q"]) == 0
    assert capsys.readouterr().out == f"{found['executed']['nodes']} nodes executed, 4 in the model\n"
    assert cli.main(["inspect", str(model), "--executed"]) == 0
    assert "CPUExecutionProvider" in capsys.readouterr().out


def test_inspect_counts_what_the_runtime_of_a_target_executes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counted = []
    for target in ([], ["--target", "ort-cpu"]):
        assert cli.main(["inspect", str(model), "--executed", "--format", "json", *target]) == 0
        counted.append(json.loads(capsys.readouterr().out))
    assert counted[0] == counted[1]
    # Installed or not, it counts nothing: this runtime does not tell which nodes it executes.
    assert cli.main(["inspect", str(model), "--executed", "--target", "ort-web"]) == 2
    assert "the executed nodes are not known" in capsys.readouterr().err


@pytest.mark.parametrize("other", ["--node", "--from"])
def test_a_target_is_not_combined_with_a_lineage(model: Path, other: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", str(model), "--target", "ort-cpu", other, "x"]) == 2
    assert "--target cannot be combined with --node and --from" in capsys.readouterr().err


def test_a_model_that_does_not_run_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(text.parse("g (float[n] x) => (float[n] y) { y = com.acme.Twist(x) }"), tmp_path / "custom.onnx")
    assert cli.main(["inspect", str(tmp_path / "custom.onnx"), "--executed"]) == 2
    assert "the executed nodes are not known" in capsys.readouterr().err
