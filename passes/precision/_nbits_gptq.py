"""Weights rounded row by row, so that later rows compensate for the errors of earlier rows in a product.

The squared error of a product x · W on the calibration data X is given by (W - Q)ᵀ · H · (W - Q) with H = Xᵀ · X. After
row k of W is rounded with the error e, the best change of each later row j is -e · u[j] / u[k], where u is row k of the
upper triangular U with Uᵀ · U = H⁻¹ (Frantar et al., GPTQ, 2022; Hassibi and Stork, 1993). Scales and zero points of
the blocks are found first, so the rows may be rounded in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery import Graph, Refusal, Value

from ._nbits_blocks import Array, Coder, Scheme, tiles
from ._nbits_products import PRODUCTS, Product, Weight

if TYPE_CHECKING:
    from ._nbits_sites import Quantizer, Tensors

_TOGETHER = 256 << 20
"""Maximum bytes of the matrices H that are accumulated in one run over the calibration data."""

_DAMPING = 0.01
"""Fraction of the mean of the diagonal of H that is added to the diagonal, so that H has an inverse."""

_LAZY = 128
"""Number of rows whose errors are compensated for in the rest of the weight at once."""

_COLUMNS = 2048
"""Columns that are rounded at once."""


@dataclass(frozen=True)
class _Wanted:
    """A weight to quantize, and all products that read it in the same way."""

    weight: Weight
    scheme: Scheme
    products: tuple[Product, ...]

    @property
    def hessian_bytes(self) -> int:
        return 4 * self.weight.rows**2


@dataclass
class Calibrated:
    """Quantizes the weights of all products of a model, using the data that reach them."""

    graph: Graph
    quantizer: Quantizer
    act_order: bool

    def __call__(self, product: Product, scheme: Scheme) -> Tensors:
        """Return the tensors of the quantized weight of a product."""
        weight = product.weight
        if product.node.scope is not self.graph.main:
            raise Refusal("the data is not from the main graph and is not recorded")
        self._prepare()
        return self._tensors(self._wanted[weight, scheme], None)

    @cached_property
    def _wanted(self) -> dict[tuple[Weight, Scheme], _Wanted]:
        found: dict[tuple[Weight, Scheme], _Wanted] = {}
        for node in self.graph.nodes(*PRODUCTS):
            try:
                product, scheme = self.quantizer.plan(node)
            except Refusal:
                continue  # reported by the site
            if node.scope is not self.graph.main:
                continue
            key = product.weight, scheme
            before = found[key].products if key in found else ()
            found[key] = _Wanted(*key, (*before, product))
        return found

    def _prepare(self) -> None:
        """Quantize all weights, with as many of the matrices H in memory as fit."""
        key = tuple((one.weight.value.name, *self._how(one)) for one in self._wanted.values())

        def make() -> bool:
            for group in _groups(list(self._wanted.values())):
                hessians = self._hessians(group)
                for one in group:
                    self._tensors(one, hessians[_data(one)])
            return True

        self.graph.remember(("all", key), make)

    def _how(self, wanted: _Wanted) -> tuple[Any, ...]:
        names = tuple((product.data.name, product.transposes_data) for product in wanted.products)
        return wanted.weight.turned, wanted.scheme, self.quantizer.form, self.act_order, names

    def _tensors(self, wanted: _Wanted, hessian: Array | None) -> Tensors:
        """Return the tensors of a weight, computed with its matrix H unless they are remembered."""

        def make() -> Tensors:
            assert hessian is not None
            layout = self.quantizer.layout(wanted.weight, wanted.scheme)
            matrix, order = wanted.weight.matrix(), _order(hessian, self.act_order)
            factor = _factor(hessian, order)
            for start in range(0, wanted.weight.columns, _COLUMNS):
                part = matrix[:, start : start + _COLUMNS]
                layout.put(0, start, *_rounded(part, wanted.scheme, order, factor))
            return layout.tensors()

        return self.graph.remember((wanted.weight.value.name, self._how(wanted)), make)

    def _hessians(self, group: Sequence[_Wanted]) -> dict[frozenset[_Read], Array]:
        """Return H for the data of each weight, from the sum of xᵀ · x in one run over the calibration data."""
        readers: dict[Value, dict[_Read, Product]] = {}
        for product in (product for one in group for product in one.products):
            readers.setdefault(product.data, {}).setdefault(_read(product), product)
        sums = {
            read: np.zeros((product.weight.rows,) * 2, np.float32)
            for found in readers.values()
            for read, product in found.items()
        }
        counts = dict.fromkeys(sums, 0)
        for value, array in self.graph.recordings(list(readers)):
            for read, product in readers[value].items():
                rows = np.ascontiguousarray(product.rows_of(array), np.float32)
                rows = rows[np.isfinite(rows).all(axis=1)]
                sums[read] += rows.T @ rows
                counts[read] += len(rows)
        found = {}
        for data in {_data(one) for one in group}:
            first, *others = sorted(data)
            total = sum((sums[read] for read in others), sums[first])
            found[data] = _shrunk(total, sum(counts[read] for read in data))
        return found


_Read = tuple[str, bool]
"""The name of the data of a product, and whether they are transposed."""


def _read(product: Product) -> _Read:
    return product.data.name, product.transposes_data


def _data(wanted: _Wanted) -> frozenset[_Read]:
    return frozenset(map(_read, wanted.products))


def _groups(wanted: list[_Wanted]) -> Iterator[list[_Wanted]]:
    """Divide the weights into groups whose matrices H fit in memory together."""
    group: list[_Wanted] = []
    known: set[_Read] = set()
    size = 0
    for one in wanted:
        more = one.hessian_bytes * len(_data(one) - known)
        if group and size + more > _TOGETHER:
            yield group
            group, known, size = [], set(), 0
            more = one.hessian_bytes * len(_data(one))
        group.append(one)
        known |= _data(one)
        size += more
    if group:
        yield group


def _shrunk(hessian: Array, count: int) -> Array:
    """Return H as it is to be expected on other data, estimated from `count` rows.

    From few rows, some elements of the data seem to depend on others that they do not depend on, and compensation for
    the one would harm the other. So the correlations are reduced by the oracle approximating shrinkage of Chen, Wiesel,
    Eldar and Hero, 2010.
    """
    deviations = np.sqrt(np.diagonal(hessian), dtype=np.float64)
    deviations[deviations == 0] = 1
    size, inverse = len(hessian), (1 / deviations).astype(np.float32)
    squares = float(np.einsum("ij,ij,i,j->", hessian, hessian, inverse**2, inverse**2, optimize=True))
    excess = (count + 1 - 2 / size) * (squares - size)
    share = min(1.0, ((1 - 2 / size) * squares + size**2) / excess) if excess > 0 else 1.0
    shrunk: Array = hessian * np.float32(1 - share)
    np.einsum("ii->i", shrunk)[:] = np.diagonal(hessian)
    return shrunk


def _order(hessian: Array, act_order: bool) -> Array:
    """Return the order in which rows are rounded: those with the largest data first, or the original order."""
    if not act_order:
        return np.arange(len(hessian))
    order: Array = np.argsort(-np.diagonal(hessian), kind="stable")
    return order


def _factor(hessian: Array, order: Array) -> Array:
    """Return the upper triangular U with Uᵀ · U = H⁻¹, its rows in the given order.

    With the axes of H reversed, the Cholesky decomposition is H = L · Lᵀ, and U is the inverse of L with its axes
    reversed again.
    """
    turned = hessian[np.ix_(order[::-1], order[::-1])].astype(np.float64 if len(order) <= 4096 else np.float32)
    diagonal = np.einsum("ii->i", turned)
    # Weights of data that are always zero do not matter, and are rounded on their own.
    diagonal[diagonal == 0] = 1
    damping = _DAMPING * diagonal.mean()
    for _ in range(6):
        diagonal += damping
        try:
            lower = np.linalg.cholesky(turned)
        except np.linalg.LinAlgError:
            damping *= 10
        else:
            inverse: Array = np.linalg.inv(lower)
            return np.ascontiguousarray(inverse[::-1, ::-1], np.float32)
    return np.eye(len(order), dtype=np.float32)


def _rounded(part: Array, scheme: Scheme, order: Array, factor: Array) -> tuple[Array, Array, Array]:
    """Return codes [blocks, block, columns], scales and zero points [blocks, columns] of some columns of a weight."""
    rows, columns = part.shape
    blocks = -(-rows // scheme.block)
    scale, zero = np.empty((2, blocks, columns), np.float32)
    coder = Coder(scheme)
    for block, column, weights in tiles(part, scheme.block):
        place = slice(block, block + len(weights)), slice(column, column + weights.shape[2])
        scale[place], zero[place] = coder.fit(weights)
    codes = np.empty((blocks * scheme.block, columns), np.uint8)
    codes[rows:] = zero[-1].astype(np.uint8)
    weights = part[order].astype(np.float32)
    for start in range(0, rows, _LAZY):
        stop = min(start + _LAZY, rows)
        errors = np.empty((stop - start, columns), np.float32)
        for row in range(start, stop):
            block = order[row] // scheme.block
            code = np.clip(np.rint(weights[row] / scale[block] + zero[block]), 0, scheme.top)
            codes[order[row]] = code
            error = np.subtract(weights[row], (code - zero[block]) * scale[block], out=errors[row - start])
            error /= factor[row, row]
            weights[row:stop] -= np.outer(factor[row, row:stop], error)
        weights[stop:] -= factor[start:stop, stop:].T @ errors
    return codes.reshape(blocks, scheme.block, columns), scale, zero
