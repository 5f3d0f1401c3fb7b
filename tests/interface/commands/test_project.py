"""`surgery init`: all that is written runs, and fails when the model is not as it was."""

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from ruamel.yaml import YAML

from surgery.interface import commands as cli
from surgery.model.graph import text

MODEL = """g (float[batch, 4] x) => (float[batch, n] y)
<float[4, 4] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}, float[4] b = {1, 2, 3, 4}> {
    i = Identity(x)
    m = MatMul(i, w)
    a = Add(m, b)
    y = Relu(a)
}"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    onnx.save(text.parse(MODEL.replace("batch, n", "batch, 4")), "models/my-net.onnx")
    return tmp_path


@pytest.mark.slow
def test_generated_files_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("models/my-net.onnx").rename("models/my net's.onnx")
    assert cli.main(["init", "models/my net's.onnx", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["steps"] == ["drop-identity", "fuse-matmul-add"]
    assert (report["nodes_before"], report["nodes_after"]) == (4, 2)
    recipe = YAML(typ="safe").load(Path("my net's.yaml"))
    assert recipe["steps"] == ["drop-identity", "fuse-matmul-add"]
    assert recipe["model"] == "models/my net's.onnx"
    assert recipe["expect"] == {
        "ops": {"Add": 0, "Identity": 0, "MatMul": 0},
        "nodes": "<= 2",
        "signature": "unchanged",
    }
    assert list(recipe["inputs"]["dims"]) == ["batch"] and len(recipe["inputs"]["dims"]["batch"]) == 2
    # The workflow as GitHub Actions runs it, but for what it installs.
    workflow = YAML(typ="safe").load(Path(".github/workflows/my net's.yml"))
    script = [step["run"] for step in workflow["jobs"]["model"]["steps"] if "run" in step]
    assert script[0] == 'pip install "onnx-surgery[cpu] @ ${{ vars.SURGERY }}" pytest'
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "CI": "true"}
    for line in script[1:]:
        ran = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", line], env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, f"{line}\n{ran.stdout}\n{ran.stderr}"
    # Another export, with an operator that the recipe says is gone, fails.
    onnx.save(
        text.parse(
            MODEL.replace("batch, n", "batch, 4")
            .replace("m = MatMul", "q = Add(i, i) m = MatMul")
            .replace("MatMul(i", "MatMul(q")
        ),
        "models/my net's.onnx",
    )
    assert cli.main(["apply", "my net's.yaml"]) == 1


def test_existing_files_are_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("my-net.yaml").write_text("mine")
    assert cli.main(["init", "models/my-net.onnx"]) == 2
    assert capsys.readouterr().err.startswith("surgery: my-net.yaml: the file exists; ")
    assert Path("my-net.yaml").read_text() == "mine" and not Path("tests").exists()
    assert cli.main(["init", "models/my-net.onnx", "--force", "--recipe", "tidy"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("1 step changes models/my-net.onnx: 4 -> 3 nodes\nwrote my-net.yaml\n")
    assert "  surgery apply my-net.yaml -o models/my-net.opt.onnx\n" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["init", "models/my-nett.onnx"], "models/my-nett.onnx: no such file; did you mean 'models/my-net.onnx'?"),
        (["init", "models/my-net.onnx", "--dir", "nowhere"], "nowhere: no such folder"),
        (["init", "models/my-net.onnx", "--recipe", "defalt"], "no recipe 'defalt'; did you mean 'default'?"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"surgery: {words}\n")


def test_a_model_that_no_step_changes(capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(text.parse("g (float[4] x) => (float[4] y) { y = Relu(x) }"), "models/small.onnx")
    assert cli.main(["init", "models/small.onnx", "--recipe", "tidy"]) == 0
    assert capsys.readouterr().out.startswith("no step of tidy changes models/small.onnx\n")
    assert YAML(typ="safe").load(Path("small.yaml"))["steps"] == [{"use": "tidy"}]
    assert cli.main(["apply", "small.yaml"]) == 0
