"""Shape rules for operators of com.microsoft, of which onnx-shape-inference has none.

Source: ONNX Runtime's `docs/ContribOperators.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx_shape_inference import registry

from surgery.shapes.symbols import Element

if TYPE_CHECKING:
    from surgery.shapes.context import Context

DOMAIN = "com.microsoft"


def register() -> None:
    """Add the rules to the registry."""
    registry.register(DOMAIN, "DynamicQuantizeLSTM")(_dynamic_quantize_lstm)


def _dynamic_quantize_lstm(context: Context, node: ir.Node) -> None:
    """Y has [sequence, directions, batch, hidden], Y_h and Y_c have [directions, batch, hidden]."""
    data = node.inputs[0]
    if data is None or data.shape is None or len(data.shape) != 3:
        return
    direction, size = node.attributes.get("direction"), node.attributes.get("hidden_size")
    directions = 2 if direction is not None and direction.as_string() == "bidirectional" else 1
    hidden: Element = context.new_symbolic_dim() if size is None else size.as_int()
    length, batch = data.shape[0], data.shape[1]
    shapes = [[length, directions, batch, hidden], *([[directions, batch, hidden]] * 2)]
    for value, shape in zip(node.outputs, shapes):
        context.set_shape_and_dtype(value, ir.Shape(shape), ir.DataType.FLOAT)
