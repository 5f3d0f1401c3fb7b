"""Linear layers with the same input, merged into one layer."""

from collections.abc import Hashable
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._linear import Linear, linear
from ._shared import split


@graph_pass("pack-matmuls", parity=Parity.CLOSE)
def pack_matmuls(graph: Graph) -> None:
    """Merge parallel linear layers of one input into one MatMul with concatenated weights, followed by Split.

    Right because each column of x·W is x times that column of W: the columns of [W1 W2] give x·W1 and x·W2 side
    by side. The biases are concatenated as well; a layer without a bias gets zeros if others have one. Gemms are
    packed in the same way if their factors are equal. Layers whose weights are also read by another node are not
    packed, because these weights would be stored twice.

    Layers are merged if that saves a node. Layers without biases are also merged if all their results are cut into
    heads, as the keys and values of cross attention are, because the heads can then be formed at once. The two products
    of a gated unit stay separate.

    Example:
        g (float[B,S,4] x) => (float[B,S,2] q, float[B,S,2] k)
        <float[4,2] w1 = {1,2,3,4,5,6,7,8}, float[2] b1 = {1,2}, float[4,2] w2 = {8,7,6,5,4,3,2,1}, float[2] b2 = {3,4}>
        {
            a = MatMul(x, w1)
            q = Add(a, b1)
            b = MatMul(x, w2)
            k = Add(b, b2)
        }
    """
    groups: dict[Hashable, list[Node]] = {}
    for node in graph.nodes("MatMul", "Gemm"):
        source = node.input(0)
        if source is not None and not source.is_constant and source.reads > 1:
            groups.setdefault((source, node.scope, *_factors(node)), []).append(node)
    for nodes in groups.values():
        layers = [layer for node in nodes if not node.is_removed and (layer := linear(node)) is not None]
        if len(layers) > 1:
            with graph.site(layers[0].node) as new:
                _pack(layers, new)


def _factors(node: Node) -> tuple[Hashable, ...]:
    """Return the operator and the attributes that layers must share to be packed."""
    if node.op == "MatMul":
        return (node.op,)
    attributes = node.attributes
    if any(attribute.is_ref() for attribute in attributes.values()):
        return (node.op, node)
    return (node.op, *(node.attr(name) for name in ("alpha", "beta", "transA", "transB")))


def _pack(layers: list[Linear], new: Builder) -> None:
    first = layers[0].node
    alone = all(layer.weight.reads == 1 and not layer.weight.is_output for layer in layers)
    new.require(alone, "a weight is read elsewhere too, and would be stored twice")
    new.require(_pays(layers), "no node would be saved")
    new.require(first.opset >= 11, "before opset 11 Split does not allow negative axes")
    source = first.required_input(0)
    biased = any(layer.bias is not None for layer in layers)
    biases = new.constant(np.concatenate([layer.biases for layer in layers]), "packed_bias") if biased else None
    arrays = [layer.weights for layer in layers]
    turned = first.op == "Gemm" and bool(first.attr("transB"))
    weights = new.joined([array.T for array in arrays] if turned else arrays, 0 if turned else 1, "packed_weight")
    if first.op == "Gemm":
        packed = new.node("Gemm", source, weights, biases, attributes=dict(first.attributes))
    else:
        packed = new.node("MatMul", source, weights)
        packed = packed if biases is None else new.node("Add", packed, biases)
    for layer, part in zip(layers, split(packed, -1, [layer.width for layer in layers], new, first.opset)):
        new.replace(layer.result, part)


def _pays(layers: list[Linear]) -> bool:
    adds = sum(layer.bias is not None and layer.node.op == "MatMul" for layer in layers)
    saved = len(layers) + adds - 2 - (adds > 0)
    return saved > 0 or all(_forms_heads(layer.result) for layer in layers)


def _forms_heads(value: Value) -> bool:
    """Return whether the only reader of a value is a Reshape followed by a Transpose."""
    readers: list[Any] = value.consumers
    return (
        len(readers) == 1
        and readers[0].op == "Reshape"
        and [node.op for node in readers[0].outputs[0].consumers] == ["Transpose"]
    )
