"""Runs in the reference evaluator of releases of onnx that do not have all element types."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from surgery.model.graph import text
from surgery.model.runtime import reference_runs

_NEW = '<ir_version: 10, opset_import: ["" : 21]> '


def _run(source: str, feed: dict[str, Any] | None = None) -> dict[str, Any]:
    return reference_runs.run(text.parse(_NEW + source).SerializeToString(), [feed or {}])


@pytest.mark.parametrize(
    "source",
    [
        "g (bfloat16[2] x) => (bfloat16[2] y) { y = Add(x, x) }",
        "g () => (float[2] y) <bfloat16[2] w = {1, 2}> { y = Cast<to = 1>(w) }",
        "g () => (float[2] y) <float[2] w = {1, 2}> { b = Cast<to = 16>(w) y = Cast<to = 1>(b) }",
        "g () => (float[2] y) <float[2] w = {1, 2}, float s = {1}> "
        "{ q = QuantizeLinear<output_dtype = 22>(w, s) y = DequantizeLinear(q, s) }",
        "g (bool c) => (float[1] y) { y = If(c) <"
        "then_branch = a () => (float[1] p) <int4[1] w = {1}> { p = Cast<to = 1>(w) }, "
        "else_branch = b () => (float[1] q) <float[1] v = {1}> { q = Neg(v) }> }",
    ],
)
def test_types_that_an_old_evaluator_computes_as_integers_are_not_run(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_runs, "_has_all_types", lambda: False)
    assert "computes types that NumPy lacks as integers" in _run(source)["unsupported"]


def test_other_types_are_run_by_any_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_runs, "_has_all_types", lambda: False)
    source = "g () => (float16[2] y) <float[2] w = {1, -2}> { h = Cast<to = 10>(w) y = Add(h, h) }"
    assert _run(source)["runs"][0]["y"].tolist() == [2, -4]


def test_sums_in_bfloat16_are_right_or_not_computed() -> None:
    """Not the sums of their bits as integers, which onnx 1.17 gives."""
    source = "g () => (float[2] y) <float[2] w = {1, -2}> { b = Cast<to = 16>(w) s = Add(b, b) y = Cast<to = 1>(s) }"
    found = _run(source)
    if onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16).name != "bfloat16":
        assert "unsupported" in found
    else:
        assert found["runs"][0]["y"].tolist() == [2, -4]
