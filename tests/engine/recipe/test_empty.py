"""`expect: {empty: allowed}`: no operator is added that takes no empty batch, and a result that has some says so."""

import warnings
from pathlib import Path

import onnx
import pytest
from support import lacking

from surgery.engine.caching.cache_folder import CacheFolder
from surgery.engine.caching.step_cache import Steps
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.run_options import RunOptions
from surgery.engine.recipe import parse
from surgery.interface import commands as cli
from surgery.model.graph import text

ATTENTION = """
    <ir_version: 10, opset_import: ["" : 23]>
    g (float[B,2,S,4] q, float[B,2,T,4] k, float[B,2,T,4] v) => (float[B,2,S,4] y)
    { kt = Transpose<perm = [0, 1, 3, 2]>(k)  s = MatMul(q, kt)  p = Softmax(s)  y = MatMul(p, v) }
"""


@pytest.mark.parametrize("expect", ["", "expect: {empty: allowed}\n"])
def test_operators_that_take_no_empty_batch_are_kept_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], expect: str
) -> None:
    onnx.save(text.parse(ATTENTION), tmp_path / "m.onnx")
    (tmp_path / "r.yaml").write_text(f"{expect}steps: [fuse-attention]\n")
    assert cli.main(["apply", str(tmp_path / "r.yaml"), str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx")]) == 0
    out = capsys.readouterr().out
    made = [node.op_type for node in onnx.load(tmp_path / "o.onnx").graph.node]
    if expect:
        assert "Attention" not in made and "met      empty: allowed" in out and "no longer taken" not in out
    else:
        assert "Attention" in made
        assert "an empty batch or sequence is no longer taken: Attention raises an error" in " ".join(out.split())


def test_the_reason_names_the_expectation() -> None:
    result = runner.run(
        runner.storage.from_proto(text.parse(ATTENTION)), parse("expect: {empty: allowed}\nsteps: [fuse-attention]")
    )
    (step,) = result.steps
    assert [refused.reason for refused in step.refusals] == [
        "Attention takes no empty batch, which the recipe expects to be allowed"
    ]
    assert [(item.what, item.ok) for item in result.expectations] == [("empty: allowed", True)]


def test_an_original_that_has_such_operators_keeps_them() -> None:
    model = runner.apply(text.parse(ATTENTION), parse("steps: [fuse-attention]")).proto
    again = runner.apply(model, parse("expect: {empty: allowed}\nsteps: [drop-dead]"))
    assert again.ok and [node.op_type for node in again.proto.graph.node] == ["Attention"]


def test_a_step_that_adds_them_without_asking_misses_the_expectation(tmp_path: Path) -> None:
    from surgery.engine.pipeline.expectations import empty

    assert empty({"Attention": 1}, {"Attention": 2}) == ("empty: allowed (Attention added)", False)
    assert empty({"Attention": 2}, {"Attention": 2, "Add": 3}) == ("empty: allowed", True)


def test_a_step_from_a_run_without_the_expectation_is_not_taken(tmp_path: Path) -> None:
    def run(expect: str) -> set[str]:
        cache = Steps(CacheFolder(tmp_path, warn=warnings.warn))
        result = runner.apply(
            text.parse(ATTENTION), parse(f"{expect}steps: [fuse-attention]"), options=RunOptions(cache=cache)
        )
        return {node.op_type for node in result.proto.graph.node}

    assert "Attention" in run("")
    assert "Attention" not in run("expect: {empty: allowed}\n")


def test_the_expectation_of_a_used_recipe_holds_for_its_steps(tmp_path: Path) -> None:
    from surgery.engine.recipe import resolved

    inner = "use: {expect: {empty: allowed}, steps: [{repeat: 1, steps: [fuse-attention]}]}"
    recipe = parse(f"steps: [{{{inner}}}]")
    result = runner.apply(text.parse(ATTENTION), recipe)
    assert "Attention" not in {node.op_type for node in result.proto.graph.node}
    assert result.steps[0].refusals[0].reason.startswith("Attention takes no empty batch, which the recipe expects")
    again = runner.apply(text.parse(ATTENTION), parse(resolved.text(recipe)))
    assert again.steps[0].refusals == result.steps[0].refusals
    # Other steps are free, and so is the recipe that expects nothing.
    other = runner.apply(text.parse(ATTENTION), parse(f"steps: [{{{inner}}}, fuse-attention]"))
    assert "Attention" in {node.op_type for node in other.proto.graph.node}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert-tiny", "gpt2-tiny", "llama-tiny.dy"])
def test_modern_keeps_the_empty_batch_if_that_is_expected(
    model: str, short_models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking.skip_opset(23)  # the first with Attention
    path, out = short_models / f"{model}.onnx", tmp_path / "o.onnx"
    (tmp_path / "r.yaml").write_text("steps: [{use: modern}]\nexpect: {empty: allowed}\n")
    for recipe, kept in (("modern", False), (str(tmp_path / "r.yaml"), True)):
        assert cli.main(["apply", recipe, str(path), "-o", str(out), "--force"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert ("an empty batch or sequence is no longer taken" in shown) is not kept
        assert ("Attention" in {node.op_type for node in onnx.load(out).graph.node}) is not kept
