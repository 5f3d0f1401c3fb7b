"""Factors and shifts after linear layers and normalizations."""

from collections import deque

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._layers import Layer, affine, layer_above, shift_behind, take_in

OPERATORS = ("Add", "BatchNormalization", "Div", "Mul", "Neg", "Sub")


@graph_pass("fold-affine", parity=Parity.CLOSE)
def fold_affine(graph: Graph) -> None:
    """Fold constant factors and shifts of the channels of a layer into its weight and bias.

    A layer is a MatMul (with the Add of its bias), Gemm, Conv, ConvTranspose, or a normalization with its scale and
    bias. Right because each is linear in these constants: f·(W·x + b) + h is (f·W)·x + (f·b + h), with one f and h for
    each output channel or for all. What is folded is Add, Sub, Mul, Div, Neg or a BatchNormalization in inference; only
    the folded node may read the layer. Weights are computed in float64 and rounded once; a weight with other consumers
    is copied only if the file does not grow.

    Example:
        g (float[N,3] x) => (float[N,2] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}, float[2] gamma = {2, 3}> {
            t = MatMul(x, w)
            y = Mul(t, gamma)
        }
    """
    todo = deque(graph.nodes(*OPERATORS))
    while todo:
        node = todo.popleft()
        found = None if node.is_removed else _layer_in_front(node)
        if found is None:
            continue
        sites = len(graph.sites)
        with graph.site(node) as new:
            _fold(found, node, new)
        if len(graph.sites) > sites and not graph.sites[-1].skipped:
            todo.extend(found.result.consumers)


def _layer_in_front(node: Node) -> Layer | None:
    """Find the layer that a node changes by a constant, unless the node is itself the bias of a MatMul."""
    data = _data(node)
    layer = None if data is None else layer_above(data)
    is_bias = layer is not None and layer.node.op == "MatMul" and layer.add is None and node.op in ("Add", "Sub")
    return None if is_bias else layer


def _data(node: Node) -> Value | None:
    if node.op in ("BatchNormalization", "Neg"):
        return node.input(0)
    computed = [value for value in node.inputs if value is not None and not value.is_constant]
    return computed[0] if len(computed) == 1 and len(node.inputs) == 2 else None


def _fold(layer: Layer, node: Node, new: Builder) -> None:
    result = layer.result
    new.require(layer.node.scope is node.scope, "the chain crosses the boundary of a subgraph")
    new.require(not result.is_output and result.reads == 1, "the layer is read by others")
    change = affine(node)
    if change is None:
        return
    factor, shift = layer.by_channel(change.factor), layer.by_channel(change.shift)
    if layer.node.op == "MatMul" and layer.add is None and change.shifts:
        take_in(layer, factor, np.zeros(1), new)
        result = new.node("Add", result, new.constant(shift_behind(layer, shift), f"{layer.weight.name}_bias"))
    else:
        take_in(layer, factor, shift, new)
    for value in layer.values:
        new.changes(value)
    new.replace(node.outputs[0], result)
