"""Factors of attention scores."""

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from surgery import Builder, Graph, Node, Parity, Refusal, Value, graph_pass

from ._linear import Array, Linear, linear

LARGEST = 2.0**20
MOVES = {"Expand", "Neg", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}


@graph_pass("fold-attention-scale", parity=Parity.CLOSE)
def fold_attention_scale(graph: Graph) -> None:
    """Multiply the projection of the queries, or of the keys, by the factor that scales the attention scores.

    Right because a product of matrices is linear in each of them, and so is all that may stand between the factor
    and the projection: Transpose, Reshape, Slice, Concat, sums of parts that all carry the factor, and products
    with values that do not depend on the projection, as in rotary embeddings. The factor goes into weight and
    bias, computed in float64 and rounded once; a power of two changes no digit. In float16 it is left alone, for
    a small weight would lose digits. So is a factor whose way up is read elsewhere.

    Example:
        g (float[B,S,2] x, float[B,2,T] k) => (float[B,S,T] y) <float[2,2] w = {1, 2, 3, 4}, float c = {0.5}>
        {
            q = MatMul(x, w)
            s = MatMul(q, k)
            t = Mul(s, c)
            y = Softmax(t)
        }
    """
    for node in graph.nodes("Mul", "Div"):
        found = _scaled(node)
        if found is not None and _leads_to_scores(found[0], node.outputs[0]):
            with graph.site(node) as new:
                _fold(*found, node, new)


def _scaled(node: Node) -> tuple[Value, float] | None:
    """Return the value that a node multiplies by a number, and the number."""
    first, second = node.input(0), node.input(1)
    if first is None or second is None:
        return None
    value, factor = (second, first.scalar) if node.op == "Mul" and first.is_constant else (first, second.scalar)
    if not isinstance(factor, float) or factor == 0 or value.is_constant:
        return None
    return value, factor if node.op == "Mul" else 1 / factor


def _leads_to_scores(value: Value, scaled: Value) -> bool:
    """Tell whether the factor stands behind a product of two activations or on an operand of one."""
    producer = value.producer
    if producer is not None and producer.op == "MatMul":
        right = producer.input(1)
        if right is not None and not right.is_constant:
            return True
    for _ in range(4):
        readers = scaled.consumers
        if len(readers) != 1:
            return False
        if readers[0].op == "MatMul":
            return all(operand is not None and not operand.is_constant for operand in readers[0].inputs)
        scaled = readers[0].outputs[0]
        if readers[0].op not in MOVES:
            return False
    return False


def _fold(value: Value, factor: float, node: Node, new: Builder) -> None:
    new.require(1 / LARGEST <= abs(factor) <= LARGEST, "the factor is very large or very small")
    second = node.required_input(0) if node.required_input(1) == value else node.required_input(1)
    new.require(second.rank == 0 or (value.rank or 0) >= (second.rank or 0), "the factor may enlarge the result")
    layers = _layers_above(value, node)
    new.require(len({columns.layer.node for columns in layers}) == len(layers), "the factor meets a projection twice")
    for columns in layers:
        _require_own(columns.layer, new)
    for columns in layers:
        _multiply(columns, factor, new)
    new.replace(node.outputs[0], value)


@dataclass(frozen=True)
class Columns:
    """Some of the outputs of a layer."""

    layer: Linear
    which: slice


ALL = slice(None)


def _layers_above(value: Value, reader: Node) -> list[Columns]:
    """Find the projections that a factor behind `value` can go into; refuse when it can go nowhere."""
    producer = value.producer
    if producer is not None and producer.op == "MatMul" and linear(producer) is None:
        if value.is_output or value.consumers != [reader]:
            raise Refusal("what would carry the factor is read elsewhere too")
        try:
            return _climb(producer.required_input(0), producer)
        except Refusal:
            return _climb(producer.required_input(1), producer)
    return _climb(value, reader)


