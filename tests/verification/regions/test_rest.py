"""Whole models run while no other process holds memory."""

from __future__ import annotations

import numpy as np
import onnx

from surgery.base.promises import Parity
from surgery.verification.verdict.verifier import Verifier


def _model(body: str) -> bytes:
    header = '<ir_version: 10, opset_import: ["": 21]> g (float[N,4] x) => (float[N,4] y)'
    data: bytes = onnx.parser.parse_model(f"{header} {{ {body} }}").SerializeToString()
    return data


def test_regions_are_compared_again_after_the_whole_model_has_run():
    before = _model("a = Exp(x) b = Neg(a) y = Neg(b)")
    after, right = _model("a = Exp(x) b = Neg(a) y = Mul(a, b)"), _model("a = Neg(x) b = Neg(a) y = Exp(b)")
    verifier = Verifier(before)
    try:
        assert verifier.changes.compare_regions(before, right).verdict.passed
        assert verifier.changes._regional is not None
        worker = verifier.changes._regional._laboratory._engine._worker
        assert worker.pid is not None
        assert verifier.verify(after, Parity.CLOSE).is_different
        assert worker.pid is None
        assert verifier.changes.compare_regions(before, right).verdict.passed
        assert verifier.verify(right, Parity.CLOSE).passed
        assert np.isfinite(verifier.original.runs[0].outputs["y"]).any()
    finally:
        verifier.close()
