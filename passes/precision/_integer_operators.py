"""Operators without products between DequantizeLinear and QuantizeLinear, as operators on integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from surgery import Builder, Node

from ._floats import MOVES
from ._integer_products import Integers, multiply
from ._integers import integer_type
from ._quantized import Quantized, one, operand, rounded

CONTRIB = "com.microsoft::QLinear"

_POOL = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")

_BYTES_IN_POOLS = 12
"""The first opset in which MaxPool computes integers."""


def _connect(node: Node, data: list[Quantized], attributes: dict[str, Any], integers: Integers, new: Builder) -> None:
    """Write an operator of com.microsoft that reads a tensor, a scale and a zero point for each operand."""
    op = f"{CONTRIB}{node.op}"
    new.require_operator(op, data[0].integers)
    found = _result(node, data, new)
    inputs = [value for given in data for value in integers.triple(node, given, new)]
    found.replace(new.node(op, *inputs, *integers.result(node, found, new), attributes=attributes), new)


def _result(node: Node, data: list[Quantized], new: Builder) -> Any:
    new.require(len({given.kind for given in data}) == 1, "the operands have different types")
    return rounded(node, data[0].kind)


def _binary(node: Node, integers: Integers, new: Builder) -> None:
    _connect(node, [one(operand(node, position)) for position in (0, 1)], {}, integers, new)


def _unary(*names: str) -> Callable[[Node, Integers, Builder], None]:
    """Return the rule of an operator of one operand with these attributes."""

    def rule(node: Node, integers: Integers, new: Builder) -> None:
        attributes = {name: node.attr(name) for name in names if node.has_attr(name)}
        _connect(node, [one(operand(node, 0))], attributes, integers, new)

    return rule


def _pool(node: Node, integers: Integers, new: Builder) -> None:
    new.require(all(step == 1 for step in node.attr("dilations") or ()), "the pool has gaps")
    _unary(*_POOL)(node, integers, new)


def _softmax(node: Node, integers: Integers, new: Builder) -> None:
    """Write QLinearSoftmax, whose axis has the meaning that it has at an opset given by an attribute."""
    data = one(operand(node, 0))
    axis = int(node.attr("axis", -1))
    given = rounded(node, data.kind).given
    low = integer_type(given.kind).low
    new.require(given.scales[0] == 2**-8 and given.points[0] == low, "the integers of the Softmax are not 1/256 each")
    _connect(node, [data], {"axis": axis, "opset": node.opset}, integers, new)


def _concat(node: Node, integers: Integers, new: Builder) -> None:
    data = [one(operand(node, position)) for position in range(len(node.inputs))]
    found = _result(node, data, new)
    if all(given.same_as(found.given) for given in data):
        found.replace(new.node("Concat", *(given.integers for given in data), axis=node.attr("axis")), new)
        return
    new.require_operator(f"{CONTRIB}Concat", data[0].integers)
    inputs = [value for given in data for value in integers.triple(node, given, new)]
    made = new.node(f"{CONTRIB}Concat", *integers.result(node, found, new), *inputs, axis=node.attr("axis"))
    found.replace(made, new)


def _where(node: Node, integers: Integers, new: Builder) -> None:
    data = [one(operand(node, position)) for position in (1, 2)]
    found = _result(node, data, new)
    condition = node.required_input(0)
    if all(given.same_as(found.given) for given in data):
        found.replace(new.node("Where", condition, *(given.integers for given in data)), new)
        return
    new.require_operator(f"{CONTRIB}Where", data[0].integers)
    inputs = [value for given in data for value in integers.triple(node, given, new)]
    found.replace(new.node(f"{CONTRIB}Where", condition, *inputs, *integers.result(node, found, new)), new)


def _move(node: Node, integers: Integers, new: Builder) -> None:
    """Move integers instead of floats, if they mean the same afterwards."""
    data = one(operand(node, 0))
    new.require(not node.outputs[1:], "the operator has several outputs")
    new.require(node.op != "MaxPool" or node.opset >= _BYTES_IN_POOLS, "before opset 12 MaxPool has no integers")
    found = rounded(node, data.kind)
    new.require(found.given.same_as(data), "elements that are only moved get another scale")
    found.replace(new.node(node.op, data.integers, *node.inputs[1:], attributes=node.attributes), new)


RULES: dict[str, Callable[[Node, Integers, Builder], None]] = {
    **dict.fromkeys(("Conv", "Gemm", "MatMul"), multiply),
    **dict.fromkeys(("Add", "Mul"), _binary),
    **dict.fromkeys(("GlobalAveragePool", "Sigmoid"), _unary()),
    **dict.fromkeys(sorted(MOVES), _move),
    "AveragePool": _pool,
    "Concat": _concat,
    "LeakyRelu": _unary("alpha"),
    "Softmax": _softmax,
    "Where": _where,
}
