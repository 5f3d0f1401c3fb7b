"""Shape rules for the attention operators of com.microsoft.

Source: ONNX Runtime's `docs/ContribOperators.md`, and the input checks of the kernels (`multihead_attention_helper.h`,
`group_query_attention_helper.h`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from surgery.model.shapes.symbols import Element, combine, element, number

if TYPE_CHECKING:
    from surgery.model.shapes.context import Context

Rule = Callable[["Context", ir.Node], None]


def _value(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _dims(node: ir.Node, index: int, rank: int | None = None) -> list[Element] | None:
    """Return the dims of an input, None if it is absent; the rule gives up if they are not known."""
    value = _value(node, index)
    if value is None:
        return None
    if value.shape is None or (rank is not None and len(value.shape) != rank):
        raise ValueError(f"the shape of input {index} is not known")
    return list(value.shape)


def _known(node: ir.Node, index: int, rank: int | None = None) -> list[Element]:
    dims = _dims(node, index, rank)
    if dims is None:
        raise ValueError(f"{node.op_type} has no input {index}")
    return dims


def integer(node: ir.Node, name: str, default: int = 0) -> int:
    """Return an attribute of a node, or its default."""
    return node.attributes[name].as_int() if name in node.attributes else default


def _computed(context: Context, operation: str, one: Element, other: Element) -> Element:
    found = combine(operation, number(one), number(other))
    fresh: Element = context.new_symbolic_dim() if found is None else element(found)
    return fresh


def write(context: Context, node: ir.Node, index: int, dims: Sequence[Element], dtype: ir.DataType | None) -> None:
    """Write one output, if the node has it."""
    if index < len(node.outputs):
        context.set_shape_and_dtype(node.outputs[index], ir.Shape(list(dims)), dtype)


def _dtype(node: ir.Node, index: int = 0) -> ir.DataType | None:
    value = _value(node, index)
    return None if value is None else value.dtype


def _attention(context: Context, node: ir.Node) -> None:
    """Take a third of the width of the weights as hidden size, unless it is given; past and present are one tensor."""
    quantized = node.op_type == "QAttention"
    batch, length, _ = _known(node, 0, 3)
    width = _known(node, 1, 2)[1]
    heads = integer(node, "num_heads")
    sizes = list(node.attributes["qkv_hidden_sizes"].as_ints()) if "qkv_hidden_sizes" in node.attributes else []
    hidden: Element = sizes[2] if sizes else _computed(context, "Div", width, 3)
    kind = _dtype(node, 2 if quantized else 0)
    write(context, node, 0, [batch, length, hidden], kind)
    past = _dims(node, 8 if quantized else 4, 5)
    if past is not None and integer(node, "past_present_share_buffer"):
        write(context, node, 1, past, kind)
        return
    total = length if past is None else _computed(context, "Add", past[3], length)
    size = _computed(context, "Div", hidden, heads)
    write(context, node, 1, [2, batch, heads, total, size], kind)


def _multi_head_attention(context: Context, node: ir.Node) -> None:
    """Handle packed queries, keys and values of rank five, and keys and values of rank four with separate heads."""
    query, heads = _known(node, 0), integer(node, "num_heads")
    key, value = _dims(node, 1), _dims(node, 2)
    kind = _dtype(node)
    size = query[4] if len(query) == 5 else _computed(context, "Div", query[2], heads)
    hidden = _computed(context, "Mul", size, heads) if len(query) == 5 else query[2]
    length = query[1] if key is None else key[2] if len(key) == 4 else key[1]
    if value is not None:
        hidden = _computed(context, "Mul", value[3], heads) if len(value) == 4 else value[2]
    past = _dims(node, 6, 4)
    shares = _value(node, 8) is not None
    total = length if past is None else past[2] if shares else _computed(context, "Add", past[2], length)
    write(context, node, 0, [query[0], query[1], hidden], kind)
    write(context, node, 1, [query[0], heads, total, size], kind)
    write(context, node, 2, [query[0], heads, total, _computed(context, "Div", hidden, heads)], kind)
    if not shares:
        write(context, node, 3, [query[0], heads, query[1], total], kind)


def _decoder_attention(context: Context, node: ir.Node) -> None:
    """Handle one new position; keys of rank four belong to another sequence, to which nothing is added."""
    batch, length, width = _known(node, 0, 3)
    key, value, heads, kind = _dims(node, 1), _dims(node, 2), integer(node, "num_heads"), _dtype(node)
    if value is None:
        hidden = _computed(context, "Div", width, 3)
    else:
        hidden = _computed(context, "Mul", value[3], heads) if len(value) == 4 else value[2]
    write(context, node, 0, [batch, length, hidden], kind)
    past = _dims(node, 5, 4)
    if past is None or (key is not None and len(key) == 4):
        return
    shares = bool(integer(node, "past_present_share_buffer"))
    total = past[2] if shares else _computed(context, "Add", past[2], length)
    for index, place in ((1, 5), (2, 6)):
        held = _known(node, place, 4)
        write(context, node, index, [*held[:2], total, held[3]], kind)


def _group_query_attention(context: Context, node: ir.Node) -> None:
    """Make present as long as the longest sequence, or as a larger buffer for past and present.

    A cache of the size of a window keeps its length.
    """
    batch, length, width = _known(node, 0, 3)
    heads, groups = integer(node, "num_heads"), integer(node, "kv_num_heads")
    packed = _value(node, 1) is None
    size = _computed(context, "Div", width, heads + 2 * groups if packed else heads)
    hidden = _computed(context, "Mul", size, heads) if packed else width
    write(context, node, 0, [batch, length, hidden], _dtype(node))
    past = _dims(node, 3, 4)
    present = _present_length(context, node, None if past is None else past[2])
    held = size if past is None else past[3]
    kind = _dtype(node) if past is None else _dtype(node, 3)
    for index in (1, 2):
        write(context, node, index, [batch, groups, present, held], kind)
    total = _total_length(context, node)
    if total is not None:
        write(context, node, 3, [batch, heads, length, total], _dtype(node))


def _total_length(context: Context, node: ir.Node) -> Element | None:
    total = _value(node, 6)
    elements = None if total is None else context.get_symbolic_value(total)
    return elements[0] if elements and len(elements) == 1 else None


def _present_length(context: Context, node: ir.Node, past: Element | None) -> Element:
    total = _total_length(context, node)
    if past is not None and integer(node, "sliding_window_cache"):
        return past
    fresh: Element = context.new_symbolic_dim()
    if total is None or context.is_wild(total):
        return fresh
    return total if past is None else _computed(context, "Max", total, past)


def _packed_attention(context: Context, node: ir.Node) -> None:
    """Handle the rows of several sequences, one after the other without padding."""
    sizes = list(node.attributes["qkv_hidden_sizes"].as_ints()) if "qkv_hidden_sizes" in node.attributes else []
    width = _known(node, 1, 2)[1]
    hidden: Element = sizes[2] if sizes else _computed(context, "Div", width, 3)
    write(context, node, 0, [_known(node, 0, 2)[0], hidden], _dtype(node))


def _packed_multi_head_attention(context: Context, node: ir.Node) -> None:
    query, value = _known(node, 0), _dims(node, 2)
    if value is not None:
        hidden = value[1]
    else:
        hidden = _computed(context, "Mul", query[1], query[3]) if len(query) == 4 else query[1]
    write(context, node, 0, [query[0], hidden], _dtype(node))


def _gated_relative_position_bias(context: Context, node: ir.Node) -> None:
    """Write a score for each query with each key, for all sequences, each as long as the longest."""
    heads = integer(node, "num_heads")
    offsets = _dims(node, 6, 2)
    batch, length = _known(node, 0, 3)[:2] if offsets is None else offsets
    write(context, node, 0, [batch, heads, length, length], _dtype(node))


def _relative_position_bias(context: Context, node: ir.Node) -> None:
    """Read the lengths from scalar inputs."""
    heads = _known(node, 0, 2)[1]
    lengths = [_value(node, index) for index in (1, 2)]
    elements = [None if value is None else context.get_symbolic_value(value) for value in lengths]
    extents = [
        found[0] if found and len(found) == 1 and not context.is_wild(found[0]) else context.new_symbolic_dim()
        for found in elements
    ]
    write(context, node, 0, [1, heads, *extents], _dtype(node))


RULES: dict[str, Rule] = {
    "Attention": _attention,
    "DecoderMaskedMultiHeadAttention": _decoder_attention,
    "GatedRelativePositionBias": _gated_relative_position_bias,
    "GroupQueryAttention": _group_query_attention,
    "MultiHeadAttention": _multi_head_attention,
    "PackedAttention": _packed_attention,
    "PackedMultiHeadAttention": _packed_multi_head_attention,
    "QAttention": _attention,
    "RelativePositionBias": _relative_position_bias,
}
