"""Linear layers over the channels of images and sequences, next to a Transpose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._layers import Layer, layer_above
from ._shared import own_constant

ELEMENTWISE = {
    *("Abs", "Clip", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Relu", "Sigmoid"),
    *("Softplus", "Sqrt", "Tanh", "Add", "Div", "Mul", "Pow", "Sub"),
}
"""The operators of activations, on single elements and on pairs of elements."""

LONGEST = 16
"""Maximum depth of the nodes of an activation."""


@dataclass(frozen=True)
class Activation:
    """Elementwise nodes, in order, that compute one value from another."""

    entry: Value
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Step:
    """A layer and the activation computed from its result."""

    layer: Layer
    activation: Activation

    @property
    def channels(self) -> tuple[int, int]:
        """The numbers of input and output channels."""
        shape = self.layer.weight.static_shape or (0, 0)
        return shape[0], shape[1]


@graph_pass("matmul-to-conv", parity=Parity.CLOSE)
def matmul_to_conv(graph: Graph) -> None:
    """Turn a linear layer over the last axis next to a Transpose into a Conv with 1x1 kernels.

    Right because such a Conv computes W·x + b at each place, over axis 1 instead of the last axis: the Transpose moves
    to the other side of the layer, and the Add of the bias goes into the Conv. An activation in between is elementwise
    and is computed on the transposed tensor. Several layers with activations in between all become Convs, and one
    Transpose moves past all of them, unless it would then transpose more elements.

    Example:
        g (float[N,2,2,2] x) => (float[N,2,2,2] y) <float[2,2] w = {1, 2, 3, 4}, float[2] b = {1, 2}> {
            t = MatMul(x, w)
            a = Add(t, b)
            y = Transpose<perm = [0, 3, 1, 2]>(a)
        }
    """
    transposes = graph.nodes("Transpose")
    for transpose in transposes:
        if _to_channels_first(transpose):
            _move_up(transpose, graph)
    for matmul in graph.nodes("MatMul") if transposes else ():
        _move_down(matmul, graph)


def _rank(transpose: Node) -> int:
    return len(transpose.attr("perm") or [])


def _to_channels_first(transpose: Node) -> bool:
    rank = _rank(transpose)
    return rank in (3, 4, 5) and transpose.attr("perm") == [0, rank - 1, *range(1, rank - 1)]


def _to_channels_last(transpose: Node) -> bool:
    rank = _rank(transpose)
    return rank in (3, 4, 5) and transpose.attr("perm") == [0, *range(2, rank), 1]


def _move_up(transpose: Node, graph: Graph) -> None:
    """Move a Transpose before the layers that lead to it."""
    steps = _steps_above(transpose)
    while steps and steps[-1].channels[0] > steps[0].channels[1]:
        steps.pop()
    if not any(step.layer.add for step in steps):
        return
    with graph.site(transpose) as new:
        value = new.node("Transpose", steps[-1].layer.node.input(0), perm=transpose.attr("perm"))
        for step in reversed(steps):
            value = _convolve(step.layer, value, _rank(transpose), new)
            value = _activate(step.activation, value, new)
        new.replace(transpose.outputs[0], value)


def _move_down(matmul: Node, graph: Graph) -> None:
    """Move a Transpose from before a layer to after it."""
    readers = matmul.outputs[0].consumers
    layer = layer_above(readers[0].outputs[0]) if len(readers) == 1 and readers[0].op == "Add" else None
    activation = None if layer is None or layer.node != matmul else _activation(matmul.required_input(0), matmul)
    transpose = None if activation is None else activation.entry.producer
    if layer is None or layer.add is None or activation is None or transpose is None or transpose.op != "Transpose":
        return
    step = Step(layer, activation)
    if not _to_channels_last(transpose) or not _is_matrix(layer) or step.channels[1] > step.channels[0]:
        return
    with graph.site(layer.add) as new:
        private = set(activation.entry.consumers) <= {matmul, *activation.nodes} and not activation.entry.is_output
        new.require(private, "the transposed tensor is read by others")
        value = _activate(activation, transpose.required_input(0), new)
        value = _convolve(layer, value, _rank(transpose), new)
        new.replace(layer.result, new.node("Transpose", value, perm=transpose.attr("perm")))


def _steps_above(transpose: Node) -> list[Step]:
    """List the layers that lead only to a Transpose, the last one first."""
    steps: list[Step] = []
    value, reader = transpose.required_input(0), transpose
    while (activation := _activation(value, reader)) is not None:
        layer = layer_above(activation.entry)
        private = set(activation.entry.consumers) <= {reader, *activation.nodes} and not activation.entry.is_output
        if layer is None or not private or not _is_matrix(layer) or layer.node.scope is not transpose.scope:
            break
        steps.append(Step(layer, activation))
        value, reader = layer.node.required_input(0), layer.node
    return steps


def _is_matrix(layer: Layer) -> bool:
    return layer.node.op == "MatMul" and layer.weight.is_constant and len(layer.weight.static_shape or ()) == 2


def _activation(value: Value, reader: Node) -> Activation | None:
    """Find the elementwise nodes that compute the operand of a node; None if they start from several values."""
    order: list[Node] = []
    entries: dict[Value, None] = {}
    _climb(value, LONGEST, order, entries)
    inside = {reader, *order}
    private = all(set(node.outputs[0].consumers) <= inside and not node.outputs[0].is_output for node in order)
    return Activation(next(iter(entries)), tuple(order)) if len(entries) == 1 and private else None


def _climb(value: Value, longest: int, order: list[Node], entries: dict[Value, None]) -> None:
    """List the elementwise nodes upstream of a value in order, and collect the values from which they start."""
    node = value.producer
    if node is None or node.op not in ELEMENTWISE or longest == 0 or layer_above(value) is not None:
        entries[value] = None
    elif node not in order:
        for operand in node.inputs:
            if operand is not None and (operand.scalar is None or (operand.rank or 0) > 1):
                _climb(operand, longest - 1, order, entries)
        order.append(node)


def _convolve(layer: Layer, value: Value, rank: int, new: Builder) -> Value:
    """Build the Conv that computes a layer over axis 1."""
    new.require(new.target.computes("Conv", layer.weight.dtype), "runtimes do not compute Conv in this type")
    weight = own_constant(layer.weight, "the weight is not constant")
    ones = [1] * (rank - 2)
    kernel = new.constant(np.ascontiguousarray(weight.T).reshape(*weight.shape[::-1], *ones), layer.weight.name)
    return new.node("Conv", value, kernel, _bias(layer, new), kernel_shape=ones)


def _bias(layer: Layer, new: Builder) -> Value | None:
    if layer.add is None or layer.bias is None:
        return None
    bias = layer.by_channel(own_constant(layer.bias, "the bias is not constant"))
    if layer.bias.static_shape == layer.extents:  # a bias of shape [1] is broadcast by Add, never by Conv
        return layer.bias
    return new.constant(np.ascontiguousarray(np.broadcast_to(bias, layer.extents)), layer.bias.name)


def _activate(activation: Activation, value: Value, new: Builder) -> Value:
    """Compute an activation from another value."""
    made = {activation.entry: value}
    for node in activation.nodes:
        inputs = [None if operand is None else made.get(operand, operand) for operand in node.inputs]
        value = made[node.outputs[0]] = new.node(node.op, *inputs, attributes=node.attributes)
    return value
