"""Factors and shifts in front of linear layers."""

from collections import deque

import numpy as np

from surgery import Builder, Graph, Node, Parity, Refusal, Value, graph_pass

from ._layers import ELEMENTWISE, Affine, Layer, affine, fit_weight, layer_above, take_in
from ._shared import ROUNDOFF, Array, own_constant, wide

OPERATORS = (*ELEMENTWISE, "BatchNormalization")
READERS = ("Conv", "Gemm", "MatMul")
RESHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
LONGEST = 4
"""Factors and shifts in a row that are looked past to tell an idiom."""


@graph_pass("fold-affine-before", parity=Parity.CLOSE)
def fold_affine_before(graph: Graph) -> None:
    """Fold what multiplies or shifts the input channels of a MatMul, Gemm or Conv by constants into its weight.

    Right because W·(f·x + h) + b is (W·f)·x + (W·h + b), with one f and h for each input channel or for all. A
    shift needs a bias to go into, and a Conv that does not pad: its zeros would not be shifted. All readers must be
    such layers. What is folded is Add, Sub, Mul, Div, Neg or a BatchNormalization in inference, but not the last
    factor of an activation or a normalization: runtimes compute those in one kernel.

    Example:
        g (float[N,1,4] x) => (float[N,1,4] y)
        <float[1] s = {3}, float[1] shift = {1}, float[1] mean = {0.5}, float[1] var = {2}, float[1,1,1] w = {2}> {
            n = BatchNormalization(x, s, shift, mean, var)
            y = Conv(n, w)
        }
    """
    todo = deque(graph.nodes(*OPERATORS))
    while todo:
        node = todo.popleft()
        readers = [] if node.ir.graph is None else node.outputs[0].consumers
        if readers and all(_reads_first(reader, node.outputs[0]) for reader in readers):
            with graph.site(node) as new:
                change = affine(node)
                if change is not None:
                    _fold(change, readers, new)
                    todo.extend(filter(None, [change.data.producer]))


def _reads_first(reader: Node, value: Value) -> bool:
    places = [place for place, operand in enumerate(reader.inputs) if operand == value]
    return reader.op in READERS and places == [0]


def _fold(change: Affine, readers: list[Node], new: Builder) -> None:
    value = change.node.outputs[0]
    new.require(not value.is_output, "the value in front of the layer is an output")
    new.require(
        all(reader.scope is change.node.scope for reader in readers), "the chain crosses the boundary of a subgraph"
    )
    new.require(not _ends_an_idiom(change.data), "the factor belongs to an activation or a normalization")
    new.require(value.shape is not None and value.shape == change.data.shape, "the constant may enlarge the result")
    for reader in readers:
        _take_in(change, reader, new)
        new.set_input(reader, 0, change.data)


def _ends_an_idiom(data: Value) -> bool:
    """Tell whether a value comes from a product or a quotient of computed values, as in Gelu and in RMSNorm."""
    for _ in range(LONGEST):
        producer = data.producer
        if producer is not None and producer.op in RESHAPES:
            data = producer.required_input(0)
            continue
        if producer is None or producer.op not in ELEMENTWISE:
            return False
        computed = [value for value in producer.inputs if value is not None and not value.is_constant]
        if len(computed) != 1:
            return producer.op in ("Div", "Mul")
        data = computed[0]
    return False


def _take_in(change: Affine, reader: Node, new: Builder) -> None:
    layer = Layer(reader)
    weight = own_constant(layer.weight, "the weight is not constant")
    new.require(weight.ndim >= 2 and weight.dtype.name in ROUNDOFF, "the weight is no floating-point matrix")
    new.require(reader.op != "Gemm" or not reader.attr("transA"), "the channels of the input are its rows")
    if change.scales:
        scaled = fit_weight(reader, weight, _by_input(change.factor, reader, weight))
        new.set_input(reader, 1, new.constant(scaled, layer.weight.name))
    if change.shifts:
        new.require(reader.op != "Conv" or _pads_nothing(reader), "the zeros that the Conv pads with are not shifted")
        new.require(reader.op == "Conv" or weight.ndim == 2, "a stack of weights would need a stack of biases")
        with np.errstate(all="ignore"):
            sums = _sums(reader, wide(weight) * _by_input(change.shift, reader, weight))
        alpha = reader.attr("alpha", 1.0) if reader.op == "Gemm" else 1.0
        shifted = _with_bias(layer)
        take_in(shifted, np.ones(1), alpha * sums, new)
        if shifted.add is not None:
            new.changes(reader.outputs[0])


def _by_input(array: Array, reader: Node, weight: Array) -> Array:
    """Arrange an operand that is broadcast to the input like the input channels of the weight."""
    if array.size == 1:
        return array.reshape(())
    group = reader.attr("group") if reader.op == "Conv" else 1
    is_rows = reader.op == "MatMul" or (reader.op == "Gemm" and not reader.attr("transB"))
    channels = weight.shape[-2 if is_rows else 1] * group
    spatial = weight.ndim - 2 if reader.op == "Conv" else 0
    if array.ndim <= spatial or array.shape[-1 - spatial] != array.size or array.size != channels:
        raise Refusal("the constant is not one number for each channel")
    if is_rows:
        return array.reshape(-1, 1)
    if reader.op == "Gemm":
        return array.reshape(1, -1)
    return array.reshape(group, -1).repeat(weight.shape[0] // group, axis=0).reshape(*weight.shape[:2], *[1] * spatial)


def _sums(reader: Node, weight: Array) -> Array:
    """Add up the elements of a weight for each output channel."""
    is_rows = reader.op == "MatMul" or (reader.op == "Gemm" and not reader.attr("transB"))
    sums: Array = np.sum(weight if is_rows else weight.reshape(weight.shape[0], -1).T, axis=0)
    return sums


def _with_bias(layer: Layer) -> Layer:
    """Take the Add of a bias behind a MatMul along."""
    readers = layer.node.outputs[0].consumers
    behind = layer_above(readers[0].outputs[0]) if layer.node.op == "MatMul" and len(readers) == 1 else None
    return behind if behind is not None and behind.node == layer.node else layer


def _pads_nothing(conv: Node) -> bool:
    return conv.attr("auto_pad", "NOTSET") in ("NOTSET", "VALID") and not any(conv.attr("pads", [0]))
