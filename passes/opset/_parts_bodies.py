"""Operators decomposed as their own schemas define."""

from __future__ import annotations

from typing import Any

import numpy as np

from surgery import Refusal, Value

from . import _adapters_inputs, _adapters_legacy, _adapters_meaning, _forms, _schemas, _types
from ._calls import Call
from ._lowering import WRITTEN, Lowering, Result, part
from ._shared import is_handled

CHANGES = (_adapters_inputs, _adapters_legacy, _adapters_meaning)
"""Modules whose import registers the versions at which an operator changes its meaning."""


@part(
    "CenterCropPad",
    "HammingWindow",
    "HannWindow",
    "NegativeLogLikelihoodLoss",
    "Shrink",
    "SoftmaxCrossEntropyLoss",
    "SwiGLU",
    "ThresholdedRelu",
)
def expand(call: Call, place: Lowering) -> Result:
    """Replace a call with the body of its schema, node by node.

    Only for operators whose bodies compute what ONNX Runtime's kernels do: the body of DynamicQuantizeLinear divides
    zero by zero for zeros, and that of BlackmanWindow gives a result with the opposite sign near zero.
    """
    attributes = {name: call.attr(name) for name in call.attributes}
    inputs = [None if value is None else (place.known_kind(value), value.shape) for value in call.inputs]
    body = _forms.body(call.op, call.version, attributes, inputs)
    if body is None:
        raise Refusal(f"{call.op} has no smaller operators for this call")
    held: dict[str, Value | None] = dict(zip(body.inputs, call.inputs))
    for step in body.steps:
        read = [held.get(name) if name else None for name in step.inputs]
        if step.op == "Constant":
            made: Any = [place.constant(_array(step.attributes), step.outputs[0])]
        else:
            version = _newest(step.op, step.version)
            made = place.make(Call(step.op, version, read, step.attributes, len(step.outputs)))
        held.update(zip(step.outputs, made))
    outputs = [held.get(name) for name in body.outputs[: call.outputs]]
    return [value for value in outputs if value is not None]


def _newest(op: str, version: int) -> int:
    """Return the newest version of an operator in which each call of an older version has the same meaning."""
    while (later := _schemas.next_version(op, version, WRITTEN)) is not None:
        if _schemas.change(op, version, later).broken is not None or is_handled(op, later):
            return version
        version = later
    return version


def _array(attributes: Any) -> np.ndarray[Any, Any]:
    (name, value), *_ = attributes.items()
    kinds = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    return np.array(value, dtype=kinds.get(name))


@part("QuantizeLinear")
def _quantize(call: Call, place: Lowering) -> Result:
    """Compute round(x / scale) + zero point, clipped to the range of the type (text of QuantizeLinear 10)."""
    data, scale, zero = call.first(3)
    assert data is not None and scale is not None
    kind = _quantized_kind(call, place)
    place.require(
        _types.element(kind) in ("int8", "uint8", "int16", "uint16"), f"QuantizeLinear produces no {kind} here"
    )
    bounds = np.iinfo(_types.numpy_type(kind))
    wide = place.known_kind(scale)
    scaled = place.node("Round", place.node("Div", place.cast(data, wide), _along(call, place, scale)))
    if zero is not None:
        scaled = place.node("Add", scaled, place.cast(_along(call, place, zero), wide))
    ends = (place.number(float(end), scale, name) for end, name in ((bounds.min, "lowest"), (bounds.max, "highest")))
    return place.cast(place.node("Clip", scaled, *ends), kind)


@part("DequantizeLinear")
def _dequantize(call: Call, place: Lowering) -> Result:
    """Compute (x - zero point) · scale (text of DequantizeLinear 10)."""
    data, scale, zero = call.first(3)
    assert data is not None and scale is not None
    kind = place.known_kind(scale)
    wide = place.cast(data, kind)
    if zero is not None:
        wide = place.node("Sub", wide, place.cast(_along(call, place, zero), kind))
    result = place.node("Mul", wide, _along(call, place, scale))
    wanted = call.attr("output_dtype")
    return place.cast(result, _forms.type_name(wanted)) if wanted else result


def _quantized_kind(call: Call, place: Lowering) -> str:
    zero, wanted = call.find(2), call.attr("output_dtype")
    if zero is not None:
        return place.known_kind(zero)
    return _forms.type_name(wanted) if wanted else "tensor(uint8)"


def _along(call: Call, place: Lowering, value: Value) -> Value:
    """Reshape a vector so that it lies along the axis of the call; refuse blocks."""
    place.require(not call.attr("block_size"), f"blocks of {call.op} came with opset 21")
    if value.size == 1 or place.rank(value) == 0:
        return place.node("Squeeze", value) if value.rank else value
    data = call.input(0)
    rank = place.rank(data)
    axis = (1 if call.attr("axis") is None else call.attr("axis")) % rank
    return place.node("Reshape", value, place.integers([-1, *[1] * (rank - 1 - axis)], "along"))
