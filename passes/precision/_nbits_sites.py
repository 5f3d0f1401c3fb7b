"""One site of `quantize-weights`: the conversion of a product, or of a table whose rows are gathered."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Refusal, Value, packed_tensor

from ._dequantizing import takes
from ._nbits_blocks import Coder, Scheme, tiles
from ._nbits_layouts import ColumnLayout, Layout, RowLayout, SignedTableLayout, TableLayout
from ._nbits_products import Product, Weight, read_product, read_table

BITS = (8, 4, 2)
BLOCKS = (16, 32, 64, 128, 256)

_FIRST_OPSETS = {"block_size": 21, "whole columns": 13, "float16": 19, 8: 13, 4: 21, 2: 25}
"""The first opsets in which DequantizeLinear has blocks, an axis, float16 scales, and codes of 8, 4 or 2 bits."""

Tensors = tuple[Any, ...]


@dataclass
class Quantizer:
    """Creates the operators for quantized weights, according to the options of the pass."""

    graph: Graph
    bits: int
    block: int
    symmetric: bool
    method: str
    form: str
    accuracy_level: int
    min_elements: int
    calibrated: Callable[[Product, Scheme], Tensors] | None = None
    _made: dict[Hashable, tuple[Any, Value]] = field(default_factory=dict)

    @property
    def is_standard(self) -> bool:
        """Whether only standard ONNX operators are created."""
        return self.form == "standard"

    def plan(self, node: Node) -> tuple[Product, Scheme]:
        """Read a product and choose how its weight is quantized; refuse a weight that cannot be."""
        product = read_product(node)
        weight = product.weight
        scheme = self._scheme(weight)
        if product.alpha != 1.0 and scheme.scale_type == "float16" and not self.is_standard:
            raise Refusal("the product is scaled by alpha, and its scales are float16")
        self._require_gain(weight, scheme)
        if self.is_standard:
            self._require_opset(node, scheme, weight)
        return product, scheme

    def product(self, node: Node, new: Builder) -> None:
        """Make a product read a quantized weight."""
        product, scheme = self.plan(node)
        if self.calibrated is not None:
            tensors = self.calibrated(product, scheme)
        else:
            tensors = self._remembered(product.weight, scheme)
        if product.alpha != 1.0 and not self.is_standard:
            tensors = self._scaled(product, scheme, tensors)
        parts = self._values(node, product.weight, tensors, new)
        make = self._standard_product if self.is_standard else self._matmul_n_bits
        made = make(product, scheme, parts, new)
        new.replace(node.outputs[0], made)
        new.changes(made)

    def table(self, node: Node, new: Builder) -> None:
        """Gather rows of a quantized table."""
        weight = read_table(node)
        new.require(not self.is_standard or self.bits == 8, "ONNX Runtime gathers no elements narrower than a byte")
        scheme = self._scheme(weight)
        gathers = not self.is_standard or takes(self.graph, "Gather", "int8" if self.symmetric else "uint8")
        new.require(gathers, "the target gathers no 8-bit integers")
        new.require(weight.rows % scheme.block == 0, "the rows of the table are not whole blocks")
        self._require_gain(weight, scheme)
        if self.is_standard:
            new.require(
                node.opset >= _FIRST_OPSETS["block_size"], "DequantizeLinear supports blocks in rows since opset 21"
            )
        parts = self._values(node, weight, self._remembered(weight, scheme, flat=True), new)
        make = self._standard_gather if self.is_standard else self._gather_block_quantized
        new.replace(node.outputs[0], make(node, scheme, parts, new))

    # Schemes

    def _scheme(self, weight: Weight) -> Scheme:
        """Return how a weight is quantized; refuse one that is too small or has no blocks of the requested size."""
        if weight.rows * weight.columns < max(self.min_elements, 1):
            raise Refusal("the weight has few elements")
        return Scheme(
            self.bits,
            self._block(weight.rows),
            self.symmetric,
            negates=not self.is_standard,
            searches=self.method != "rtn",
            scale_type=weight.dtype,
        )

    def _block(self, rows: int) -> int:
        if self.is_standard:
            return rows if not self.block or self.block >= rows else self.block
        # No larger than needed to hold a column padded with zeros.
        whole = max(1 << (rows - 1).bit_length(), min(BLOCKS))
        if not self.block and whole != rows:
            raise Refusal("MatMulNBits has no blocks of this number of rows")
        return min(self.block or rows, whole)

    def _require_gain(self, weight: Weight, scheme: Scheme) -> None:
        blocks = -(-weight.rows // scheme.block)
        padded = weight.rows if self.is_standard else blocks * scheme.block
        size = weight.columns * (padded * scheme.bits // 8 + blocks * np.dtype(scheme.scale_type).itemsize)
        if size >= weight.nbytes:
            raise Refusal("the quantized weight would not be smaller")

    def _require_opset(self, node: Node, scheme: Scheme, weight: Weight) -> None:
        blocks = "whole columns" if scheme.block == weight.rows else "block_size"
        first = max(_FIRST_OPSETS.get(what, 0) for what in (scheme.bits, blocks, scheme.scale_type))
        if node.opset < first:
            raise Refusal(f"DequantizeLinear supports such weights since opset {first}")

    # The weights

    def _remembered(self, weight: Weight, scheme: Scheme, *, flat: bool = False) -> Tensors:
        """Return the tensors of a quantized weight, computed once for all runs on the committed model."""

        def make() -> Tensors:
            coder, layout = Coder(scheme), self.layout(weight, scheme, flat=flat)
            for block, column, weights in tiles(weight.matrix(), scheme.block):
                layout.put(block, column, *coder.quantize(weights))
            return layout.tensors()

        return self.remember(weight, (weight.turned, scheme, self.form, flat), make)

    def remember(self, weight: Weight, how: Hashable, make: Callable[[], Tensors]) -> Tensors:
        """Return tensors made from a weight, possibly in an earlier run on the committed model."""
        if weight.value.scope is not self.graph.main:
            return make()  # subgraphs may use the same name for a different value
        return self.graph.remember((weight.value.name, how), make)

    def layout(self, weight: Weight, scheme: Scheme, *, flat: bool = False) -> Layout:
        """Return the layout that stores the codes of a weight; `flat` for the rows of a table."""
        if flat:
            return (SignedTableLayout if self.is_standard else TableLayout)(scheme, weight.rows, weight.columns)
        return (RowLayout if self.is_standard else ColumnLayout)(scheme, weight.rows, weight.columns)

    def _scaled(self, product: Product, scheme: Scheme, tensors: Tensors) -> Tensors:
        """Return the tensors of a weight times alpha."""
        codes, scales, *zero_points = tensors

        def make() -> Tensors:
            return (packed_tensor((scales.numpy() * np.float64(product.alpha)).astype(scheme.scale_type)),)

        how = "alpha", product.weight.turned, scheme, product.alpha, id(scales)
        return (codes, *self.remember(product.weight, how, make), *zero_points)

    def _values(self, node: Node, weight: Weight, tensors: Tensors, new: Builder) -> tuple[Value, ...]:
        """Return initializers with tensors for a node; those of an earlier site are reused if they still exist.

        A site that is skipped leaves nothing in the graph.
        """
        found = []
        for tensor, name in zip(tensors, ("quantized", "scales", "zero_points")):
            _, made = self._made.get((node.scope, id(tensor)), (tensor, None))
            if made is None or made.scope is not node.scope:
                made = new.constant(tensor, f"{weight.value.name}_{name}")
                self._made[node.scope, id(tensor)] = tensor, made
            found.append(made)
        return tuple(found)

    # The operators

    def _matmul_n_bits(self, product: Product, scheme: Scheme, parts: tuple[Value, ...], new: Builder) -> Value:
        data, weight, bias = product.data, product.weight, product.bias()
        if product.transposes_data:
            data = new.node("Transpose", data, perm=[1, 0])
        codes, scales, zero_points = (*parts, None)[:3]
        added = None if bias is None else new.constant(bias, f"{product.node.name or weight.value.name}_bias")
        result = new.node(
            "com.microsoft::MatMulNBits",
            *(data, codes, scales, zero_points, None, added),
            name=product.node.name,
            K=weight.rows,
            N=weight.columns,
            bits=scheme.bits,
            block_size=scheme.block,
            accuracy_level=self.accuracy_level,
        )
        if product.addend is None or added is not None:
            return result
        addend = product.addend
        if product.beta != 1.0:
            beta = np.array(product.beta, scheme.scale_type)
            addend = new.node("Mul", addend, new.constant(beta, "beta"))
        return new.node("Add", result, addend)

    def _standard_product(self, product: Product, scheme: Scheme, parts: tuple[Value, ...], new: Builder) -> Value:
        # One for each product, even of the same weight: ONNX Runtime fuses this form into MatMulNBits.
        weight = _dequantized(parts, scheme, product.weight.rows, new)
        node, (data, _, *rest) = product.node, product.node.inputs
        attributes = {name: held for name, held in node.attributes.items() if name != "transB"}
        return new.node(node.op, data, weight, *rest, name=node.name, attributes=attributes)

    def _gather_block_quantized(self, node: Node, scheme: Scheme, parts: tuple[Value, ...], new: Builder) -> Value:
        codes, *rest = parts
        return new.node(
            "com.microsoft::GatherBlockQuantized",
            *(codes, node.required_input(1), *rest),
            name=node.name,
            bits=scheme.bits,
            block_size=scheme.block,
            gather_axis=0,
            quantize_axis=1,
        )

    def _standard_gather(self, node: Node, scheme: Scheme, parts: tuple[Value, ...], new: Builder) -> Value:
        indices = node.required_input(1)
        rows = [new.node("Gather", part, indices) for part in parts]
        return new.node("DequantizeLinear", *rows, axis=-1, block_size=scheme.block)


def _dequantized(parts: tuple[Value, ...], scheme: Scheme, rows: int, new: Builder) -> Value:
    """Return the weight [K, N] computed from its codes, scales and zero points."""
    if scheme.block == rows:
        return new.node("DequantizeLinear", *parts, axis=1)
    return new.node("DequantizeLinear", *parts, axis=0, block_size=scheme.block)
