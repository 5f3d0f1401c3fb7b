"""What the README shows is run: its commands with their output, its recipe, its pass and its Python."""

import contextlib
import html
import io
import re
import shlex
from pathlib import Path

import onnx
import pytest
from support import ROOT
from support.shown import normalized

from surgery.interface import commands as cli
from surgery.model.graph import text

pytestmark = pytest.mark.usefixtures("standard_passes")

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


@pytest.mark.slow
def test_commands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert len(COMMANDS) >= 8
    printed = {}
    for command in COMMANDS:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert cli.main(shlex.split(command)[1:]) == 0, command
        printed[command] = out.getvalue()
    (shown,) = blocks("text")
    assert normalized(shown) == normalized(printed[COMMANDS[0]])


def test_the_picture_shows_the_same() -> None:
    drawn = (ROOT / "docs" / "images" / "apply.svg").read_text(encoding="utf-8")
    command, *lines = "".join(re.findall(r"<text[^>]*>([^<]*)</text>", drawn)[1:]).splitlines()
    assert html.unescape(command).replace("\xa0", " ").strip() == f"$ {COMMANDS[0]}"
    shown = normalized("\n".join(html.unescape(line).replace("\xa0", " ").rstrip() for line in lines))
    # Blanks between two colors are no text of the picture.
    assert shown.replace(" ", "") == normalized(blocks("text")[0]).replace(" ", ""), "make picture"


def test_every_command_of_the_text_exists() -> None:
    for inline in re.findall(r"`surgery ([\w-]+)[^`]*`", README):
        assert inline in (*cli.COMMANDS, *cli.ALIASES), inline


def test_the_pass_and_the_python_calls(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert cli.main(["run", "swap-negated-sub", "model.onnx", "--plugin", "swap.py", "-o", "swapped.onnx"]) == 0
    assert [node.op_type for node in onnx.load("swapped.onnx").graph.node] == ["Sub"]
    exec(compile(blocks("python")[1], "README.md", "exec"), {})
    assert Path("model.opt.onnx").is_file()


def test_every_shipped_recipe_is_listed() -> None:
    table = "".join(line for line in README.splitlines() if line.startswith("| `"))
    assert {path.stem for path in (ROOT / "recipes").glob("*.yaml")} == set(re.findall(r"`([a-z0-9-]+)`", table))
