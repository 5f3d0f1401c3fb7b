"""A newer opset that takes a kernel away, though the operator is the same in both."""

from __future__ import annotations

import onnx
import onnxruntime as ort
import pytest
from support.lacking import skip_opset

import surgery
from surgery.model.graph import text

MODEL = """<ir_version: 8, opset_import: ["" : 18]>
g (double[N,3] x) => (double[N,3] y) <double[1] slope = {0.25}> { a = PRelu(x, slope) y = Add(a, a) }"""


def runs(model: onnx.ModelProto) -> bool:
    try:
        ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True


def raised(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.opset_import[0].version, copy.ir_version = 24, 10
    return copy


def test_an_upgrade_to_an_opset_without_a_kernel_is_rolled_back(tmp_path) -> None:
    skip_opset(24)
    model = text.parse(MODEL)
    if not runs(model) or runs(raised(model)):
        pytest.skip("the installed runtime makes no difference between these opsets")
    result = surgery.apply(model, "modern", output=tmp_path / "out.onnx")
    upgrades = [step for step in result.steps if step.name == "upgrade-opset"]
    assert [step.status for step in upgrades] == ["rolled_back", "rolled_back"]
    assert "no kernel for PRelu" in upgrades[0].message
    assert runs(onnx.load(tmp_path / "out.onnx"))


def test_modern_upgrades_as_far_as_kernels_exist(tmp_path) -> None:
    """RoiAlign has a kernel up to opset 21."""
    body = """<ir_version: 8, opset_import: ["" : 16]>
    g (float[1,2,8,8] x, float[R,4] rois, int64[R] i) => (float[R,2,1,1] y) { y = RoiAlign(x, rois, i) }"""
    model = text.parse(body)
    result = surgery.apply(model, "modern", output=tmp_path / "out.onnx")
    written = onnx.load(tmp_path / "out.onnx")
    assert runs(written)
    upgrades = [step.status for step in result.steps if step.name == "upgrade-opset"]
    assert upgrades in (["committed", "skipped"], ["rolled_back", "committed"])
    assert written.opset_import[0].version == (24 if upgrades[0] == "committed" else 21)
