"""The command line as a user meets it: answers, messages, exit codes."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from support import ROOT, SUPPORT

from surgery.engine.pipeline import reference_start
from surgery.interface import commands as cli
from surgery.model.graph import text

PLUGIN = SUPPORT / "plugin_wrong.py"
MODEL = """g (float[batch, 4] x) => (float[batch, 4] y) { i = Identity(x) r = Relu(i) y = Neg(r) }"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(text.parse(MODEL), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def surgery(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_help_is_quick() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "surgery", "--help"], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "apply" in done.stdout
    assert (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime) < 0.5


def test_help_imports_no_heavy_modules() -> None:
    code = "import sys, surgery.interface.commands; print(sorted(set(sys.modules) & set(sys.argv[1:])))"
    heavy = ["numpy", "onnx", "onnx_ir", "onnxruntime", "sympy", "pydantic", "rich", "networkx", "ruamel.yaml"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_main_process_never_imports_onnxruntime(model: Path) -> None:
    code = f"""
import sys
from surgery.interface import commands as cli
assert cli.main(["apply", "tidy", {str(model)!r}]) == 0
assert "onnxruntime" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT)


def test_apply_writes_and_reports(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = surgery(capsys, "apply", "tidy", model, "-o", "out.onnx")
    assert code == 0
    assert "drop-identity" in out and "committed" in out and "Same results, bit for bit, on" in out
    assert "wrote out.onnx" in err
    assert [node.op_type for node in onnx.load("out.onnx").graph.node] == ["Relu", "Neg"]
    code, out, err = surgery(capsys, "apply", "tidy", model, "-o", "out.onnx")
    assert code == 2 and "out.onnx" in err and "--force" in err and out == ""
    code, _, _ = surgery(capsys, "apply", "tidy", model, "-o", "out.onnx", "--force")
    assert code == 0


def test_an_output_that_cannot_be_written_ends_a_run_before_any_work(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_start, "begin", lambda *_, **__: pytest.fail("the original runs"))
    Path("out.onnx").write_text("mine", encoding="utf-8")
    for output in ("out.onnx", "no/folder/out.onnx"):
        code, out, err = surgery(capsys, "apply", "tidy", model, "-o", output)
        assert (code, out) == (2, "") and err.startswith(f"surgery: {output}: the ")
    assert Path("out.onnx").read_text(encoding="utf-8") == "mine"


def test_a_quiet_inspection_is_one_line(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = surgery(capsys, "inspect", model, "-q")
    assert (code, err) == (0, "") and out == f"{model}: 3 nodes, 0 parameters, {model.stat().st_size} B\n"


def test_apply_without_output_writes_nothing(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = surgery(capsys, "apply", "tidy", model)
    assert code == 0 and "no file written" in err
    assert [path.name for path in model.parent.iterdir()] == ["model.onnx"]


def test_apply_over_its_own_input(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, _ = surgery(capsys, "apply", "tidy", model, "-o", model, "--force")
    assert code == 0
    assert len(onnx.load(model).graph.node) == 2


def test_stdout_contains_only_json(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = surgery(capsys, "apply", "tidy", model, "-o", "out.onnx", "--format", "json")
    data = json.loads(out)
    assert code == 0 and data["ok"] is True
    assert data["output"]["path"] == "out.onnx" and len(data["output"]["sha256"]) == 64
    for command in (["inspect", model], ["diff", model, "out.onnx"], ["verify", model, "out.onnx"], ["passes"]):
        code, out, _ = surgery(capsys, *command, "--format", "json")
        assert code == 0
        json.loads(out)


def test_a_wrong_local_pass_needs_trust_and_is_caught(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = model.parent / "wrong.yaml"
    recipe.write_text("recipe: wrong\nplugins: [./wrong.py]\nsteps: [drop-identity, wrong-drop-relu]\n")
    (model.parent / "wrong.py").write_text(PLUGIN.read_text().replace('"wrong-', '"local-wrong-'))
    recipe.write_text(recipe.read_text().replace("wrong-drop", "local-wrong-drop"))
    code, out, err = surgery(capsys, "apply", recipe, model, "-o", "out.onnx")
    assert code == 2 and "--trust" in err and "wrong.py" in err and out == ""
    code, out, err = surgery(capsys, "apply", recipe, model, "-o", "out.onnx", "--trust")
    assert code == 1
    assert "local-wrong-drop-relu" in out and "different" in out
    assert not Path("out.onnx").exists()
    recipe.write_text(
        recipe.read_text().replace("local-wrong-drop-relu", "{pass: local-wrong-drop-relu, on_failure: rollback}")
    )
    code, out, err = surgery(capsys, "apply", recipe, model, "-o", "out.onnx", "--trust")
    assert code == 0 and "rolled back" in out
    assert [node.op_type for node in onnx.load("out.onnx").graph.node] == ["Relu", "Neg"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "directory"),
        (lambda path: path.write_bytes(b""), "empty"),
        (lambda path: path.write_text("hello, I am a text file\nwith lines\n"), "text"),
        (lambda path: path.write_bytes(text.parse(MODEL).SerializeToString()[:60]), "truncated"),
    ],
)
def test_bad_models_get_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], make: object, words: str) -> None:
    path = tmp_path / "bad.onnx"
    make(path)  # type: ignore[operator]
    for command in (["apply", "tidy", path], ["inspect", path], ["run", "drop-identity", path], ["verify", path, path]):
        code, out, err = surgery(capsys, *command)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "bad.onnx" in err and words in err.lower()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["apply", "no-such-recipe", "model.onnx"], "no-such-recipe"),
        (["apply", "tdy", "model.onnx"], "tidy"),
        (["apply", "tidy"], "names no model"),
        (["run", "drop-identty", "model.onnx"], "did you mean 'drop-identity'"),
        (["run", "fold-constants", "model.onnx", "--set", "max_growht=1MB"], "did you mean 'max_growth'"),
        (["run", "fold-constants", "model.onnx", "--set", "max_growth=much"], "not a size"),
        (["run", "fold-constants", "model.onnx", "--set", "max_growth"], "OPTION=VALUE"),
        (["passes", "fuse-conv-bnn"], "did you mean 'fuse-conv-bn'"),
        (["apply", "tidy", "model.onnx", "-o", "no/such/folder/out.onnx"], "folder"),
        (["apply", "tidy", "model.onnx", "--plugin", "no_such_module"], "no_such_module"),
    ],
)
def test_mistakes_are_answered_in_one_line(
    model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    code, out, err = surgery(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_run_sets_options(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = surgery(capsys, "run", "fold-constants", model, "--set", "max_growth=1MB")
    assert code == 0 and "fold-constants" in out


def test_verify_distinguishes_equal_from_different_models(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = text.parse(MODEL.replace("Relu", "Abs"))
    onnx.save(other, "other.onnx")
    assert surgery(capsys, "verify", model, model)[0] == 0
    code, out, _ = surgery(capsys, "verify", model, "other.onnx")
    assert code == 1 and "different" in out and "y" in out


def test_diff_and_its_exit_code(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(text.parse(MODEL.replace("Relu", "Abs").replace("batch", "n")), "other.onnx")
    code, out, _ = surgery(capsys, "diff", model, "other.onnx")
    assert code == 0
    assert "Relu" in out and "-1" in out and "float[batch, 4]" in out and "float[n, 4]" in out
    assert surgery(capsys, "diff", model, "other.onnx", "--exit-code")[0] == 1
    assert surgery(capsys, "diff", model, model, "--exit-code")[0] == 0


def test_inspect_describes_a_model(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = surgery(capsys, "inspect", model)
    assert code == 0
    for word in ("x: float[batch, 4]", "ai.onnx 21", "Relu", "depth 3"):
        assert word in out


def test_passes_describes_a_single_pass(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = surgery(capsys, "passes", "fuse-conv-bn")
    assert code == 0
    for word in ("fuse-conv-bn", "Before", "After", "The pass refuses a match when", "BatchNormalization"):
        assert word in out
