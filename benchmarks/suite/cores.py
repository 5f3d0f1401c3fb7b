"""Count the attentions of a model: unfused ones, and attention operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx

from suite import facts

Step = Callable[[onnx.NodeProto], Iterator[onnx.NodeProto]]

PRODUCTS = ("MatMul", "FusedMatMul", "TransposeMatMul", "Einsum", "Gemm")
SOFTMAX = ("Softmax", "BiasSoftmax")
FUSED = (
    "Attention",
    "MultiHeadAttention",
    "GroupQueryAttention",
    "DecoderMaskedMultiHeadAttention",
    "DecoderMaskedSelfAttention",
    "DecoderAttention",
    "PackedAttention",
    "PackedMultiHeadAttention",
    "QAttention",
    "SparseAttention",
    "PagedAttention",
    "QOrderedAttention",
    "RelPosAttention",
)
_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Tanh", "Max", "Min", "Clip", "Where", "IsNaN", "Cast", "Identity")
_MOVES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Concat", "Slice", "Pad")
_THROUGH = frozenset((*_ARITHMETIC, *_MOVES, "Dropout", "GatherElements"))
"""Operators allowed between the products and the softmax of an attention: masks, biases, caps, sinks, layouts."""


def written_out(model: onnx.ModelProto) -> int:
    """Count the softmaxes with a matrix product upstream and one downstream, and only `_THROUGH` in between."""
    return len(softmaxes(model))


def softmaxes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the softmaxes with a matrix product upstream and one downstream, and only `_THROUGH` in between."""
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output if name}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)

    def before(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        yield from (makers[name] for name in node.input if name in makers)

    def after(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        for name in node.output:
            yield from readers.get(name, ())

    return [
        node
        for node in graph.node
        if node.op_type in SOFTMAX and _meets(node, before) and _meets(node, after) and _weighs(node, after)
    ]


def _meets(start: onnx.NodeProto, step: Step) -> bool:
    seen, waiting = set(), [start]
    while waiting:
        for node in step(waiting.pop()):
            if node.op_type in PRODUCTS:
                return True
            if node.op_type in _THROUGH and id(node) not in seen:
                seen.add(id(node))
                waiting.append(node)
    return False


def _weighs(start: onnx.NodeProto, after: Step) -> bool:
    """Return whether no TopK reads the softmax: the softmax of an expert router weighs layers, not tokens."""
    return not any(node.op_type == "TopK" for node in after(start))


def fused(model: onnx.ModelProto) -> Counter[str]:
    """Count the attention operators by name."""
    counts = facts.operators(model)
    return Counter({name: count for (_, name), count in counts.items() if name in FUSED})


def of(path: Path) -> dict[str, object]:
    """Return the node count of a file, its unfused attentions, and its attention operators."""
    model = onnx.load(path, load_external_data=False)
    return {
        "nodes": facts.operators(model).total(),
        "written": written_out(model),
        "fused": dict(fused(model)),
    }
