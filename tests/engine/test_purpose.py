"""A recipe for another precision that changes none: said first in the last line, with an exit code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from surgery import cli
from surgery import recipe as recipes
from surgery.engine import purpose
from surgery.engine.records import StepRecord


def model(folder: Path, width: int = 8, opset: int = 17, ops: str = "MatMul") -> Path:
    weight = np.linspace(-1, 1, width * width, dtype=np.float32).reshape(width, width)
    nodes = [helper.make_node("Identity", ["x"], ["i"]), helper.make_node(ops, ["i", "w"], ["y"])]
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", width]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], [numpy_helper.from_array(weight, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(made, folder / "m.onnx")
    return folder / "m.onnx"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = cli.main(list(arguments))
    captured = capsys.readouterr()
    return code, " ".join((captured.out + captured.err).split())


def test_small_weights_are_nothing_to_quantize(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.onnx"
    code, said = run(capsys, "apply", "int8-dynamic", str(model(tmp_path)), "-o", str(out))
    assert code == 0 and out.is_file()
    assert "ok: nothing to quantize: 1 weight below 64 KiB (--set min_size=0 of 'quantize-dynamic')" in said
    assert [node.op_type for node in onnx.load(out).graph.node] == ["MatMul"]


def test_strict_writes_no_file_without_the_purpose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.onnx"
    code, said = run(capsys, "apply", "int8-dynamic", str(model(tmp_path)), "-o", str(out), "--strict")
    assert code == 1 and not out.exists()
    assert "nothing to quantize: 1 weight below 64 KiB" in said and "--strict writes no file" in said


def test_a_refusal_of_every_node_is_a_purpose_not_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("recipe: r\nsteps: [drop-identity, to-float16: {ops_in_float32: [MatMul]}]\n")
    out = tmp_path / "out.onnx"
    code, said = run(capsys, "apply", str(recipe), str(model(tmp_path)), "-o", str(out), "--format", "json")
    assert code == 1 and out.is_file()
    words = "the precision was not changed: 'to-float16' found that it is excluded and stays in float32"
    assert f'"shortfall": "{words}"' in said
    code, said = run(capsys, "apply", str(recipe), str(model(tmp_path)), "-o", str(out), "--force")
    assert code == 1 and f"{words}; 2 -> 1 nodes" in said


def test_a_result_is_not_missing_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "a.onnx", tmp_path / "b.onnx"
    code, _ = run(capsys, "apply", "fp16", str(model(tmp_path)), "-o", str(first))
    assert code == 0
    code, said = run(capsys, "apply", "fp16", str(first), "-o", str(second))
    assert code == 0 and "precision was not changed" not in said


def test_another_recipe_has_no_such_purpose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(capsys, "apply", "default", str(model(tmp_path)), "-o", str(tmp_path / "out.onnx"))
    assert code == 0 and "nothing to" not in said


@pytest.mark.parametrize(("code", "words"), [(1, "'to-float16' was undone"), (3, "'to-float16' broke")])
def test_an_undone_step_is_named(tmp_path: Path, code: int, words: str) -> None:
    recipe = recipes.parse("steps: [drop-identity, to-float16]")
    records = [
        StepRecord("drop-identity", "committed", 2, 1),
        StepRecord("to-float16", "rolled_back", 1, 1, exit_code=code),
    ]
    found = purpose.shortfall(recipe, records, onnx.load(model(tmp_path)))
    assert found is not None and found.exit_code == code
    assert found.words == f"the precision was not changed: {words}, see above"


def test_the_loss_leads_where_an_expectation_is_not_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("recipe: r\naccuracy: {budget: snr >= 40 dB}\nsteps: [to-float16]\nexpect: {nodes: 1}\n")
    code, said = run(capsys, "apply", str(recipe), str(model(tmp_path)), "-o", str(tmp_path / "out.onnx"), "-q")
    assert code == 1
    assert "less accurate on purpose, within the budget: SNR " in said
    assert said.endswith("; an expectation is not met; no file was written")
