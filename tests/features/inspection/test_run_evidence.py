"""How, where and of what a run was made."""

from __future__ import annotations

import shlex
from pathlib import Path

import onnx
import pytest

from surgery.engine.provenance.environment import environment
from surgery.features.inspection import operator_costs, report_data
from surgery.model import storage


def test_the_environment() -> None:
    found = environment()
    assert found["onnx"] == onnx.__version__ and all(isinstance(value, str) and value for value in found.values())
    assert {"surgery", "onnxruntime", "numpy", "python", "system", "processor", "cores", "memory"} <= found.keys()


def test_recipes_are_quoted_once(tmp_path: Path) -> None:
    one = tmp_path / "one.yaml"
    one.write_bytes(b"steps: []\n\xff")
    argv = ["surgery", "apply", "a recipe.yaml"]
    found = report_data.circumstances(argv, [f"{one}:1", "", f"{one}:2", f"{tmp_path / 'gone.yaml'}:3"])
    assert found["recipes"] == [{"path": str(one), "text": "steps: []\n\ufffd"}]
    assert shlex.split(found["command"]) == argv


def test_credentials_in_urls_are_not_reported() -> None:
    argv = ["surgery", "apply", "tidy", "s3://key:secret@bucket/a model.onnx", "-o=https://host/m.onnx?token=secret"]
    found = report_data.circumstances(argv, [])["command"]
    assert "secret" not in found and "s3://bucket/a" in found and "-o=https://host/m.onnx" in found


def test_a_failed_section_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no shapes today")

    monkeypatch.setattr(operator_costs, "operator_costs", broken)
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[a] x) => (float[a] y) { y = Relu(x) }'
    stored = storage.from_proto(onnx.parser.parse_model(text))
    found = report_data.contents(stored, stored, [])
    assert found["costs"] is None and found["weights"]["kept"] == 0
    assert len(found["problems"]) == 2 and "no shapes today" in found["problems"][0]


def test_the_costs_are_of_the_largest_sizes() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[a] x) => (float[a] y) { y = Relu(x) }'
    stored = storage.from_proto(onnx.parser.parse_model(text))
    bindings = [{"dims": {"a": 3}}, {"dims": {"a": 7}}, {"dims": {"a": 900}, "refused": "too large"}]
    assert report_data.contents(stored, stored, bindings)["costs"]["sizes"] == {"a": 7}
