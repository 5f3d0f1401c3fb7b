"""Shape rules for the forms of operators in older opsets, which onnx-shape-inference does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx_shape_inference import registry

if TYPE_CHECKING:
    from surgery.model.shapes.context import Context


def register() -> None:
    """Add the rules to the registry, for versions before the first that the package supports."""
    registry.register("", "Slice", 1)(_slice)
    registry.register("", "TopK", 1)(_top_k)
    for name in ("Max", "Mean", "Min", "Sum"):
        registry.register("", name, 1)(_same)


def _slice(context: Context, node: ir.Node) -> None:
    """Keep the rank; bounds are attributes until opset 9, so extents are known anyway if those of the input are."""
    data = node.inputs[0]
    if data is not None and data.shape is not None:
        dims = [context.new_symbolic_dim() for _ in data.shape]
        context.set_shape_and_dtype(node.outputs[0], ir.Shape(dims), data.dtype)
    elif data is not None:
        context.set_shape_and_dtype(node.outputs[0], None, data.dtype)


def _top_k(context: Context, node: ir.Node) -> None:
    """Take k elements along an axis, for values and indices; k is an attribute until opset 9."""
    data = node.inputs[0]
    if data is None:
        return
    made = None
    if data.shape is not None:
        dims = list(data.shape)
        dims[node.attributes["axis"].as_int() if "axis" in node.attributes else -1] = node.attributes["k"].as_int()
        made = ir.Shape(dims)
    context.set_shape_and_dtype(node.outputs[0], made, data.dtype)
    if len(node.outputs) > 1:
        context.set_shape_and_dtype(node.outputs[1], made, ir.DataType.INT64)


def _same(context: Context, node: ir.Node) -> None:
    """Copy the shape of an operand: until opset 7, all operands have the same one."""
    data = next((value for value in node.inputs if value is not None and value.shape is not None), node.inputs[0])
    if data is not None:
        context.set_shape_and_dtype(node.outputs[0], data.shape, data.dtype)
