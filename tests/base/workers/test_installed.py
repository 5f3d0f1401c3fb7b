"""Without any build of ONNX Runtime, commands that need it say what to install."""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import onnx
import pytest

from surgery.engine.provenance import packages
from surgery.interface import commands as cli
from surgery.model.graph import text
from surgery.model.targets import installed_kernels, shipped


@pytest.fixture
def without_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def found(name: str, package: str | None = None) -> Any:
        return None if name == "onnxruntime" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", found)
    installed_kernels.kernels.cache_clear()
    shipped._shipped.cache_clear()


@pytest.mark.usefixtures("without_runtime")
@pytest.mark.parametrize("command", [["apply", "tidy"], ["check"], ["inspect"], ["inspect", "--target", "ort-cpu"]])
def test_commands_name_what_to_install(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(text.parse("g (float[n] x) => (float[n] y) { i = Identity(x) y = Neg(i) }"), model)
    assert cli.main([*command, str(model), *(["-o", str(tmp_path / "o.onnx")] if command[0] == "apply" else [])]) == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("surgery: ONNX Runtime is not installed; pip install 'onnx-surgery[cpu]'")
    assert not (tmp_path / "o.onnx").exists()


def test_a_build_with_another_name_is_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "onnxruntime-gpu":
            return "1.31.1"
        raise PackageNotFoundError(name)

    monkeypatch.setattr(packages, "version", version)
    assert packages.version_of("onnxruntime") == "1.31.1 (onnxruntime-gpu)"
    assert packages.builds() == {"onnxruntime-gpu": "1.31.1"}
    assert packages.version_of("numpy") == "not installed"
