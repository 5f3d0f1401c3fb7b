"""What the installed onnx lacks."""

from __future__ import annotations

import pytest
from support.opset_tools import Refused, surgery
from surgery.passes.opset import upgrade_opset

from surgery.graph import text

MODEL = '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Relu(x) }'


def test_an_opset_that_the_installed_onnx_does_not_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """`modern` asks for opset 24 first, and goes on with 21 where the installed release stops in between."""
    monkeypatch.setattr(upgrade_opset, "newest_opset", lambda: 22)
    with pytest.raises(Refused, match="the installed onnx has no opset 24; opset 22 is its newest"):
        surgery(text.parse(MODEL), 24)
    assert surgery(text.parse(MODEL), 21).opset_import[0].version == 21
