"""Rules for quantization."""

from __future__ import annotations

import numpy as np

from . import _forms, _types
from ._calls import Call
from ._lowering import Lowering, Result, parts, rule


@rule("QuantizeLinear", since=21)
def _quantize_21(call: Call, place: Lowering) -> Result:
    """Replace `output_dtype` with a zero point, which used to set the result type; blocks did not exist."""
    kind = call.attr("output_dtype")
    if not kind or call.find(2) is not None:
        call.attributes.pop("output_dtype", None)
        return place.keep(call)
    scale = call.input(1)
    zero = np.zeros((), dtype=_types.numpy_type(_forms.type_name(kind)))
    call.attributes.pop("output_dtype")
    spread = place.constant(zero, "zero_point")
    if not (scale.size == 1 and scale.rank == 0):
        spread = place.node("Expand", spread, place.node("Shape", scale))
    call.inputs = [*call.first(2), spread]
    return place.keep(call)


@rule("DequantizeLinear", since=21)
@rule("QuantizeLinear", since=19)
@rule("DequantizeLinear", since=19)
def _blocks(call: Call, place: Lowering) -> Result:
    """Keep the call, or decompose it if it has blocks or, in QuantizeLinear, other types than float."""
    if call.op == "QuantizeLinear":
        call.attributes.pop("saturate", None)
        if place.kind(call.input(0)) != "tensor(float)" or place.kind(call.input(1)) != "tensor(float)":
            return parts()[call.op](call, place)
    return place.keep(call) if not call.attr("block_size") else parts()[call.op](call, place)


@rule("QuantizeLinear", "DequantizeLinear", since=13)
def _per_axis(call: Call, place: Lowering) -> Result:
    """Drop the axis if there is one scale for all elements, the only form that existed; else decompose the call."""
    scale = call.input(1)
    if scale.size == 1 or scale.rank == 0:
        call.attributes.pop("axis", None)
        return None
    return parts()[call.op](call, place)
