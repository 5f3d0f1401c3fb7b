"""Transposes and scales around a matrix product that FusedMatMul absorbs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from surgery import Builder, Node, Refusal, Value

FUSED = "com.microsoft::FusedMatMul"
PRODUCTS = ("MatMul", FUSED)


@dataclass(frozen=True)
class Factor:
    """A factor of a product: a value with its axes in the order `axes`, times `scale`."""

    value: Value
    axes: tuple[int, ...]
    scale: float = 1.0

    @property
    def flags(self) -> tuple[int, int] | None:
        """The attributes transBatch and trans that bring the axes into this order; None if it is impossible."""
        return orders(len(self.axes)).get(self.axes)


def orders(rank: int) -> dict[tuple[int, ...], tuple[int, int]]:
    """Return the orders of axes that FusedMatMul reads, each with transBatch and trans.

    transBatch moves the first axis to the place before the last one; then trans swaps the last two.
    """
    batch = tuple(range(rank - 2))
    found = {(*batch, rank - 2, rank - 1): (0, 0), (*batch, rank - 1, rank - 2): (0, 1)}
    if rank > 2:
        inner = tuple(range(1, rank - 1))
        found |= {(*inner, 0, rank - 1): (1, 0), (*inner, rank - 1, 0): (1, 1)}
    return found


def factor_of(node: Node, place: int) -> Factor:
    """Return the present factor of a product at a place."""
    value = node.required_input(place)
    rank = value.rank
    if rank is None or rank < 2:
        # For a transposed matrix and a vector, the kernel of ONNX Runtime 1.32 computes a different result.
        raise Refusal("a factor is a vector, or its rank is unknown")
    if node.op == "MatMul":
        return Factor(value, tuple(range(rank)))
    letter = "AB"[place]
    flags = int(node.attr(f"transBatch{letter}") or 0), int(node.attr(f"trans{letter}") or 0)
    found = {held: axes for axes, held in orders(rank).items()}
    if flags not in found:
        raise Refusal("transBatch is set for a matrix without a batch")
    return Factor(value, found[flags])


def step(factor: Factor, node: Node, taken: list[Node]) -> Factor | None:
    """Return a factor without the Transpose or the scale that produces its value; None if there is neither.

    Refuse a node that cannot be absorbed. `taken` holds the nodes between the product and the value; the node is added
    to it.
    """
    producer = factor.value.producer
    if producer is None or producer.op not in ("Transpose", "Mul", "Div"):
        return None
    if producer.op == "Transpose":
        found = _unturned(factor, producer)
    else:
        scaled = scale_in(producer)
        found = None if scaled is None else Factor(scaled[0], factor.axes, factor.scale * scaled[1])
    if found is not None:
        _require_alone(factor.value, producer, node, taken)
        if found.scale != factor.scale:
            require_rows(node)
        taken.append(producer)
    return found


def _unturned(factor: Factor, transpose: Node) -> Factor | None:
    source, rank = transpose.required_input(0), len(factor.axes)
    perm = transpose.attr("perm") or list(reversed(range(rank)))
    if len(perm) != rank:
        return None
    found = Factor(source, tuple(perm[axis] for axis in factor.axes), factor.scale)
    if found.flags is None:
        return None
    if source.is_constant:
        raise Refusal("a constant can be transposed once for all runs")
    return found


def scale_in(node: Node) -> tuple[Value, float] | None:
    """Return the value that a Mul or Div scales by one constant number, and the factor."""
    if node.opset < 7 or node.op not in ("Mul", "Div"):
        return None
    for place in (0, 1) if node.op == "Mul" else (1,):
        constant, scaled = node.required_input(place), node.required_input(1 - place)
        number = constant.scalar
        if isinstance(number, float) and not scaled.is_constant:
            if constant.rank is None or scaled.rank is None or constant.rank > scaled.rank:
                raise Refusal("the scale may add dims")
            if number == 0 or not math.isfinite(number) or not math.isfinite(1 / number):
                raise Refusal("the scale is zero or not finite")
            return scaled, number if node.op == "Mul" else 1 / number
    return None


def _require_alone(value: Value, producer: Node, node: Node, taken: list[Node]) -> None:
    """Refuse a value with other readers, unless they are products as well, which can also absorb it."""
    if value.is_output or producer.scope is not node.scope:
        raise Refusal("the transposed or scaled value has other consumers")
    others = [reader for reader in value.consumers if reader not in taken]
    if not all(reader.op in PRODUCTS and reader.scope is node.scope for reader in others):
        raise Refusal("the transposed or scaled value has other consumers")


def alpha_of(scale: float, product: Value) -> float:
    """Return a scale as the attribute alpha, which is float32 for every type of product; refuse if it is no float32."""
    alpha = float(np.float32(scale))
    if not math.isfinite(alpha) or abs(alpha) < float(np.finfo(np.float32).tiny):
        raise Refusal("the product of the scales is not a float32 number")
    if product.dtype is not None and product.dtype.name == "DOUBLE" and alpha != scale:
        raise Refusal("the scale of a float64 product is not a float32 number")
    return alpha


def require_rows(node: Node) -> None:
    """Refuse to scale a product whose left matrix has one row."""
    left = factor_of(node, 0)
    if left.value.shape is not None and left.value.shape[left.axes[-2]] == 1:
        raise Refusal("a single row is faster without a scale")


def require_batches(left: Factor, right: Factor, new: Builder) -> None:
    """Refuse transBatch unless both factors have the same rank, as the kernel requires."""
    flags = [factor.flags or (0, 0) for factor in (left, right)]
    same = len(left.axes) == len(right.axes)
    new.require(same or not (flags[0][0] or flags[1][0]), "the factors of a transposed batch have different ranks")
