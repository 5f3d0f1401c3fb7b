"""Products and convolutions of ONNX Runtime, with the operators fused into them, as ONNX operators.

Source: docs/ContribOperators.md, and the kernels `matmul.cc`, `fused_gemm.cc`, `fused_conv.cc`.
"""

from __future__ import annotations

from surgery import Value

from ._calls import Call
from ._contrib import dims_of, sum_of
from ._contrib_activations import activated
from ._lowering import Lowering, Result, part


@part("com.microsoft::FusedMatMul", "com.microsoft::TransposeMatMul", "com.microsoft::FusedMatMulActivation")
def _fused_matmul(call: Call, place: Lowering) -> Result:
    """Compute alpha · A' · B', where operands may have the last two axes swapped, and the first put after the batch."""
    operands = [_turned(call, index, side, place) for index, side in enumerate("AB")]
    made, alpha = place.node("MatMul", *operands), float(call.attr("alpha", 1.0))
    if alpha != 1:
        made = place.node("Mul", made, place.number(alpha, made, "alpha"))
    return activated(made, call.attr("activation"), _numbers(call), place)


def _turned(call: Call, index: int, side: str, place: Lowering) -> Value:
    value = call.input(index)
    batch, last = (bool(call.attr(f"{name}{side}", 0)) for name in ("transBatch", "trans"))
    if not (batch or last):
        return value
    rank = len(dims_of(value))
    axes = list(range(rank))
    if batch and rank > 1:
        axes = [*axes[1:-1], axes[0], axes[-1]]
    if last and rank > 1:
        axes = [*axes[:-2], axes[-1], axes[-2]]
    return value if axes == list(range(rank)) else place.node("Transpose", value, perm=axes)


def _numbers(call: Call) -> list[float | None]:
    return [call.attr(f"activation_{name}") for name in ("alpha", "beta")]


@part("com.microsoft::FusedGemm")
def _fused_gemm(call: Call, place: Lowering) -> Result:
    names = ("alpha", "beta", "transA", "transB")
    kept = {name: call.attr(name) for name in names if name in call.attributes}
    made = place.node("Gemm", *call.inputs[:3], **kept)
    numbers = _numbers(call)
    if call.attr("activation") == "Selu":
        numbers[1] = call.attr("activation_gamma")
    return activated(made, call.attr("activation"), numbers, place)


_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_POOL = (*_CONV, "ceil_mode", "storage_order")


@part("com.microsoft::FusedConv", "com.microsoft::NhwcFusedConv", "com.microsoft::NhwcConv")
def _fused_conv(call: Call, place: Lowering) -> Result:
    """Compute Conv, the sum with the last input, and the activation; channels at the end move to the second axis."""
    x, weight, bias, added = call.first(4)
    assert x is not None and weight is not None
    is_last = "::Nhwc" in call.op
    kept = {name: call.attr(name) for name in _CONV if name in call.attributes}
    data = _channels_first(x, place) if is_last else x
    made = place.node("Conv", data, weight, *([] if bias is None else [bias]), **kept)
    if is_last:
        made = _channels_last(made, len(dims_of(x)), place)
    made = sum_of(place, made, added)
    return activated(made, call.attr("activation"), call.attr("activation_params", []), place)


@part("com.microsoft::NhwcMaxPool")
def _nhwc_max_pool(call: Call, place: Lowering) -> Result:
    x = call.input(0)
    kept = {name: call.attr(name) for name in _POOL if name in call.attributes}
    return _channels_last(place.node("MaxPool", _channels_first(x, place), **kept), len(dims_of(x)), place)


def _channels_first(x: Value, place: Lowering) -> Value:
    rank = len(dims_of(x))
    return place.node("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])


def _channels_last(x: Value, rank: int, place: Lowering) -> Value:
    return place.node("Transpose", x, perm=[0, *range(2, rank), 1])
