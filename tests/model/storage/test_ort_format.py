"""Models in ORT format, as ONNX Runtime writes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

from surgery import diff, inspect, verify
from surgery.base.errors import ModelFileError
from surgery.model import storage
from surgery.verification.benchmarking.subjects import subject

_WRITE = """
import sys
import onnxruntime as ort
options = ort.SessionOptions()
options.log_severity_level = 4
options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, sys.argv[3])
options.optimized_model_filepath = sys.argv[2]
options.add_session_config_entry("session.save_model_format", "ORT")
ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
"""


def converted(model: Path, folder: Path, level: str = "ORT_DISABLE_ALL") -> Path:
    path = folder / "m.ort"
    subprocess.run([sys.executable, "-c", _WRITE, str(model), str(path), level], check=True)
    return path


@pytest.fixture(scope="module")
def resnet() -> Path:
    return ROOT / "models" / "resnet-tiny.onnx"


def test_a_model_in_ort_format_equals_its_original(resnet: Path, tmp_path: Path) -> None:
    path = converted(resnet, tmp_path)
    found = diff(resnet, path)
    assert found.same
    assert inspect(path).bytes == path.stat().st_size
    assert inspect(path).opsets == inspect(resnet).opsets


def test_an_optimized_model_in_ort_format_is_verified(resnet: Path, tmp_path: Path) -> None:
    path = converted(resnet, tmp_path, "ORT_ENABLE_EXTENDED")
    stored = storage.load(path)
    assert len(stored.proto.graph.node) < len(storage.load(resnet).proto.graph.node)
    assert verify(resnet, path).ok


def test_the_file_itself_is_measured(resnet: Path, tmp_path: Path) -> None:
    assert subject(converted(resnet, tmp_path)).path == tmp_path / "m.ort"


def test_a_damaged_file_is_reported_in_one_line(resnet: Path, tmp_path: Path) -> None:
    path = converted(resnet, tmp_path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ModelFileError) as caught:
        storage.load(path)
    assert str(caught.value).startswith(f"{path}: ONNX Runtime does not load this model in ORT format: ")
    assert str(caught.value).endswith("; give the .onnx file it was made from") and "\n" not in str(caught.value)
