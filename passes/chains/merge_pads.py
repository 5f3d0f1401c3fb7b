"""Chains of Pad."""

from math import copysign
from typing import Any

import numpy as np

from surgery import Builder, Match, Node, Parity, Value, pattern_pass

from ._shared import constant_ints


@pattern_pass(
    "merge-pads",
    match="""
        a = Pad<mode=inner>(x, first...)
        y = Pad<mode=outer>(a, second...)
    """,
    parity=Parity.EXACT,
)
def merge_pads(m: Match, new: Builder) -> Value:
    """Merge two Pads by the same constant into one.

    Right because the second Pad adds the same elements around those that the first one added. Both must have the mode
    "constant", because other modes repeat elements at the border, and neither may crop.

    Example:
        g (float[N,4] x) => (float[N,8] y) <int64[4] left = {0, 1, 0, 0}, int64[4] right = {0, 1, 0, 2}> {
            a = Pad(x, left)
            y = Pad(a, right)
        }
    """
    m.require(m.inner == m.outer == "constant", "the mode is not 'constant'")
    pads, values = zip(*(_pads(m.node(name)) for name in "ay"))
    m.require(None not in pads, "the pads are not constant, or only for some axes")
    m.require(min((*pads[0], *pads[1]), default=0) >= 0, "a Pad crops")
    m.require(_is_same(*values), "the values differ, or are not constant")
    total = [one + other for one, other in zip(*pads)]
    if m.root.opset < 11:
        return new.node("Pad", m.x, pads=total, value=m.root.attr("value"), mode="constant")
    return new.node("Pad", m.x, new.constant(np.array(total, np.int64), "pads"), m.root.input(2), mode="constant")


def _is_same(first: Any, second: Any) -> bool:
    """Return whether two known values are the same, including the signs of zeros."""
    return first is not None and first == second and copysign(1, first.real) == copysign(1, second.real)


def _pads(node: Node) -> tuple[tuple[int, ...] | None, Any]:
    """Return the pads and the value of a Pad, None for each that is not constant."""
    if node.opset < 11:
        return tuple(node.attr("pads" if node.opset > 1 else "paddings") or ()), node.attr("value", 0.0)
    value = node.input(2)
    return constant_ints(node.input(1)) if node.input(3) is None else None, 0 if value is None else value.scalar
