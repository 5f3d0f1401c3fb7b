"""Units of static quantization: an operator, its rounded operands, and its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from surgery import Node, Refusal, Value

from ._stored_weights import stored, untransposed

MOVING = frozenset(
    {
        *("DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Resize", "Slice"),
        *("SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Upsample"),
    }
)
"""Operators whose results are elements of their first input: integers pass through them with the same scale."""

CONNECTING = {
    "Add": None,
    "Mul": None,
    "Concat": None,
    "AveragePool": 1,
    "GlobalAveragePool": 1,
    "HardSigmoid": 1,
    "HardSwish": 1,
    "LeakyRelu": 1,
    "Sigmoid": 1,
}
"""Operators that ONNX Runtime computes in integers, but that are worth quantizing only between other quantized
operators, each with the number of inputs that are data."""


FEW_PRODUCTS = 2.0
"""Multiply-accumulates for each element of data and result below which a Conv is worth quantizing only next to another
quantized operator: converting its data and its result for it alone takes longer than computing it in float32."""


@dataclass(frozen=True)
class Unit:
    """One operator that is computed in integers.

    `data` are the positions of its computed operands, `weight` and `bias` those of its constants. `axis` is the axis of
    the weight that holds its output channels, and `channels` the channel axis of the data if it may have a bias.
    `result` is the value that is rounded afterwards, None if it may stay in float32; `tail` is the activation between
    the operator and its result, which only clips. `operands` are the operands at the time of reading, and `roots` the
    values whose elements they hold. `is_small` is whether it is a product that is quantized only if a neighbor is.
    """

    node: Node
    data: tuple[int, ...]
    weight: int | None = None
    bias: int | None = None
    axis: int | None = None
    channels: int | None = None
    result: Value | None = None
    tail: Node | None = None
    operands: tuple[Value, ...] = ()
    roots: tuple[Value, ...] = ()
    is_small: bool = False

    @property
    def is_connecting(self) -> bool:
        """Whether it is quantized only because its neighbors are."""
        return self.weight is None

    @property
    def rounded(self) -> list[Value]:
        """The values whose ranges are needed."""
        return [*self.roots, *([] if self.result is None else [self.result])]


def root(value: Value) -> Value:
    """Return the value whose elements a value holds, upstream of all nodes that only move them."""
    while (found := _moved(value)) is not None:
        value = found
    return value


def _moved(value: Value) -> Value | None:
    """Return the value whose elements the producer of a value moves; None if it computes new elements."""
    node = value.producer
    if node is None or node.op not in MOVING:
        return None
    if node.op in ("Resize", "Upsample") and node.attr("mode", "nearest") != "nearest":
        return None
    data = node.input(0)
    return None if data is None or data.is_constant or (value != node.outputs[0] and node.op != "Split") else data


def read(node: Node) -> Unit:
    """Return how an operator is quantized; refuse if it cannot be."""
    unit = _READERS.get(node.op, _connecting)(node)
    operands = tuple(node.required_input(position) for position in unit.data)
    for value in operands:
        _require_float(value)
    return replace(unit, operands=operands, roots=tuple(map(root, operands)))


def _require_float(value: Value) -> None:
    if value.dtype is None or value.dtype.name != "FLOAT":
        raise Refusal("an operand is not float32")


def _conv(node: Node) -> Unit:
    weight = _weight(node)
    bias = _bias(node)
    tail, result = _tail(node)
    few = _products(node, weight.static_shape or ()) < FEW_PRODUCTS
    return Unit(node, (0,), 1, bias, 0, 1, result, tail, is_small=few)


def _products(node: Node, weight: Sequence[int]) -> float:
    """Return the multiply-accumulates of a Conv for each element of its data and its result."""
    channels, group_channels, *kernel = weight
    stride = math.prod(node.attr("strides", [1] * len(kernel)))
    elements: int = group_channels * node.attr("group", 1) * stride + channels
    return channels * group_channels * math.prod(kernel) / elements


def _gemm(node: Node) -> Unit:
    weight = _weight(node)
    if node.attr("alpha", 1.0) != 1.0 or (node.input(2) is not None and node.attr("beta", 1.0) != 1.0):
        raise Refusal("alpha or beta of the Gemm is not 1")
    axis = 0 if node.attr("transB", 0) else 1
    bias = _bias(node)
    if bias is not None:
        shape = node.required_input(2).static_shape or ()
        if len(shape) > 2 or (shape and shape[-1] not in (1, (weight.static_shape or (0, 0))[axis])):
            raise Refusal("the bias is not one number for each column")
        if len(shape) == 2 and shape[0] != 1:
            raise Refusal("the bias is not one number for each column")
    return Unit(node, (0,), 1, bias, axis, 0 if node.attr("transA", 0) else 1)


def _matmul(node: Node) -> Unit:
    weight = _weight(node)
    if weight.rank != 2:
        raise Refusal("the weight is not a matrix")
    if (node.required_input(0).rank or 0) < 2:
        raise Refusal("the data is not known to be a matrix")
    return Unit(node, (0,), 1, None, 1)


def _weight(node: Node) -> Value:
    """Return the second operand of a product; refuse unless it, and not the first, is constant.

    It may be stored in float16, or transposed, and converted by the model.
    """
    data, weight = node.required_input(0), node.required_input(1)
    held = untransposed(weight) if node.op == "Conv" else stored(weight)[0]
    if not held.is_constant:
        raise Refusal("the second operand is not a constant weight")
    if stored(data)[0].is_constant:
        raise Refusal("both operands are constant; fold them first")
    if weight.dtype is None or weight.dtype.name != "FLOAT":
        raise Refusal("the weight is not float32")
    if not held.size:
        raise Refusal("the weight is empty")
    return weight


def _bias(node: Node) -> int | None:
    bias = node.input(2)
    if bias is not None and not untransposed(bias).is_constant:
        raise Refusal("the bias is not constant")
    return None if bias is None else 2


def _connecting(node: Node) -> Unit:
    count = CONNECTING[node.op]
    data = tuple(range(len(node.inputs) if count is None else count))
    if any(node.required_input(position).is_constant for position in data):
        raise Refusal("an operand is constant")
    tail, result = _tail(node)
    return Unit(node, data, result=result, tail=tail)


def _tail(node: Node) -> tuple[Node | None, Value]:
    """Return the Relu or Clip that is the only reader of a result, or None, and the value after it."""
    result = node.outputs[0]
    readers = result.consumers
    if len(readers) != 1 or result.is_output or readers[0].input(0) != result or readers[0].scope is not node.scope:
        return None, result
    return (None, result) if readers[0].bounds is None else (readers[0], readers[0].outputs[0])


_READERS: Mapping[str, Callable[[Node], Unit]] = {"Conv": _conv, "Gemm": _gemm, "MatMul": _matmul}

Operator = Literal[
    "Conv",
    "Gemm",
    "MatMul",
    "Add",
    "Mul",
    "Concat",
    "AveragePool",
    "GlobalAveragePool",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Sigmoid",
]
OPERATORS: tuple[Operator, ...] = get_args(Operator)


def connected(units: Mapping[Node, Unit]) -> set[Node]:
    """Return the nodes that are worth quantizing: products, and operators between others that are quantized.

    An operator between products is quantized if all its operands are in integers anyway and a quantized operator
    reads its result; a small product if one of both is the case.
    """
    kept = dict(units)
    while True:
        integer = {value for unit in kept.values() for value in _integer(unit)}
        wanted = {value for unit in kept.values() for value in unit.roots}
        lost = [node for node, unit in kept.items() if not _pays(unit, integer, wanted)]
        if not lost:
            return set(kept)
        for node in lost:
            del kept[node]


def _pays(unit: Unit, integer: Container[Value], wanted: Container[Value]) -> bool:
    """Return whether a unit is worth quantizing, given the values in integers and those that are read as integers."""
    if not (unit.is_connecting or unit.is_small):
        return True
    sides = (unit.result in wanted, all(value in integer for value in unit.roots))
    return all(sides) if unit.is_connecting else any(sides)


def _integer(unit: Unit) -> Iterator[Value]:
    """Yield the values that are in integers when a unit is quantized."""
    if unit.result is not None:
        yield unit.result
    if not (unit.is_connecting or unit.is_small):
        yield from unit.roots


def ranges_of(units: Iterable[Unit]) -> list[Value]:
    """List the values whose ranges are needed, each once."""
    return list(dict.fromkeys(value for unit in units for value in unit.rounded))
