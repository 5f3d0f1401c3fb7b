"""Options that a command does not have, but whose meaning is plain: those of the pass, of the operator, synonyms."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from surgery.engine.registry.catalog import catalog
from surgery.engine.registry.everyday_words import SHORTHANDS
from surgery.interface import commands as cli
from surgery.interface.command_line import _settings
from surgery.model.graph import text

MODEL = "g (float[batch, 3, 4, 4] x) => (float[batch, 3, 4, 4] y, float[batch, 3, 4, 4] z) { y = Relu(x) z = Neg(x) }"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(text.parse(MODEL), "m.onnx")
    return tmp_path


def _run(capsys: pytest.CaptureFixture[str], typed: str) -> tuple[int, str]:
    try:
        code = cli.main(typed.split())
    except SystemExit as ended:
        code = int(ended.code or 0)
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def _recipe(capsys: pytest.CaptureFixture[str], typed: str) -> str:
    code, said = _run(capsys, typed)
    assert code == 0, said
    return said.split("equivalent recipe:\n")[1]


@pytest.mark.parametrize(
    ("texts", "rest", "found"),
    [
        ("a --min -1 b", "a b", [("min", "-1")]),
        ("--min=-1 --max .5", "", [("min", "-1"), ("max", ".5")]),
        ("--min --known 1", "--known 1", [("min", "true")]),
        ("--other 1 --min", "--other 1", [("min", "true")]),
        ("-- --min 1", "-- --min 1", []),
    ],
)
def test_accepted_options_are_taken_out(texts: str, rest: str, found: list[tuple[str, str]]) -> None:
    made = _settings.free_options(texts.split(), lambda text: text.startswith("--m"), {"min", "max"}.__contains__)
    assert made == (rest.split(), found)


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("--dtype uint8 --scale 1/255 --mean .1,.2,.3", "--set dtype=uint8 --set scale=1/255 --set mean=[.1,.2,.3]"),
        ("--swap-channels --std=2", "--set swap_channels=true --set std=2"),
        ("--mean -1,-2,-3", "--set mean=[-1,-2,-3]"),
    ],
)
def test_options_of_the_pass_are_settings(typed: str, written: str, capsys: pytest.CaptureFixture[str]) -> None:
    head = "run embed-preprocessing m.onnx --set input=x"
    assert _recipe(capsys, f"{head} {typed}") == _recipe(capsys, f"{head} {written}")


def test_an_option_that_the_pass_lacks_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _run(capsys, "run drop-identity m.onnx --mean 1")
    assert code == 2 and said.startswith("surgery run: unknown option --mean")


def test_tasks_stand_for_passes_and_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert "- reorder: {outputs: [z, y]}" in _recipe(capsys, "run reorder-outputs m.onnx --order z,y")
    assert "- embed-preprocessing: {dtype: uint8, layout: NHWC" in _recipe(capsys, "run uint8-input m.onnx --mean 1")
    assert "layout: NCHW" in _recipe(capsys, "run uint8-input m.onnx --set layout=NCHW")


@pytest.mark.parametrize("word", SHORTHANDS)
def test_each_task_names_a_pass_and_options_that_it_has(word: str) -> None:
    meant = SHORTHANDS[word]
    declared = catalog.find(meant.name)
    assert not declared.option_errors({**meant.options})
    assert {*meant.renamed.values()} <= {option.name for option in declared.options}
    assert catalog.get(word) is None


def test_what_no_pass_does_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _run(capsys, "run kv-cache m.onnx")
    assert (code, said.count("\n")) == (2, 1)
    assert "no pass 'kv-cache': no pass adds a KV cache; export the model with its past keys and values" in said


def test_inputs_and_attributes_of_the_operator_are_options_of_insert(capsys: pytest.CaptureFixture[str]) -> None:
    head = "insert m.onnx"
    assert "operands: [-1, 1]" in _recipe(capsys, f"{head} Clip --after y --min -1 --max 1")
    assert "operands: [null, 6]" in _recipe(capsys, f"{head} Clip --after y --max 6")
    assert "attributes: {alpha: 0.5}" in _recipe(capsys, f"{head} Elu --after y --alpha 0.5")
    code, said = _run(capsys, f"{head} Elu --after y --min 0")
    assert code == 2 and "unknown option --min" in said


def test_output_names_an_output_of_the_model_next_to_o(capsys: pytest.CaptureFixture[str]) -> None:
    assert "- remove-outputs: {outputs: [z]}" in _recipe(capsys, "remove m.onnx --output z -o out.onnx")
    assert [one.name for one in onnx.load("out.onnx").graph.output] == ["y"]
    assert "- remove-outputs: {outputs: [y]}" in _recipe(capsys, "remove m.onnx --outputs y --output other.onnx")
    assert [one.name for one in onnx.load("other.onnx").graph.output] == ["z"]


def test_the_runtime_is_the_target(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _run(capsys, "verify m.onnx m.onnx --runtime openvino")
    assert code == 0 and "OpenVINO" in said
    assert _run(capsys, "inspect m.onnx --runtime=coreml")[1] == _run(capsys, "inspect m.onnx --target=coreml")[1]
    assert "unknown option --runtime; run 'surgery apply" in _run(capsys, "diff m.onnx m.onnx --runtime openvino")[1]


def test_fix_writes_a_valid_model(capsys: pytest.CaptureFixture[str]) -> None:
    broken = text.parse("g (float[2] x) => (float[2] y) { t = Relu(x) y = Neg(t) }")
    broken.graph.node.insert(0, broken.graph.node.pop())
    broken.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 3
    onnx.save(broken, "broken.onnx")
    assert _run(capsys, "check broken.onnx")[0] == 1
    code, said = _run(capsys, "check broken.onnx --fix -o fixed.onnx")
    assert code == 0 and "wrote fixed.onnx" in said
    assert _run(capsys, "check fixed.onnx")[0] == 0
    code, said = _run(capsys, "check broken.onnx --fix")
    assert code == 2 and "--fix writes one model; pass one MODEL, and -o FILE" in said
    code, said = _run(capsys, "check broken.onnx -o fixed.onnx")
    assert code == 2 and "-o is for --fix" in said
