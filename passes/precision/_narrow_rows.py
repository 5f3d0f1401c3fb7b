"""Rows of attention scores that a mask covers completely, in a narrower type.

All scores of such a row are the lowest number of float32, so that the probabilities are equal. The lowest number of a
narrower type does not absorb scores, for kernels add them in float32. Queries of 0 have equal scores of 0, and the mask
adds the same to all of them: so the queries of these rows become 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from surgery import Builder, Node, Value, data_type

from ._narrow_casts import is_there
from ._narrow_format import Format
from ._narrow_masks import BIAS, BIASED, MASK, PACKED, PACKED_BIAS, QUERIES, WEIGHT, lowest

_FLOAT = data_type("float")
_FIRST_AXES_OF_MAX = 18
"""The opset from which on the axes of ReduceMax are an input."""


class Rows:
    """Makes queries 0 where a mask covers their row. Attentions that share a mask share what it covers."""

    def __init__(self, format: Format) -> None:  # noqa: A002
        self.format = format
        self._seen: dict[Value, Value] = {}

    def hide(self, new: Builder, node: Node, narrow: Callable[[Value], Value]) -> dict[int, Value] | None:
        """Return the narrower queries and mask of a MultiHeadAttention by position; None for a replaced Attention."""
        mask = narrow(node.required_input(MASK))
        if node.op == PACKED:
            self._separate(new, node, mask, narrow)
            return None
        queries, bias = node.required_input(QUERIES), node.input(BIAS)
        width = (queries.shape or (None,) * 3)[2]
        return {QUERIES: self._shown(new, mask, narrow(queries), bias, width), MASK: mask}

    def _separate(self, new: Builder, node: Node, mask: Value, narrow: Callable[[Value], Value]) -> None:
        """Compute queries, keys and values of an Attention apart, and attend by MultiHeadAttention."""
        weight, bias = node.required_input(WEIGHT), node.required_input(PACKED_BIAS)
        width = (weight.static_shape or (0, 0))[1]
        sizes = list(node.attr("qkv_hidden_sizes") or [width // 3] * 3)
        product = new.node("MatMul", narrow(node.required_input(0)), narrow(weight))
        cuts = new.constant(np.array(sizes, np.int64), "sizes")
        queries, keys, values = new.nodes("Split", product, cuts, outputs=3, axis=-1)
        shown = self._shown(new, mask, queries, bias, sizes[0])
        kept = {name: node.attr(name) for name in ("num_heads", "scale") if node.has_attr(name)}
        result = new.node(BIASED, shown, keys, values, narrow(bias), None, mask, attributes=kept)
        new.replace(node.outputs[0], new.node("Cast", result, to=_FLOAT))

    def _shown(self, new: Builder, mask: Value, queries: Value, bias: Value | None, width: Any) -> Value:
        """Return the queries, in covered rows the negative of the bias that the operator adds to them."""
        if mask not in self._seen or not is_there(self._seen[mask]):
            best = self._best(new, mask)
            row = new.node("Squeeze", best, new.constant(np.array([1], np.int64), "axes"))
            floor = new.constant(self.format.narrowed(np.array(lowest(self.format) / 2, np.float32)), "covered")
            self._seen[mask] = new.node("Greater", row, floor)
        array = np.zeros((), np.float32) if bias is None else -np.asarray(bias.constant)[:width]
        hidden = new.constant(self.format.narrowed(array), "hidden")
        return new.node("Where", self._seen[mask], queries, hidden)

    def _best(self, new: Builder, mask: Value) -> Value:
        if new.graph.opset < _FIRST_AXES_OF_MAX:
            return new.node("ReduceMax", mask, axes=[-1], keepdims=1)
        return new.node("ReduceMax", mask, new.constant(np.array([-1], np.int64), "axes"), keepdims=1)
