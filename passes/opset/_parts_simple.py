"""Operators that every opset has, in others, for a target that lacks them. Older opsets alone never need these."""

from __future__ import annotations

from functools import reduce

import numpy as np

from surgery import Value

from ._lowering import Call, Lowering, Result, part


@part("Reciprocal", plain=True)
def _reciprocal(call: Call, place: Lowering) -> Result:
    """1 / x, which is rounded once as well."""
    return place.node("Div", place.number(1, call.input(0), "one"), call.input(0))


@part("Neg", plain=True)
def _neg(call: Call, place: Lowering) -> Result:
    """x · (-1), which is exact, and gives the sign of zeros as -x does."""
    return place.node("Mul", call.input(0), place.number(-1, call.input(0), "minus_one"))


@part("Not", plain=True)
def _not(call: Call, place: Lowering) -> Result:
    """Whether x is false."""
    return place.node("Equal", call.input(0), place.constant(np.array(False), "false"))


@part("IsNaN", plain=True)
def _is_nan(call: Call, place: Lowering) -> Result:
    """Whether x differs from itself, as NaN alone does. Before opset 11 Equal takes integers and booleans only."""
    place.require(place.target >= 11, "before opset 11 Equal compares no floating-point numbers")
    return place.node("Not", place.node("Equal", call.input(0), call.input(0)))


@part("Or", plain=True)
def _or(call: Call, place: Lowering) -> Result:
    """Not (not a and not b). A Where of booleans would do, and ONNX Runtime has none on the CPU."""
    neither = place.node("And", place.node("Not", call.input(0)), place.node("Not", call.input(1)))
    return place.node("Not", neither)


@part("Xor", plain=True)
def _xor(call: Call, place: Lowering) -> Result:
    """Whether the operands differ."""
    return place.node("Not", place.node("Equal", call.input(0), call.input(1)))


@part("Sum", plain=True)
def _sum(call: Call, place: Lowering) -> Result:
    """The sum from the first operand to the last."""
    return _added(call, place)


@part("Mean", plain=True)
def _mean(call: Call, place: Lowering) -> Result:
    """The sum divided by the number of operands."""
    total = _added(call, place)
    return place.node("Div", total, place.number(len(call.inputs), call.input(0), "count"))


def _added(call: Call, place: Lowering) -> Value:
    values = [call.input(index) for index in range(len(call.inputs))]
    if len(values) == 1:
        return place.node("Identity", values[0])
    return reduce(lambda left, right: place.node("Add", left, right), values)


@part("CastLike", plain=True)
def _cast_like(call: Call, place: Lowering) -> Result:
    """A Cast to the type of the second input."""
    wanted = place.known_kind(call.input(1))
    if place.kind(call.input(0)) == wanted:
        return place.node("Identity", call.input(0))
    return place.cast(call.input(0), wanted)
