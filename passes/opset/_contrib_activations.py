"""Activations of ONNX Runtime, alone or fused with a bias, as ONNX operators.

Source: docs/ContribOperators.md, and the kernels `bias_gelu.cc`, `fast_gelu.cc`, `activations.h`, `bias_softmax.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from surgery import Refusal, Value

from ._calls import Call
from ._contrib import dims_of, sum_of
from ._lowering import Lowering, Result, part


@part("com.microsoft::Gelu", "com.microsoft::BiasGelu")
def _gelu(call: Call, place: Lowering) -> Result:
    """Compute the ONNX Gelu of x or of x + bias."""
    return place.node("Gelu", sum_of(place, call.input(0), call.find(1)))


@part("com.microsoft::FastGelu")
def _fast_gelu(call: Call, place: Lowering) -> Result:
    """Compute the ONNX Gelu with the tanh approximation, of x or of x + bias."""
    return place.node("Gelu", sum_of(place, call.input(0), call.find(1)), approximate="tanh")


@part("com.microsoft::QuickGelu")
def _quick_gelu(call: Call, place: Lowering) -> Result:
    """Compute x · sigmoid(alpha · x), which is the Swish of ONNX."""
    return place.node("Swish", call.input(0), alpha=float(call.attr("alpha", _QUICK)))


_QUICK = 1.702


@part("com.microsoft::GemmFastGelu")
def _gemm_fast_gelu(call: Call, place: Lowering) -> Result:
    product = place.node("MatMul", call.input(0), call.input(1))
    return place.node("Gelu", sum_of(place, product, call.find(2)), approximate="tanh")


@part("com.microsoft::BiasSplitGelu")
def _bias_split_gelu(call: Call, place: Lowering) -> Result:
    """Multiply the left half of x + bias by the Gelu of the right half."""
    left, right = place.nodes("Split", sum_of(place, *call.inputs[:2]), num_outputs=2, outputs=2, axis=-1)
    return place.node("Mul", left, place.node("Gelu", right))


@part("com.microsoft::BiasAdd")
def _bias_add(call: Call, place: Lowering) -> Result:
    return sum_of(place, *call.inputs[:3])


@part("com.microsoft::BiasSoftmax")
def _bias_softmax(call: Call, place: Lowering) -> Result:
    """Compute Softmax(data + bias); the bias matches the last dims, or has the rank of the data and is broadcast."""
    data, bias = call.input(0), call.input(1)
    rank = len(dims_of(data))
    axis = int(call.attr("axis", 1)) % rank
    fits = not call.attr("is_inner_broadcast", 0) or len(dims_of(bias)) == rank
    place.require(axis == rank - 1 and fits, "BiasSoftmax flattens several axes")
    return place.node("Softmax", place.node("Add", data, bias), axis=-1)


_FLOATS = {
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Selu": ("alpha", "gamma"),
    "ThresholdedRelu": ("alpha",),
}
"""Activations with attributes, in the order in which a fused convolution lists them."""

_WITHOUT = ("Gelu", "HardSwish", "Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")


def activated(value: Value, name: str | None, numbers: Sequence[Any], place: Lowering) -> Value:
    """Apply an activation to the result of a fused operator; `numbers` are its attributes, None if missing."""
    if not name:
        return value
    given = {key: float(number) for key, number in zip(_FLOATS.get(name, ()), numbers) if number is not None}
    if name == "Clip" and len(given) == 2:
        return place.node("Clip", value, *(place.number(given[key], value, key) for key in ("min", "max")))
    if name not in _WITHOUT and (name == "Clip" or name not in _FLOATS):
        raise Refusal(f"the activation {name} is not known")
    return place.node(name, value, **given)
