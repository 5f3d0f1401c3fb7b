"""An output that is an input of the same command is refused, even with --force."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from surgery.interface import commands as cli
from surgery.model import storage
from surgery.model.graph import text

RECIPE = "steps: [drop-identity]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    model = text.parse("g (float[2] x) => (float[2] y) { i = Identity(x) y = Add(i, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    onnx.save(model, "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    Path("t.yaml").write_text(RECIPE, encoding="utf-8")
    Path("r.yaml").write_text("model: m.onnx\nsteps: [{use: ./t.yaml}]\n", encoding="utf-8")
    # Pages are refused under names that promise another format: these names promise none.
    Path("page").write_bytes(Path("m.onnx").read_bytes())
    Path("steps").write_text(RECIPE, encoding="utf-8")
    Path("p.yaml").write_text("model: page\nsteps: [{use: ./t.yaml}]\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("plan t.yaml m.onnx -o", "m.onnx"),
        ("plan t.yaml m.onnx -o", "t.yaml"),
        ("plan r.yaml -o", "m.onnx"),
        ("plan r.yaml -o", "w.bin"),
        ("plan r.yaml -o", "t.yaml"),
        ("apply t.yaml m.onnx -o", "t.yaml"),
        ("apply ./steps m.onnx --report", "steps"),
        ("apply p.yaml --report", "page"),
        ("apply page --report", "page"),
        ("apply t.yaml m.onnx -o x.onnx --provenance", "t.yaml"),
        ("run drop-identity m.onnx --save-recipe", "m.onnx"),
        ("view page -o", "page"),
        ("diff page page --html", "page"),
    ],
)
def test_an_input_is_not_overwritten(
    folder: Path, command: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    # Another spelling of the path is the same file.
    code = cli.main([*command.split(), f"../{folder.name}/{output}", "--force"])
    said = capsys.readouterr().err
    assert code == 2 and said.endswith(f"{output} would overwrite an input of this command; name another file\n")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("apply t.yaml m.onnx -o x --report x", "'x' cannot be both output and report"),
        ("apply t.yaml m.onnx -o x.onnx --provenance x.onnx.data_1", "cannot be both provenance and external data"),
        ("run drop-identity m.onnx -o x.onnx --save-recipe x.onnx", "'x.onnx' cannot be both save-recipe and output"),
        ("run drop-identity m.onnx -o x.onnx --save-recipe ./x.onnx.data", "cannot be both save-recipe and external"),
        ("apply t.yaml m.onnx -o x.onnx --report x.html --provenance x.html", "cannot be both report and provenance"),
    ],
)
def test_outputs_do_not_overwrite_each_other(
    folder: Path, command: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*command.split(), "--force"]) == 2
    assert expected in capsys.readouterr().err and not list(folder.glob("x.*"))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "apply t.yaml m.onnx --report run.json",
            "--report/--html: run.json: a page is written as .html, not as '.json'",
        ),
        (
            "batch t.yaml m.onnx --out out --report r.pdf",
            "--report/--html: r.pdf: a page is written as .html, not as '.pdf'",
        ),
        ("view m.onnx -o m.svg", "--output: m.svg: a page is written as .html, not as '.svg'"),
    ],
)
def test_a_page_is_not_written_under_the_name_of_another_format(
    folder: Path, command: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(command.split())
    assert ended.value.code == 2 and expected in capsys.readouterr().err
    assert not (folder / command.split()[-1]).exists()


@pytest.mark.parametrize("command", ["apply t.yaml m.onnx", "apply m.onnx", "apply r.yaml"])
def test_a_model_may_replace_the_model_that_it_is_made_from(folder: Path, command: str) -> None:
    assert cli.main([*command.split(), "-o", "m.onnx", "--force", "-q"]) == 0
    assert len(onnx.load("m.onnx").graph.node) == 1


def test_the_data_of_a_linked_model_is_not_overwritten_and_the_model_is_loaded_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "links").mkdir()
    (folder / "links" / "m.onnx").symlink_to(folder / "m.onnx")
    before, read = (folder / "w.bin").read_bytes(), []
    load = storage.load
    monkeypatch.setattr(storage, "load", lambda path, **how: read.append(path) or load(path, **how))
    assert cli.main(["apply", "t.yaml", "links/m.onnx", "-o", "w.bin", "--force"]) == 2
    assert "w.bin would overwrite an input of this command" in capsys.readouterr().err
    assert len(read) <= 1 and (folder / "w.bin").read_bytes() == before