def _climb(start: Value, reader: Node) -> list[Columns]:
    """Walk up from a value that shall carry the factor, until each way ends in a projection."""
    inside, waiting, found = {reader}, [(start, ALL)], list[Columns]()
    while waiting:
        ready = [(v, which) for v, which in waiting if not v.is_output and set(v.consumers) <= inside]
        if not ready:
            raise Refusal("what would carry the factor is read elsewhere too")
        # The parts of a Split come last, when it is known whether all of them carry the factor.
        value, which = min(ready, key=lambda entry: entry[0].producer is not None and entry[0].producer.op == "Split")
        producer = value.producer
        if producer is None:
            raise Refusal("the factor meets no projection with constant weights")
        layer = _layer(value, producer)
        parts = [(part, ALL) for part in producer.outputs] if producer.op == "Split" else []
        whole = parts and which == ALL and all(part in ready for part in parts)
        done = parts if whole else [(value, which)]
        waiting = [entry for entry in waiting if entry not in done]
        if layer is not None:
            found.append(Columns(layer, which))
            continue
        inside.add(producer)
        above = [(producer.required_input(0), ALL)] if whole else _carriers(producer, value, which)
        waiting += [entry for entry in above if entry not in waiting]
    return found


def _layer(value: Value, producer: Node) -> Linear | None:
    candidates: list[Node | None] = [producer]
    if producer.op == "Add":
        candidates = [operand.producer for operand in producer.inputs if operand is not None]
    for node in candidates:
        layer = linear(node) if node is not None and node.op in ("MatMul", "Gemm") else None
        if layer is not None and layer.result == value:
            return layer
    return None


def _carriers(node: Node, value: Value, which: slice) -> list[tuple[Value, slice]]:
    """List the inputs that must carry a factor so that the output carries it."""
    inputs = [operand for operand in node.inputs if operand is not None]
    if which != ALL:
        return [(inputs[0], which)] if node.op == "Reshape" and _keeps_last(node) else _stuck()
    if node.op in MOVES:
        return [(inputs[0], ALL)]
    if node.op in ("Add", "Concat", "Sub"):
        return [(operand, ALL) for operand in inputs]
    if node.op == "Split":
        return [(inputs[0], _part(node, value))]
    if node.op in ("Div", "Mul"):
        whole = [operand for operand in inputs if not operand.is_constant and operand.shape == value.shape]
        return [(whole[0], ALL)] if whole and (node.op == "Mul" or whole[0] == inputs[0]) else _stuck()
    return _stuck()


def _part(node: Node, value: Value) -> slice:
    """Return where in the last dim the part lies that a Split gives out."""
    rank, axis = node.required_input(0).rank, node.attr("axis", 0)
    extents = [None if part.shape is None else part.shape[-1] for part in node.outputs]
    sizes = [extent for extent in extents if isinstance(extent, int)]
    if rank is None or axis % rank != rank - 1 or len(sizes) != len(extents):
        _stuck()
    place = value.output_index or 0
    return slice(sum(sizes[:place]), sum(sizes[: place + 1]))


def _keeps_last(node: Node) -> bool:
    before, after = node.required_input(0).shape, node.outputs[0].shape
    return bool(before and after and isinstance(before[-1], int) and before[-1] == after[-1])


def _stuck() -> NoReturn:
    raise Refusal("the factor meets no projection with constant weights")


def _require_own(layer: Linear, new: Builder) -> None:
    tensors = [layer.weight, *([] if layer.bias is None else [layer.bias])]
    own = all(len(tensor.ir.uses()) == 1 and not tensor.is_output for tensor in tensors)
    new.require(own, "the weight or the bias is read elsewhere too")
    dtype = layer.weight.dtype
    new.require(dtype is not None and dtype.name in ("FLOAT", "DOUBLE"), "the weight is neither float32 nor float64")


def _multiply(columns: Columns, factor: float, new: Builder) -> None:
    layer, which = columns.layer, columns.which
    node, adder = layer.node, layer.result.producer
    assert adder is not None
    turned = node.op == "Gemm" and node.attr("transB")
    weight = _times(layer.weight.constant, factor, (which,) if turned else (ALL, which))
    new.set_input(node, 1, new.constant(weight, layer.weight.name))
    if layer.bias is not None:
        position = next(place for place, operand in enumerate(adder.inputs) if operand == layer.bias)
        one = layer.bias.size == 1 and which != ALL
        bias = layer.biases if one else layer.bias.constant
        new.set_input(adder, position, new.constant(_times(bias, factor, (..., which)), layer.bias.name))


def _times(array: Array | None, factor: float, where: Any) -> Array:
    assert array is not None
    scaled = array.astype(np.float64)
    scaled[where] *= factor
    return scaled.astype(array.dtype)
