"""Operators that every opset has, replaced for targets that lack them. Conversion to older opsets never needs these."""

from __future__ import annotations

from functools import reduce

import numpy as np

from surgery import Value

from ._lowering import Call, Lowering, Result, part


@part("Reciprocal", plain=True)
def _reciprocal(call: Call, place: Lowering) -> Result:
    """Compute 1 / x, which is also rounded only once."""
    return place.node("Div", place.number(1, call.input(0), "one"), call.input(0))


@part("Neg", plain=True)
def _neg(call: Call, place: Lowering) -> Result:
    """Compute x · (-1), which is exact and has the same signs of zeros as -x."""
    return place.node("Mul", call.input(0), place.number(-1, call.input(0), "minus_one"))


@part("Not", plain=True)
def _not(call: Call, place: Lowering) -> Result:
    """Compute whether x is false."""
    return place.node("Equal", call.input(0), place.constant(np.array(False), "false"))


@part("IsNaN", plain=True)
def _is_nan(call: Call, place: Lowering) -> Result:
    """Compute whether x differs from itself, as only NaN does; before opset 11 Equal has no floating-point types."""
    place.require(place.target >= 11, "before opset 11 Equal compares no floating-point numbers")
    return place.node("Not", place.node("Equal", call.input(0), call.input(0)))


@part("Or", plain=True)
def _or(call: Call, place: Lowering) -> Result:
    """Compute not (not a and not b); ONNX Runtime has no Where of booleans on the CPU, which would also do."""
    neither = place.node("And", place.node("Not", call.input(0)), place.node("Not", call.input(1)))
    return place.node("Not", neither)


@part("Xor", plain=True)
def _xor(call: Call, place: Lowering) -> Result:
    """Compute whether the operands differ."""
    return place.node("Not", place.node("Equal", call.input(0), call.input(1)))


@part("Sum", plain=True)
def _sum(call: Call, place: Lowering) -> Result:
    """Add the operands from the first to the last."""
    return _added(call, place)


@part("Mean", plain=True)
def _mean(call: Call, place: Lowering) -> Result:
    """Divide the sum of the operands by their number."""
    total = _added(call, place)
    return place.node("Div", total, place.number(len(call.inputs), call.input(0), "count"))


def _added(call: Call, place: Lowering) -> Value:
    values = [call.input(index) for index in range(len(call.inputs))]
    if len(values) == 1:
        return place.node("Identity", values[0])
    return reduce(lambda left, right: place.node("Add", left, right), values)


@part("CastLike", plain=True)
def _cast_like(call: Call, place: Lowering) -> Result:
    """Cast to the type of the second input."""
    wanted = place.known_kind(call.input(1))
    if place.kind(call.input(0)) == wanted:
        return place.node("Identity", call.input(0))
    return place.cast(call.input(0), wanted)
