"""What runs, batches and plans say that do not succeed: the result first, each fact once, no term of the house."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from support import ROOT

from surgery.interface import commands as cli

WRONG = ROOT / "tests" / "support" / "plugin_wrong.py"
TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 4] x) => (float[n, 4] y) { [one] a = Identity (x) [two] b = Relu (a) [three] y = Neg (b) }"""
REJECTED = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[3] y) <float[3] c = {1, 2, 3}, float[4] d = {1, 2, 3, 4}>
    { a = Identity (c) b = Identity (d) s = Add (a, b) y = Identity (s) }"""
TERMS = re.compile(r"\b(needed rtol|rtol needed|ulp|intended|regions?|as one|tolerances from float64)\b|0x[0-9a-f]{6,}")
TIME = r"\d[\d.]* s"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(WRONG, tmp_path)
    onnx.save(parser.parse_model(TEXT), tmp_path / "m.onnx")
    onnx.save(parser.parse_model(REJECTED), tmp_path / "rejected.onnx")
    return tmp_path


def recipe(name: str, steps: str, more: str = "") -> str:
    Path(f"{name}.yaml").write_text(f"recipe: {name}\nplugins: [plugin_wrong.py]\nsteps: [{steps}]\n{more}")
    return f"{name}.yaml"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    """Run a command; return its exit code and the lines of both streams, among which none is twice."""
    code = cli.main([*arguments])
    captured = capsys.readouterr()
    lines = [line.rstrip() for line in (captured.out + captured.err).splitlines() if line.strip()]
    long = [line for line in lines if len(line) > 30 and not line.startswith(" ")]
    assert len(set(long)) == len(long)
    assert str(ROOT / "recipes") not in "\n".join(lines)
    assert not any(TERMS.search(line) for line in lines), lines
    return code, lines


@pytest.mark.parametrize(
    ("step", "code", "fault", "message"),
    [
        ("wrong-drop-relu", 1, "changes the results", r"output 'y'\[\d, \d\]: .* instead of"),
        ("wrong-not-exact", 1, "changes the results", r"output 'y'\[\d, \d\]: .* instead of"),
        ("wrong-rename-output", 1, "was refused", "signature: output 'y' is missing"),
        ("wrong-invalid-node", 1, "was refused", "No Op registered for NoSuchOperator"),
        ("wrong-raise", 3, "broke", r"raised ValueError: gave up in process True \(plugin_wrong.py:37\)"),
    ],
)
def test_a_failed_step(
    folder: Path, capsys: pytest.CaptureFixture[str], step: str, code: int, fault: str, message: str
) -> None:
    found, lines = said(capsys, "apply", recipe("r", step), "m.onnx", "-o", "out.onnx", "--trust")
    assert found == code and not Path("out.onnx").exists()
    assert re.fullmatch(f"failed: step '{step}' {fault}; {TIME}; no file was written", lines[-2]), lines
    assert lines[-1].startswith("--on-failure ")
    told = [line for line in lines if line.startswith(f"  {step}: r.yaml:3: ")]
    assert len(told) == 1 and re.search(message, told[0]), "the message is on one line, however long it is"


@pytest.mark.parametrize(
    ("expect", "words"), [("{nodes: 1}", "1 expectation is"), ("{nodes: 1, ops: {Relu: 3}}", "2 expectations are")]
)
def test_expectations_that_are_not_met(
    folder: Path, capsys: pytest.CaptureFixture[str], expect: str, words: str
) -> None:
    asked = recipe("r", "drop-identity", f"expect: {expect}\n")
    code, lines = said(capsys, "apply", asked, "m.onnx", "-o", "out.onnx", "--trust")
    assert code == 1 and not Path("out.onnx").exists() and "not met  nodes: == 1 (found 2)" in lines
    assert re.fullmatch(f"failed: {words} not met; 3 -> 2 nodes \\(-33 %\\); {TIME}; no file was written", lines[-1])
    code, lines = said(capsys, "plan", asked, "m.onnx", "--trust")
    assert code == 1
    assert lines[-1].startswith(f"failed: {words} not met; plan: 3 -> 2 nodes (-33 %), ")
    assert lines[-1].endswith("; 1 site in 1 step, not verified")


def test_nothing_to_plan_where_an_expectation_is_not_met(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = said(capsys, "plan", recipe("r", "drop-dropout", "expect: {nodes: 1}\n"), "m.onnx", "--trust")
    assert code == 1
    assert lines[-1] == "failed: 1 expectation is not met; nothing to do: 3 nodes, not verified"


def test_a_model_that_the_runtime_rejects(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = said(capsys, "apply", "default", "rejected.onnx", "-o", "out.onnx")
    assert code == 1 and not Path("out.onnx").exists()
    assert lines[0].startswith("the input model: invalid: ") and "ONNX Runtime rejects it: " in lines[0]
    end = f"failed: nothing can be verified: the model does not run, see above; {TIME}; no file was written"
    assert re.fullmatch(end, lines[-2]) and "--unverified accept" in lines[-1]
    assert any(line.startswith("  drop-identity: default:8: refused site 3") for line in lines)


def test_an_invalid_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.onnx").write_text("no model at all")
    code, lines = said(capsys, "apply", "default", "broken.onnx", "-o", "out.onnx")
    assert code == 2
    assert lines == ["surgery: broken.onnx: this is a text file, not an ONNX model; name a .onnx file"]


def test_no_step_is_another_one_where_none_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(parser.parse_model(TEXT.replace("Identity", "Sin")), "m.onnx")
    code, lines = said(capsys, "apply", "default", "m.onnx")
    assert code == 0 and re.fullmatch(r"\d+ steps changed nothing \(-v lists them\)", lines[0])


def test_a_budget_that_is_not_met(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("apply", "fp16", "m.onnx", "-o", "out.onnx", "--force", "--accuracy", "snr >= 120 dB")
    text = "g (float[n, 8] x) => (float[n, 8] y) { a = MatMul (x, w) b = Relu (a) y = MatMul (b, v) }"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    random = np.random.default_rng(0)
    weights = (numpy_helper.from_array(random.normal(size=(8, 8)).astype(np.float32), name) for name in "wv")
    model.graph.initializer.extend(weights)
    onnx.save(model, "m.onnx")
    code, lines = said(capsys, *asked)
    assert code == 1
    (told,) = (line for line in lines if line.startswith("  to-float16: fp16:8: "))
    assert "budget snr >= 120 dB" in told and " uses over 1,000 times the budget alone" in told
    (end,) = (line for line in lines if line.startswith("the precision was not changed: 'to-float16' was undone"))
    assert end.count("see above") == 1 and "refused" not in end
    code, lines = said(capsys, *asked, "-q")
    assert code == 1 and len(lines) == 1 and "see above" not in lines[0]


def test_a_plan_whose_step_is_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = said(capsys, "plan", recipe("r", "wrong-drop-relu"), "m.onnx", "--trust", "--verify", "each")
    assert code == 1 and len(lines) == 1
    assert lines[0].startswith("failed: step 'wrong-drop-relu' (r.yaml:3): output 'y'[")


def test_a_plan_names_a_shipped_recipe_and_counts_the_sites(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = said(capsys, "plan", "default", "m.onnx")
    assert code == 0 and lines[0].endswith("(default:8)")
    assert lines[-2].endswith("; 1 site in 1 step, not verified")
    many = "".join(f"i{number} = Identity (i{number - 1}) " for number in range(1, 7))
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[2] i0) => (float[2] y) {{ {many} y = Relu (i6) }}'
    onnx.save(parser.parse_model(text), "m.onnx")
    code, lines = said(capsys, "plan", "default", "m.onnx")
    assert "         and 1 more site (-v lists all)" in lines


def test_a_batch_with_a_broken_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("many").mkdir()
    shutil.copy("m.onnx", "many/m.onnx")
    Path("many/broken.onnx").write_text("no model at all")
    code, lines = said(capsys, "batch", "default", "many", "-o", "out", "-j", "1")
    assert code == 1
    assert lines[1].endswith("  model-file  this is a text file, not an ONNX model; name a .onnx file")
    assert lines[2].strip() == "broken.onnx"
    end = rf"failed: 1 of 2 models, 1 done; 3 -> 2 nodes \(-33 %\), .* -> .*; {TIME}"
    assert re.fullmatch(end, lines[3])
    assert lines[4] == "the ledger is out/ledger.sqlite"


def test_two_models_are_compared_in_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = TEXT.replace("[three] y = Neg (b)", "y = Sigmoid (b)")
    exact = text.replace("y = Sigmoid (b)", "m = Neg (b) e = Exp (m) p = Add (e, o) y = Reciprocal (p)")
    onnx.save(parser.parse_model(text), "a.onnx")
    onnx.save(parser.parse_model(exact.replace("y) {", "y) <float o = {1}> {")), "b.onnx")
    code, lines = said(capsys, "verify", "a.onnx", "b.onnx")
    assert code == 0 and re.fullmatch(r"close on \d+ input sets, tolerance used: [\d.]+ %", lines[0]), lines
    assert cli.main(["verify", "a.onnx", "b.onnx", "-v"]) == 0
    assert re.search(r"needed rtol .* and atol .*; at most .* ulp", capsys.readouterr().out)
