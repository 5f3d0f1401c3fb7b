"""Projections of queries, keys and values fused into ONNX Runtime's attention operator."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._core import only_reader
from ._linear import Array, Linear, linear

OPERATOR = "com.microsoft::Attention"
GROUPED = "com.microsoft::GroupQueryAttention"


@graph_pass("fuse-packed-attention", parity=Parity.CLOSE)
def fuse_packed_attention(graph: Graph) -> None:
    """Fuse an attention and the projections of one tensor before it into com.microsoft::Attention.

    Right because that operator multiplies its input by the concatenated weights of queries, keys and values, adds their
    biases, and continues like MultiHeadAttention, with the same mask, scale and Softmax (in ONNX Runtime 1.32,
    attention.cc calls the same code as multihead_attention.cc). The projections may be one product followed by a Split,
    or three products. Attentions with keys and values of earlier runs are refused, because the kernel does not accept
    them together with a mask.

    The standard operator Attention is fused too if it has no mask, or only hides future keys (`is_causal`). For a
    query whose keys are all masked it gives zeros, and the kernel of com.microsoft::Attention does not.

    com.microsoft::GroupQueryAttention reads queries, keys and values from one tensor instead of the parts that a Split
    cuts it into.

    Example:
        # target: ort-cpu
        <ir_version: 10, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[B,S,2] x) => (float[B,S,2] y)
        <float[2,2] wq = {1, 2, 3, 4}, float[2,2] wk = {2, 1, 4, 3}, float[2,2] wv = {4, 3, 2, 1}>
        {
            q = MatMul(x, wq)
            k = MatMul(x, wk)
            v = MatMul(x, wv)
            y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v)
        }
    """
    for node in graph.nodes("com.microsoft::MultiHeadAttention", "Attention"):
        with graph.site(node) as new:
            _fuse(node, new)
    for node in graph.nodes(GROUPED):
        with graph.site(node) as new:
            _pack(node, new)


@dataclass(frozen=True)
class Projection:
    """The columns from `low` to `high` of a linear layer over `source`."""

    source: Value
    layer: Linear
    low: int
    high: int

    @property
    def weights(self) -> Array:
        """The columns of the weight."""
        return self.layer.weights[:, self.low : self.high]

    @property
    def biases(self) -> Array:
        """The biases of these columns; zeros without a bias."""
        return self.layer.biases[self.low : self.high]


@dataclass(frozen=True)
class Form:
    """What an attention has besides queries, keys and values; each may be absent."""

    attributes: Mapping[str, Any]
    biases: Value | None = None
    padding: Value | None = None
    added: Value | None = None


def _fuse(node: Node, new: Builder) -> None:
    new.require_operator(OPERATOR, node.outputs[0])
    form = _standard(node, new) if node.op == "Attention" else _contrib(node, new)
    parts = [_projection(node, place, new) for place in range(3)]
    new.require(
        len({part.source for part in parts}) == 1, "queries, keys and values are projections of several tensors"
    )
    widths = [part.high - part.low for part in parts]
    weights = new.joined([part.weights for part in parts], 1, "packed_weight")
    biases = new.constant(_biases(form.biases, parts, new), "packed_bias")
    sizes = {"qkv_hidden_sizes": widths} if len(set(widths)) > 1 else {}
    inputs = (parts[0].source, weights, biases, form.padding, None, form.added)
    new.replace(node.outputs[0], new.node(OPERATOR, *inputs, attributes={**form.attributes, **sizes}))


def _contrib(node: Node, new: Builder) -> Form:
    """Read com.microsoft::MultiHeadAttention."""
    _require_no_state(node, range(6, 10), new)
    padding = node.input(4)
    new.require(padding is None or padding.rank in (2, 3), "the padding is given by lengths")
    names = ("num_heads", "scale", "mask_filter_value", "unidirectional")
    attributes = {name: node.attr(name) for name in names if node.has_attr(name)}
    return Form(attributes, node.input(3), padding, node.input(5))


def _standard(node: Node, new: Builder) -> Form:
    """Read Attention of the standard."""
    _require_no_state(node, range(4, 7), new)
    new.require(node.input(3) is None, "a mask may hide all keys of a query, for which Attention gives zeros")
    count = node.attr("q_num_heads")
    new.require(count and count == node.attr("kv_num_heads"), "queries, keys and values are not cut into as many heads")
    known = {"q_num_heads", "kv_num_heads", "scale", "is_causal", "qk_matmul_output_mode"}
    others = [name for name in node.attributes if name not in known and node.attr(name) != 0]
    new.require(not others, "the attention caps its scores, or has another option that the operator lacks")
    scale = {"scale": node.attr("scale")} if node.has_attr("scale") else {}
    causal = {"unidirectional": 1} if node.attr("is_causal") else {}
    return Form({"num_heads": count, **scale, **causal})


def _pack(node: Node, new: Builder) -> None:
    """Let GroupQueryAttention read what a Split cuts into queries, keys and values, in this order."""
    new.require(node.input(1) is not None, "queries, keys and values are packed")
    parts = [node.required_input(place) for place in range(3)]
    cut = parts[0].producer
    split = cut is not None and cut.op == "Split" and cut.outputs == parts and cut.attr("axis", 0) in (2, -1)
    new.require(split, "queries, keys and values are not parts of one tensor")
    assert cut is not None
    alone = all(only_reader(part) is not None for part in parts)
    new.require(alone, "a part of the packed tensor is read elsewhere too")
    new.set_input(node, 0, cut.required_input(0))
    for place in (1, 2):
        new.set_input(node, place, None)


def _require_no_state(node: Node, states: range, new: Builder) -> None:
    kept = any(node.input(place) is not None for place in states) or any(one.is_used for one in node.outputs[1:])
    new.require(not kept, "the attention keeps keys and values, or returns its scores")


def _projection(node: Node, place: int, new: Builder) -> Projection:
    """Read the layer that queries, keys or values come from."""
    value = node.input(place)
    reader = None if value is None else value.producer
    new.require(reader is not None, "queries, keys and values are not computed by linear layers")
    assert value is not None and reader is not None
    readers = {node}
    low, high = 0, _width(value)
    if reader.op == "Split" and reader.attr("axis", 0) in (2, -1):
        new.require(all(set(one.consumers) <= readers for one in reader.outputs), "a projection is read elsewhere too")
        low = sum(_width(one) for one in reader.outputs[: value.output_index])
        value, high, readers = reader.required_input(0), low + high, {reader}
    layer, source = _layer(value)
    fits = layer is not None and 0 <= low < high <= layer.width and value.rank == 3
    new.require(fits, "queries, keys and values are not computed by linear layers")
    assert layer is not None
    alone = layer.weight.reads == 1 and not layer.weight.is_output
    new.require(alone, "a weight is read elsewhere too, and would be stored twice")
    new.require(set(value.consumers) <= readers and not value.is_output, "a projection is read elsewhere too")
    return Projection(source, layer, low, high)


def _layer(value: Value) -> tuple[Linear | None, Value]:
    """Return the layer that computes a value, and its input: a MatMul with or without a bias, or a Gemm of all rows."""
    node = value.producer
    operands = [] if node is None else [node] if node.op == "MatMul" else [one.producer for one in node.inputs if one]
    for product in operands:
        found = linear(product) if product is not None and product.op == "MatMul" else None
        if found is not None and found.result == value:
            return found, found.node.required_input(0)
    gemm = None if node is None or node.op != "Reshape" else node.required_input(0).producer
    if gemm is None or gemm.op != "Gemm" or only_reader(gemm.outputs[0]) is None:
        return None, value
    return _of_rows(gemm, value)


def _of_rows(gemm: Node, value: Value) -> tuple[Linear | None, Value]:
    """Return the layer that a Gemm applies to each row of a tensor, and the tensor, if `value` has its leading dims."""
    found, rows = linear(gemm), gemm.required_input(0).producer
    plain = all(gemm.attr(name) == 1 for name in ("alpha", "beta")) and not gemm.attr("transA")
    source = None if rows is None or rows.op != "Reshape" else rows.required_input(0)
    before, after = None if source is None else source.shape, value.shape
    if found is None or not plain or source is None or before is None or after is None or len(before) != 3:
        return None, value
    alike = None not in before and before[:2] == after[:2] and before[2] == found.weights.shape[0]
    return (found, source) if alike else (None, value)


def _width(value: Value) -> int:
    extents = value.shape
    width = None if extents is None else extents[-1]
    return width if isinstance(width, int) else -(1 << 30)


def _biases(given: Value | None, parts: list[Projection], new: Builder) -> Array:
    own = np.concatenate([part.biases for part in parts])
    new.require(given is None or given.is_constant, "the bias is computed")
    added = None if given is None else given.constant
    return own if added is None else np.asarray(own + added, own.dtype)
