"""Matrix products of computed data and a constant weight."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from surgery import Builder, Node, Value

from ._stored_weights import stored

DEEPEST = (2**31 - 1) // (255 * 255)
"""The longest sum of products of 8-bit numbers that always fits into the int32 of MatMulInteger."""


@dataclass(frozen=True)
class Product:
    """alpha · A · B + beta · C, where one of A and B is the weight and the other the data, each transposed or not."""

    node: Node
    data: Value
    weight: Value
    is_left: bool
    transposes_data: bool = False
    transposes_weight: bool = False
    alpha: float = 1.0
    beta: float = 1.0
    addend: Value | None = None

    @property
    def channel_axis(self) -> int:
        """The axis of the weight, counted from the end, that holds the channels of the result."""
        return -2 if self.is_left != self.transposes_weight else -1

    @property
    def channel_axes(self) -> tuple[int, ...]:
        """The axis of the channels, and the axes of a batch of matrices."""
        rank = self.weight.rank or 2
        return (*range(rank - 2), rank + self.channel_axis)

    @property
    def depth(self) -> int:
        """The number of products that are added up for each element of the result."""
        shape = self.weight.static_shape or (0, 0)
        return shape[-1] if self.channel_axis == -2 else shape[-2]

    def bias(self, new: Builder) -> Value | None:
        """Return the addend of the product, scaled by beta; None if nothing is added."""
        if self.addend is None or not self.beta:
            return None
        if self.beta == 1.0:
            return self.addend
        array = self.addend.constant
        if array is not None:
            return new.constant((array * np.float64(self.beta)).astype(array.dtype), self.addend.name)
        return new.node("Mul", self.addend, new.constant(np.array(self.beta, np.float32), "beta"))

    def transposed_data(self, value: Value, new: Builder) -> Value:
        """Return the data, given in any form, transposed if the product transposes them."""
        if not self.transposes_data:
            return value
        rank = self.data.rank or 2
        return new.node("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])


def product_of(node: Node, new: Builder) -> Product:
    """Read a product with one constant factor; refuse any other node.

    The factor may also be a Transpose of a constant, as the head of a language model is that shares its weight with the
    embedding, or a Cast of one that is stored in float16; `weight` is then that constant.
    """
    factors = node.required_input(0), node.required_input(1)
    found = [stored(factor) for factor in factors]
    first, second = (value for value, _ in found)
    new.require(first.is_constant or second.is_constant, "no factor is a constant weight")
    new.require(not (first.is_constant and second.is_constant), "both factors are constant; fold them first")
    is_left = first.is_constant
    data, weight = (second, first) if is_left else (first, second)
    product = _product(node, data, weight, is_left, new)
    turned = found[0 if is_left else 1][1]
    return replace(product, transposes_weight=product.transposes_weight != turned)


def read_product(node: Node, new: Builder) -> Product:
    """Read a product as `product_of` does; `weight` is the factor that the product reads."""
    found = product_of(node, new)
    weight = node.required_input(0 if found.is_left else 1)
    return replace(found, weight=weight, transposes_weight=found.transposes_weight != stored(weight)[1])


def _product(node: Node, data: Value, weight: Value, is_left: bool, new: Builder) -> Product:
    new.require((weight.rank or 0) >= 2, "the weight is a vector")
    new.require(
        (weight.rank == 2 and not is_left) or (data.rank or 0) >= 2, "the other factor is not known to be a matrix"
    )
    if node.op == "MatMul":
        return Product(node, data, weight, is_left)
    flags = bool(node.attr("transA", 0)), bool(node.attr("transB", 0))
    of_data, of_weight = flags[::-1] if is_left else flags
    alpha = float(node.attr("alpha", 1.0))
    if node.op == "Gemm":
        beta = float(node.attr("beta", 1.0))
        return Product(node, data, weight, is_left, of_data, of_weight, alpha, beta, node.input(2))
    new.require(not node.attr("transBatchA", 0) and not node.attr("transBatchB", 0), "batches are transposed")
    new.require(not of_data or data.rank is not None, "the rank of the transposed factor is not known")
    return Product(node, data, weight, is_left, of_data, of_weight, alpha)
