"""What the README shows is run: its commands, its recipe, its pass and its case file."""

import re
import shlex
from pathlib import Path

import onnx
import pytest
from support import ROOT

from surgery import cli
from surgery.graph import text

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    return [body for found, body in fenced if found == language]


COMMANDS = [line for block in blocks("console") for line in block.splitlines() if line.startswith("surgery ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, short_models: Path) -> Path:
    """A folder with what the README says a reader has saved."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "models").symlink_to(short_models)
    (folder / "first.yaml").write_text(blocks("yaml")[0])
    (folder / "swap.py").write_text(blocks("python")[0])
    negated = "g (float[n] x, float[n] z) => (float[n] y) { d = Sub(x, z) y = Neg(d) }"
    onnx.save(text.parse(negated, opset=17), folder / "model.onnx")
    return folder


def test_commands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert len(COMMANDS) >= 8
    for command in COMMANDS:
        assert cli.main(shlex.split(command)[1:]) == 0, command


def test_every_command_of_the_text_exists() -> None:
    for inline in re.findall(r"`surgery (\w+)[^`]*`", README):
        assert (ROOT / "surgery" / "cli" / f"{inline}.py").is_file(), inline


def test_the_pass_and_the_python_calls(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert cli.main(["run", "swap-negated-sub", "model.onnx", "--plugin", "swap.py", "-o", "swapped.onnx"]) == 0
    assert [node.op_type for node in onnx.load("swapped.onnx").graph.node] == ["Sub"]
    exec(compile(blocks("python")[1], "README.md", "exec"), {})
    assert Path("model.opt.onnx").is_file()


def test_the_rule(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    Path("swaps.yaml").write_text(blocks("yaml")[-1])
    assert cli.main(["apply", "swaps.yaml", "model.onnx", "-o", "ruled.onnx"]) == 0
    assert [node.op_type for node in onnx.load("ruled.onnx").graph.node] == ["Sub"]


def test_the_case_file(folder: Path, tmp_path: Path) -> None:
    from surgery import testing
    from surgery.registry import declare

    declare.load_plugin(str(folder / "swap.py"))
    (tmp_path / "swap-negated-sub").mkdir()
    path = tmp_path / "swap-negated-sub" / "keeps_a_difference_that_is_an_output.onnxtxt"
    path.write_text(blocks("")[0])
    testing.check(testing.read_case(path))
