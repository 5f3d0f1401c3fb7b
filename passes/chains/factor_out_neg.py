"""Signs of concatenated pieces, moved into a factor after them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery import Graph, Node, Parity, Value, graph_pass

from ._shared import has_parameters

LARGEST = 4096


@graph_pass("factor-out-neg", parity=Parity.EXACT)
def factor_out_neg(graph: Graph) -> None:
    """Turn Concat(-a, b) · c into Concat(a, b) · (c · signs), where several products share the factor c.

    Right because the sign of a product is the product of the signs, and that changes no other bit. The signs are a
    constant along the concatenated axis, whose pieces must have known extents. The product with the signs is computed
    once, which saves one node for each product except the first; a constant c absorbs the signs. Rotary embeddings are
    exported in this form, with the same sine in each layer. Values with other consumers stay. OpenVINO fuses a rotary
    embedding only with the negated half, so the target `openvino` keeps it.

    Example:
        g (float[N,4] a, float[N,4] b, float[4] c) => (float[N,4] y) <int64[2] halves = {2, 2}> {
            p, q = Split<axis = 1>(a, halves)
            m = Neg(q)
            r = Concat<axis = 1>(m, p)
            s = Mul(r, c)
            t, u = Split<axis = 1>(b, halves)
            n = Neg(u)
            v = Concat<axis = 1>(n, t)
            w = Mul(v, c)
            y = Add(s, w)
        }
    """
    groups: dict[Any, list[_Product]] = {}
    for node in graph.nodes("Mul"):
        for position in (0, 1):
            found = _product(node, position)
            if found is not None:
                groups.setdefault(found.key, []).append(found)
                break
    for products in groups.values():
        if len(products) > 1 or products[0].factor.is_constant:
            _rewrite(graph, products)


@dataclass(frozen=True)
class _Product:
    """A product of concatenated pieces, some of them negated, and a factor."""

    node: Node
    concat: Node
    factor: Value
    pieces: tuple[Value, ...]
    signs: tuple[int, ...]
    axes_after: int
    """The number of axes after the axis of concatenation."""

    @property
    def key(self) -> Any:
        """The key that must be equal for products to share the factor with the signs."""
        return self.factor, self.signs, self.axes_after, self.node.scope, self.concat.outputs[0].dtype


def _product(node: Node, position: int) -> _Product | None:
    value, factor = node.input(position), node.input(1 - position)
    concat = None if value is None else value.producer
    if value is None or factor is None or concat is None or concat.op != "Concat" or node.opset < 7:
        return None
    rank, kind = value.rank, value.dtype
    if not _is_only_for(value, node) or rank is None or kind is None or not kind.is_floating_point():
        return None
    if has_parameters(concat):
        return None
    axis = concat.attr("axis") % rank
    pieces, signs = [], list[int]()
    for part in concat.inputs:
        extent = None if part is None or part.shape is None else part.shape[axis]
        if part is None or not isinstance(extent, int):
            return None
        maker = part.producer
        negated = maker is not None and maker.op == "Neg" and _is_only_for(part, concat)
        pieces.append(maker.required_input(0) if maker is not None and negated else part)
        signs += [-1 if negated else 1] * extent
    if -1 not in signs or len(signs) > LARGEST:
        return None
    return _Product(node, concat, factor, tuple(pieces), tuple(signs), rank - 1 - axis)


def _is_only_for(value: Value, reader: Node) -> bool:
    maker = value.producer
    same_scope = maker is not None and maker.scope is reader.scope
    return same_scope and not value.is_output and value.consumers == [reader]


def _rewrite(graph: Graph, products: list[_Product]) -> None:
    first = products[0]
    kind = first.concat.outputs[0].dtype
    assert kind is not None
    with graph.site(first.node) as new:
        negated = graph.target.prefers.get("rotated_half") == "negated"
        new.require(not negated, "the target prefers the negated half of a rotary embedding")
        signs = np.array(first.signs).astype(kind.numpy()).reshape(-1, *(1,) * first.axes_after)
        signed = new.node("Mul", first.factor, new.constant(signs, "signs"))
        for product in products:
            place = new.at(product.node)
            joined = place.node("Concat", *product.pieces, attributes=product.concat.attributes)
            new.replace(product.node.outputs[0], place.node("Mul", joined, signed))
