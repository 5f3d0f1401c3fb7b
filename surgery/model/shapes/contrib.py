"""Shape rules for operators of com.microsoft, for which onnx-shape-inference has none.

Source: ONNX Runtime's `docs/ContribOperators.md`. The rules of attention are in `contrib_attention`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx_shape_inference import registry

from surgery.model.shapes import contrib_attention
from surgery.model.shapes.contrib_attention import integer, write
from surgery.model.shapes.symbols import Element, Number, combine, element, number

if TYPE_CHECKING:
    from surgery.model.shapes.context import Context

DOMAIN = "com.microsoft"
Rule = Callable[["Context", ir.Node], None]


def register() -> None:
    """Add the rules to the registry."""
    for name, rule in {**_RULES, **contrib_attention.RULES}.items():
        registry.register(DOMAIN, name)(rule)
    registry.register("", "SimplifiedLayerNormalization")(_simplified_layer_normalization)


def _data(node: ir.Node, index: int = 0) -> ir.Value:
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None:
        raise ValueError(f"{node.op_type} has no input {index}")
    return value


def _dims(value: ir.Value) -> list[Element]:
    """Return the dims of a value; the rule gives up if the rank is not known."""
    if value.shape is None:
        raise ValueError("the shape is not known")
    return list(value.shape)


def _same(context: Context, node: ir.Node, typed_by: int = 0) -> None:
    """Write the shape of the first input, and the type of an input."""
    context.set_shape_and_dtype(node.outputs[0], _data(node).shape, _data(node, typed_by).dtype)


def _quantize(context: Context, node: ir.Node) -> None:
    has_point = len(node.inputs) > 2 and node.inputs[2] is not None
    dtype = node.inputs[2].dtype if has_point and node.inputs[2] is not None else ir.DataType.UINT8
    context.set_shape_and_dtype(node.outputs[0], _data(node).shape, dtype)


def _skip_layer_normalization(context: Context, node: ir.Node) -> None:
    """Write the sum with the shape of the input, and mean and deviation with one element per row."""
    data = _data(node)
    dims = _dims(data)
    for index in (0, 3):
        write(context, node, index, dims, data.dtype)
    for index in (1, 2):
        write(context, node, index, [*dims[:-1], 1], ir.DataType.FLOAT)


def _skip_group_norm(context: Context, node: ir.Node) -> None:
    for index in (0, 1):
        write(context, node, index, _dims(_data(node)), _data(node).dtype)


def _simplified_layer_normalization(context: Context, node: ir.Node) -> None:
    data, scale = _data(node), _data(node, 1)
    dims = _dims(data)
    axis = integer(node, "axis", -1) % max(1, len(dims))
    write(context, node, 0, dims, scale.dtype)
    write(context, node, 1, [*dims[:axis], *[1] * (len(dims) - axis)], ir.DataType.FLOAT)


def _broadcast(context: Context, *shapes: Sequence[Element]) -> list[Element]:
    """Broadcast shapes to each other; of two different symbols either may be 1."""

    def both(one: Element, other: Element) -> Element:
        if one == other or other == 1:
            return one
        if one == 1:
            return other
        known = next((dim for dim in (one, other) if isinstance(dim, int)), None)
        fresh: Element = context.new_symbolic_dim() if known is None else known
        return fresh

    rank = max(map(len, shapes))
    return [reduce(both, dims) for dims in zip(*([*[1] * (rank - len(shape)), *shape] for shape in shapes))]


def _elementwise(places: Sequence[int], typed_by: int = 0) -> Rule:
    def rule(context: Context, node: ir.Node) -> None:
        dims = _broadcast(context, *(_dims(_data(node, place)) for place in places))
        write(context, node, 0, dims, _data(node, typed_by).dtype)

    return rule


def _turned(dims: list[Element], node: ir.Node, side: str) -> list[Element]:
    """Move the first dim before the last, and swap the last two, as the attributes of a fused product specify."""
    if len(dims) > 1 and integer(node, f"transBatch{side}"):
        dims = [*dims[1:-1], dims[0], dims[-1]]
    if len(dims) > 1 and integer(node, f"trans{side}"):
        dims = [*dims[:-2], dims[-1], dims[-2]]
    return dims


def _product(context: Context, node: ir.Node, dtype: ir.DataType | None = None) -> None:
    first, second = (_turned(_dims(_data(node, place)), node, side) for place, side in enumerate("AB"))
    rows, columns = first[-2:-1], second[-1:] if len(second) > 1 else []
    batch = _broadcast(context, first[:-2], second[:-2])
    write(context, node, 0, [*batch, *rows, *columns], dtype or _data(node).dtype)


def _scaled_product(context: Context, node: ir.Node) -> None:
    _product(context, node, _data(node, 2).dtype)


def _gemm(context: Context, node: ir.Node) -> None:
    first, second = (_dims(_data(node, place)) for place in (0, 1))
    rows = first[1 if integer(node, "transA") else 0]
    columns = second[0 if integer(node, "transB") else 1]
    write(context, node, 0, [rows, columns], _data(node).dtype)


def _blocked_product(context: Context, node: ir.Node) -> None:
    write(context, node, 0, [*_dims(_data(node))[:-1], node.attributes["N"].as_int()], _data(node).dtype)


def _as_standard(op: str, context: Context, node: ir.Node) -> None:
    """Apply the rule of an operator of ai.onnx that has the same inputs and attributes."""
    rule = registry.get("", op, context.get_opset_version(""))
    if rule is None:
        raise ValueError(f"{op} has no rule")
    rule(context, node)


def _quantized_pool(context: Context, node: ir.Node) -> None:
    if integer(node, "channels_last"):
        raise ValueError("the rule of AveragePool requires channels first")
    _as_standard("AveragePool", context, node)


def _quantized_global_pool(context: Context, node: ir.Node) -> None:
    dims = _dims(_data(node))
    spatial = range(1, len(dims) - 1) if integer(node, "channels_last") else range(2, len(dims))
    write(context, node, 0, [1 if axis in spatial else dim for axis, dim in enumerate(dims)], _data(node).dtype)


def _quantized_concat(context: Context, node: ir.Node) -> None:
    """Concatenate the tensors, which alternate with their scales and zero points."""
    parts = [_dims(value) for value in node.inputs[2::3] if value is not None]
    axis = node.attributes["axis"].as_int() % len(parts[0])
    total: Number | None = 0
    for part in parts:
        total = None if total is None else combine("Add", total, number(part[axis]))
    joined: Element = context.new_symbolic_dim() if total is None else element(total)
    write(context, node, 0, [*parts[0][:axis], joined, *parts[0][axis + 1 :]], _data(node, 1).dtype)


def _embed_layer_normalization(context: Context, node: ir.Node) -> None:
    ids, table = _dims(_data(node)), _data(node, 2)
    dims = [*ids, _dims(table)[-1]]
    write(context, node, 0, dims, table.dtype)
    write(context, node, 1, ids[:1], ir.DataType.INT32)
    write(context, node, 2, dims, table.dtype)


def _bias_split_gelu(context: Context, node: ir.Node) -> None:
    dims = _dims(_data(node))
    half = combine("Div", number(dims[-1]), 2)
    last: Element = context.new_symbolic_dim() if half is None else element(half)
    write(context, node, 0, [*dims[:-1], last], _data(node).dtype)


def _remove_padding(context: Context, node: ir.Node) -> None:
    """Write the outputs; the number of tokens left depends on the data."""
    dims = _dims(_data(node))
    more = combine("Add", number(dims[0]), 1)
    ends: Element = context.new_symbolic_dim() if more is None else element(more)
    write(context, node, 0, [context.new_symbolic_dim(), dims[2]], _data(node).dtype)
    made: list[list[Element]] = [dims[:2], [ends], [1]]
    for index, found in enumerate(made, 1):
        write(context, node, index, found, ir.DataType.INT32)


def _restore_padding(context: Context, node: ir.Node) -> None:
    write(context, node, 0, [*_dims(_data(node, 1)), _dims(_data(node))[-1]], _data(node).dtype)


def _dynamic_quantize_lstm(context: Context, node: ir.Node) -> None:
    """Write Y with [sequence, directions, batch, hidden], and Y_h and Y_c with [directions, batch, hidden]."""
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


_SAME = (
    *("BiasAdd", "BiasGelu", "BiasSoftmax", "FastGelu", "GatedAdd", "GatedRMSNorm", "Gelu", "GroupNorm", "Inverse"),
    *("MRotaryEmbedding", "MoE", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "QMoE", "QuickGelu"),
    *("RotaryEmbedding", "ScaledSiLU", "Trilu"),
)
"""Operators with the shape and type of their first input."""

_RULES: dict[str, Rule] = {
    **dict.fromkeys(_SAME, _same),
    "BiasSplitGelu": _bias_split_gelu,
    "DequantizeLinear": partial(_same, typed_by=1),
    "DynamicQuantizeLSTM": _dynamic_quantize_lstm,
    "DynamicQuantizeMatMul": _product,
    "EmbedLayerNormalization": _embed_layer_normalization,
    "FusedConv": partial(_as_standard, "Conv"),
    "FusedGemm": _gemm,
    "FusedMatMul": _product,
    "FusedMatMulActivation": _product,
    "GemmFastGelu": _product,
    "MatMulInteger16": partial(_product, dtype=ir.DataType.INT32),
    "MatMulIntegerToFloat": _scaled_product,
    "MatMulNBits": _blocked_product,
    "QLinearAdd": _elementwise((0, 3)),
    "QLinearAveragePool": _quantized_pool,
    "QLinearConcat": _quantized_concat,
    "QLinearGlobalAveragePool": _quantized_global_pool,
    "QLinearMul": _elementwise((0, 3)),
    "QLinearWhere": _elementwise((0, 1, 4), typed_by=1),
    "QuantizeLinear": _quantize,
    "RemovePadding": _remove_padding,
    "RestorePadding": _restore_padding,
    "SkipGroupNorm": _skip_group_norm,
    "SkipLayerNormalization": _skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": _skip_layer_normalization,
    "TransposeMatMul": _product,
}
