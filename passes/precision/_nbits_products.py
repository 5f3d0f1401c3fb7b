"""Products with a constant matrix, and rows gathered from one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surgery import Node, Refusal, Value, is_computed

from ._nbits_blocks import Array
from ._stored_weights import stored

PRODUCTS = ("MatMul", "Gemm")


@dataclass(frozen=True)
class Weight:
    """A constant matrix [K, N] of a product; with `turned` it is stored as [N, K].

    `kind` is the element type in which the product reads it; it may be stored in a narrower one. For a table, the
    columns are the rows that are gathered.
    """

    value: Value
    turned: bool
    kind: Any

    @property
    def rows(self) -> int:
        """K, the number of products that are added up."""
        return self._stored[1 if self.turned else 0]

    @property
    def columns(self) -> int:
        """N, the number of results."""
        return self._stored[0 if self.turned else 1]

    @property
    def nbytes(self) -> int:
        """The present size in bytes."""
        return self.value.tensor.nbytes if self.value.tensor is not None else 0

    @property
    def dtype(self) -> str:
        """The NumPy name of the element type."""
        return str(self.kind.numpy().name) if self.kind is not None else ""

    @property
    def _stored(self) -> tuple[int, ...]:
        return self.value.static_shape or (0, 0)

    def matrix(self) -> Array:
        """Return the elements [K, N], as a view of the file if they are large."""
        array = self.value.constant
        assert array is not None
        if self.value.dtype != self.kind:
            array = array.astype(self.dtype)
        return array.T if self.turned else array


@dataclass(frozen=True)
class Product:
    """alpha · data · weight + beta · addend, where the data may be transposed first."""

    node: Node
    data: Value
    weight: Weight
    transposes_data: bool = False
    alpha: float = 1.0
    beta: float = 0.0
    addend: Value | None = None

    def rows_of(self, data: Array) -> Array:
        """Return recorded data as rows [rows, K]."""
        return (data.T if self.transposes_data else data).reshape(-1, self.weight.rows)

    def bias(self) -> Array | None:
        """Return beta · addend as one number for each column; None if it is not a constant of that form."""
        array = None if self.addend is None else self.addend.constant
        columns = self.weight.columns
        if array is None or array.size not in (1, columns) or (array.ndim > 0 and array.shape[-1] != array.size):
            return None
        scaled = array.reshape(-1).astype(np.float64) * self.beta
        return np.broadcast_to(scaled, (columns,)).astype(array.dtype)


def read_product(node: Node) -> Product:
    """Read a MatMul or a Gemm; refuse it unless its right factor is a constant matrix."""
    data, factor = node.required_input(0), node.required_input(1)
    weight = _weight(factor)
    if weight is None and _weight(data) is not None:
        raise Refusal("the constant factor is the left one")
    if weight is None:
        raise Refusal("no factor is a constant weight")
    if weight.value.rank != 2:
        raise Refusal("the weight is not a single matrix")
    _require_type(node, weight)
    if node.op == "MatMul":
        return Product(node, data, weight)
    if node.attr("transB"):
        weight = replace(weight, turned=not weight.turned)
    alpha, beta = float(node.attr("alpha", 1.0)), float(node.attr("beta", 1.0))
    addend = node.input(2) if beta else None
    return Product(node, data, weight, bool(node.attr("transA")), alpha, beta, addend)


def read_table(node: Node) -> Weight:
    """Read the table that a Gather takes rows from; refuse other Gathers."""
    table = node.required_input(0)
    if table.tensor is None:
        raise Refusal("the gathered tensor is not constant")
    if table.rank != 2 or node.attr("axis") not in (0, -2):
        raise Refusal("the gathered values are not rows of a matrix")
    weight = Weight(table, turned=True, kind=table.dtype)
    _require_type(node, weight)
    return weight


def _weight(factor: Value) -> Weight | None:
    """Return a constant factor, transposed or cast or as it is; a constant with other readers stays in the graph."""
    value, turned = stored(factor)
    is_matrix = value.tensor is not None and (value is factor or value.rank == 2)
    return Weight(value, turned, factor.dtype) if is_matrix else None


def _require_type(node: Node, weight: Weight) -> None:
    if not is_computed("MatMul", weight.kind):
        raise Refusal("the weight is neither float32 nor float16")
