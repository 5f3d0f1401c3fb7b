"""Shape rules for operators of ai.onnx.ml that onnx-shape-inference lacks, or treats differently from ONNX Runtime.

Operators on rows return one result per row, as a matrix or as a vector of labels. This includes a vector as input,
which ONNX Runtime treats as one row; the documentation of the operators does not mention this case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx_shape_inference import registry

from surgery.model.shapes.symbols import Element

if TYPE_CHECKING:
    from surgery.model.shapes.context import Context

Rule = Callable[["Context", ir.Node], None]
DOMAIN = "ai.onnx.ml"


def register() -> None:
    """Add the rules to the registry; a later rule for an operator replaces an earlier one."""
    for name, rule in _RULES.items():
        registry.register(DOMAIN, name)(rule)


def _data(node: ir.Node) -> ir.Value:
    value = node.inputs[0] if node.inputs else None
    if value is None:
        raise ValueError(f"{node.op_type} has no input")
    return value


def _floats_of_same_shape(context: Context, node: ir.Node) -> None:
    context.set_shape_and_dtype(node.outputs[0], _data(node).shape, ir.DataType.FLOAT)


def _same(context: Context, node: ir.Node) -> None:
    data = _data(node)
    context.set_shape_and_dtype(node.outputs[0], data.shape, data.dtype)


def _category_mapper(context: Context, node: ir.Node) -> None:
    data = _data(node)
    other = {ir.DataType.STRING: ir.DataType.INT64, ir.DataType.INT64: ir.DataType.STRING}
    context.set_shape_and_dtype(node.outputs[0], data.shape, None if data.dtype is None else other[data.dtype])


def _rows(context: Context, node: ir.Node) -> Element:
    shape = _data(node).shape
    if shape is None:
        symbol: Element = context.new_symbolic_dim()
        return symbol
    extents: list[Element] = list(shape)
    return extents[0] if len(extents) > 1 else 1


def _regressor(columns: str) -> Rule:
    """Return the rule of an operator whose number of results per row is given by an attribute."""

    def rule(context: Context, node: ir.Node) -> None:
        width = node.attributes[columns].as_int() if columns in node.attributes else 1
        context.set_shape_and_dtype(node.outputs[0], ir.Shape([_rows(context, node), width]), ir.DataType.FLOAT)

    return rule


def _classifier(numbers: str) -> Rule:
    """Return the rule of an operator with a label and scores per row; `numbers` is the attribute of integer labels.

    Whether there are one or two scores for two classes depends on the coefficients.
    """

    def rule(context: Context, node: ir.Node) -> None:
        names = _list(node, "classlabels_strings")
        count = len(names or _list(node, numbers))
        rows = _rows(context, node)
        label = ir.DataType.STRING if names else ir.DataType.INT64
        context.set_shape_and_dtype(node.outputs[0], ir.Shape([rows]), label)
        if len(node.outputs) > 1:
            width = count if count > 2 and node.op_type != "SVMClassifier" else context.new_symbolic_dim()
            context.set_shape_and_dtype(node.outputs[1], ir.Shape([rows, width]), ir.DataType.FLOAT)

    return rule


def _list(node: ir.Node, name: str) -> list[object]:
    return list(node.attributes[name].value) if name in node.attributes else []


def _one_hot_encoder(context: Context, node: ir.Node) -> None:
    shape = _data(node).shape
    count = len(_list(node, "cats_int64s") or _list(node, "cats_strings"))
    made = None if shape is None else ir.Shape([*shape, count])
    context.set_shape_and_dtype(node.outputs[0], made, ir.DataType.FLOAT)


def _array_feature_extractor(context: Context, node: ir.Node) -> None:
    """Select columns of a matrix, or of a vector, which counts as one row."""
    data, places = _data(node), node.inputs[1]
    if data.shape is None or len(data.shape) == 0 or places is None:
        context.set_shape_and_dtype(node.outputs[0], None, data.dtype)
        return
    extents = [] if places.shape is None else [extent for extent in places.shape if extent != 1]
    known = places.shape is not None and len(extents) <= 1
    count = context.new_symbolic_dim() if not known else extents[0] if extents else 1
    rows = list(data.shape[:-1]) if len(data.shape) > 1 else [1]
    context.set_shape_and_dtype(node.outputs[0], ir.Shape([*rows, count]), data.dtype)


_RULES: dict[str, Rule] = {
    "ArrayFeatureExtractor": _array_feature_extractor,
    "CategoryMapper": _category_mapper,
    "Imputer": _same,
    "LinearClassifier": _classifier("classlabels_ints"),
    "LinearRegressor": _regressor("targets"),
    "Normalizer": _floats_of_same_shape,
    "OneHotEncoder": _one_hot_encoder,
    "SVMClassifier": _classifier("classlabels_ints"),
    "SVMRegressor": _regressor(""),
    "Scaler": _floats_of_same_shape,
    "TreeEnsembleClassifier": _classifier("classlabels_int64s"),
    "TreeEnsembleRegressor": _regressor("n_targets"),
}
