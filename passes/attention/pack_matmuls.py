"""Linear layers of one input as one layer."""

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
    by side. The biases go side by side as well; a layer without one among layers with biases gets zeros. Gemms
    are packed alike when their factors are the same. Weights that another node reads too stay, for they would be
    stored twice.

    It is done where it saves a node, and for two layers without biases where the heads of both are then formed at
    once, as in the keys and values of cross attention. The two products of a gated unit stay two.

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
    """Return what Gemms must agree in to be packed."""
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
    weights = np.concatenate([layer.weights for layer in layers], axis=1)
    if first.op == "Gemm":
        turned = bool(first.attr("transB"))
        packed = new.node(
            "Gemm",
            source,
            new.constant(weights.T if turned else weights, "packed_weight"),
            biases,
            attributes=dict(first.attributes),
        )
    else:
        packed = new.node("MatMul", source, new.constant(weights, "packed_weight"))
        packed = packed if biases is None else new.node("Add", packed, biases)
    for layer, part in zip(layers, split(packed, -1, [layer.width for layer in layers], new, first.opset)):
        new.replace(layer.result, part)


def _pays(layers: list[Linear]) -> bool:
    adds = sum(layer.bias is not None and layer.node.op == "MatMul" for layer in layers)
    saved = len(layers) + adds - 2 - (adds > 0)
    return saved > 0 or all(_forms_heads(layer.result) for layer in layers)


def _forms_heads(value: Value) -> bool:
    """Return whether all that reads a value is a Reshape in front of a Transpose."""
    readers: list[Any] = value.consumers
    return (
        len(readers) == 1
        and readers[0].op == "Reshape"
        and [node.op for node in readers[0].outputs[0].consumers] == ["Transpose"]
    )
