"""`surgery open` before there is a page: what it needs, and what it says if that is missing."""

import socket
import sys
from pathlib import Path

import onnx
import pytest

from surgery.interface import commands as cli
from surgery.model.graph import text


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    onnx.save(text.parse("g (float[n] x) => (float[n] y) { y = Neg(x) }"), path)
    return path


def test_without_the_extra_it_says_what_to_install(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("surgery.interface.workbench")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert cli.main(["open", str(model), "--no-browser"]) == 2
    said = capsys.readouterr().err
    assert "the workbench needs uvicorn" in said and "pip install 'onnx-surgery[workbench]'" in said


def test_a_port_that_is_taken_is_named(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert cli.main(["open", str(model), "--no-browser", "--port", str(port)]) == 2
    assert f"port {port} cannot be used" in capsys.readouterr().err


def test_a_model_that_cannot_be_read_is_reported_before_a_server_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    assert cli.main(["open", str(tmp_path / "none.onnx"), "--no-browser"]) == 2
    out, said = capsys.readouterr()
    assert "none.onnx" in said and out == ""
