"""HardSigmoid and HardSwish in integers, where runtimes have no kernel for them.

clip(alpha · x + beta, 0, 1) is alpha · clip(x + beta / alpha, 0, 1 / alpha). Rounding the sum to integers whose range
is 0 to 1 / alpha clips it, and dequantizing them with alpha times their scale multiplies it: one Add of integers.
HardSwish, x · HardSigmoid(x), takes a Mul of integers in addition.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from surgery import Builder, Node, Value

from ._integers import Affine, affine
from ._pairs import Pairs, prefix_of, tensor

GATES = ("HardSigmoid", "HardSwish")

_HARD_SWISH = (np.float64(1.0) / 6.0, 0.5)
"""The alpha and beta of the HardSigmoid in HardSwish, from the text of the operator."""


def is_gate(value: Value) -> bool:
    """Return whether a value is the result of a HardSigmoid, whose range is 0 to 1."""
    return value.producer is not None and value.producer.op == "HardSigmoid"


def gated(node: Node, result: Affine, name: str, pairs: Pairs, new: Builder) -> Value:
    """Return the rounded result of a HardSigmoid or HardSwish of quantized data.

    `result` says how the value called `name` is rounded.
    """
    alpha, beta = _HARD_SWISH
    data, kind = node.required_input(0), result.kind
    if node.op == "HardSigmoid":
        alpha, beta = np.float64(node.attr("alpha", 0.2)), float(node.attr("beta", 0.5))
    new.require(np.isfinite(beta / alpha) and alpha > 0, "the slope of the HardSigmoid is not positive")
    own = node.name or node.op
    shift = affine(min(beta / alpha, 0.0), max(beta / alpha, 0.0), kind)
    integer = tensor(shift.quantize(np.asarray(beta / alpha)), kind.name)
    constant = integer, np.asarray(shift.scales, np.float32), np.asarray(shift.zero_points())
    added = pairs.dequantized(node, f"{own}_shift", ("shift", beta / alpha), constant, None, new)
    gate_range = affine(0.0, 1.0, kind)
    clipped = replace(gate_range, scale=(gate_range.scale / alpha).astype(np.float32).astype(np.float64))
    prefix = prefix_of(node, kind.name)
    scale, zero_point = pairs.constants(node, clipped, f"{own}_clipped", new)
    integers = new.node(f"{prefix}QuantizeLinear", new.node("Add", data, added), scale, zero_point)
    scale, zero_point = pairs.constants(node, gate_range, f"{own}_gate", new)
    gate = new.node(f"{prefix}DequantizeLinear", integers, scale, zero_point)
    return gate if node.op == "HardSigmoid" else pairs.rounded(node, new.node("Mul", data, gate), result, name, new)
