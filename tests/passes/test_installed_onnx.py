"""What the installed onnx lacks."""

from __future__ import annotations

import pytest
from support import TESTS
from support.opset_tools import Refused, surgery
from surgery.passes.opset import _schemas, upgrade_opset

from surgery.engine.registry.catalog import catalog
from surgery.features import testing
from surgery.model.graph import text

MODEL = '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Relu(x) }'


def test_an_opset_that_the_installed_onnx_does_not_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """`modern` asks for opset 24 first, and goes on with 21 where the installed release stops in between."""
    monkeypatch.setattr(upgrade_opset, "newest_opset", lambda: 22)
    with pytest.raises(Refused, match="the installed onnx has no opset 24; opset 22 is its newest"):
        surgery(text.parse(MODEL), 24)
    assert surgery(text.parse(MODEL), 21).opset_import[0].version == 21


@pytest.mark.parametrize(
    ("case", "op"),
    [
        ("turns_by_tables_with_a_row_for_each_token", "RotaryEmbedding"),
        ("keeps_attention_with_used_masked_scores", "Attention"),
    ],
)
def test_an_operator_that_the_installed_onnx_does_not_have_is_named(
    monkeypatch: pytest.MonkeyPatch, case: str, op: str
) -> None:
    """As with onnx 1.17, which has opset 22: operators of ONNX Runtime are written in those of opset 23, too."""
    known = _schemas.schemas_of
    monkeypatch.setattr(_schemas, "schemas_of", lambda name: {} if name == op else known(name))
    read = testing.read_case(TESTS / f"cases/decompose/{case}.onnxtxt")
    outcome = testing.run(read.model(), catalog.find("decompose"), read.options)
    assert outcome.reasons == (f"the installed onnx does not know {op}",)
    assert outcome.after == outcome.before
