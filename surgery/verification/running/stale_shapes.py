"""Declared shapes of a model that inference contradicts: an edit left them as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgery.base.errors import first_few

if TYPE_CHECKING:
    import onnx_ir as ir

_MOST_NAMED = 3


def stale_shapes(model: ir.Model) -> str:
    """Describe the declared shapes that inference contradicts; empty if there are none."""
    from surgery.model.shapes.inference import Inference

    found = Inference(model).contradictions()
    names = [f"that of '{value.name}'" for value in found]
    count = f"{len(found)} declared shape{' contradicts' if len(found) == 1 else 's contradict'}"
    return f"{count} what the nodes compute: {first_few(names, _MOST_NAMED)}" if found else ""
