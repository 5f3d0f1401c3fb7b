"""Heads as columns of one tensor of rank 3, traced through Reshape, Split and Transpose."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from surgery import Builder, Node, Value

from ._core import Side, keeps, only_reader, scalar_factor
from ._linear import Array
from ._shared import split

_STEPS = 8
"""Maximum number of nodes followed from heads back to the tensor that they are cut from."""


@dataclass(frozen=True)
class Columns:
    """`count` heads of `size` in the columns of `flat`, [batch, sequence, total], from `low` on, times `factor`.

    `flat` is of rank 4, [batch, sequence, heads, size], if the tensor that is cut into heads is not of rank 3.
    Otherwise `reader` is the node that reads `flat` for the heads. `ready` is a value of rank 3 that holds exactly
    these columns, if one exists.
    """

    flat: Value
    reader: Node
    low: int
    count: int
    size: int
    total: int
    factor: float = 1.0
    ready: Value | None = None

    @property
    def width(self) -> int:
        """The number of columns of the heads."""
        return self.count * self.size


def columns(side: Side, *, scaled: bool = False) -> Columns | None:
    """Find the tensor that heads are cut from; with `scaled`, also step over scalar factors."""
    if side.count:
        return _uncut(side, scaled=scaled)
    if side.perm not in ((), (0, 2, 1, 3)):
        return None
    value, axis, low, count, factor = side.value, 1 if not side.perm else 2, 0, 0, 1.0
    for _ in range(_STEPS):
        node, scale = value.producer, scalar_factor(value.producer) if scaled else None
        if node is None:
            return None
        part = _part(value, node, axis)
        if scale is not None and only_reader(value) is not None:
            value, factor = scale[0], factor * scale[1]
        elif node.op == "Transpose" and node.attr("perm") == [0, 2, 1, 3]:
            value, axis = node.required_input(0), 3 - axis
        elif part is not None:
            value, low, count = node.required_input(0), low + part[0], count or part[1]
        elif node.op == "Reshape" and axis == 2:
            found = _cut(node, low, count)
            return None if found is None else _before_splits(replace(found, factor=factor), scaled=scaled)
        else:
            return None
    return None


def _uncut(side: Side, *, scaled: bool) -> Columns | None:
    """Return the columns of a tensor that a Transpose reads and that is not yet cut into heads."""
    reader = next((node for node in side.value.consumers if node.op == "Transpose"), None)
    extents = side.value.shape
    width = None if extents is None else extents[-1]
    if reader is None or not isinstance(width, int):
        return None
    found = Columns(side.value, reader, 0, side.count, width // side.count, width, ready=side.value)
    return _before_splits(found, scaled=scaled)


def _part(value: Value, node: Node, axis: int) -> tuple[int, int, int] | None:
    """Return the start and length of an output of a Split along `axis`, and the total length; None if unknown."""
    if node.op != "Split" or value.rank is None or node.attr("axis", 0) % value.rank != axis:
        return None
    widths = [None if output.shape is None else output.shape[axis] for output in node.outputs]
    known = [width for width in widths if isinstance(width, int)]
    place = value.output_index or 0
    return (sum(known[:place]), known[place], sum(known)) if len(known) == len(widths) else None


def _cut(reshape: Node, low: int, count: int) -> Columns | None:
    """Read the Reshape that cuts columns into heads."""
    flat, heads = reshape.required_input(0), reshape.outputs[0]
    cut = heads.shape
    if cut is None or len(cut) != 4 or not isinstance(cut[2], int) or not isinstance(cut[3], int):
        return None
    count, size, total = count or cut[2], cut[3], cut[2] * cut[3]
    if flat.rank == 3 and keeps(reshape, 2):
        return Columns(flat, reshape, low * size, count, size, total, ready=flat if count == cut[2] else None)
    return Columns(heads, reshape, low * size, count, size, total)


def _before_splits(found: Columns, *, scaled: bool) -> Columns:
    """Step over the Splits that produce the columns and, with `scaled`, over scalar factors."""
    for _ in range(_STEPS):
        flat, node = found.flat, found.flat.producer
        if node is None or flat.rank != 3:
            break
        part = _part(flat, node, 2)
        scale = scalar_factor(node) if scaled else None
        if scale is not None and only_reader(flat) is not None and scale[0].shape == flat.shape:
            ready = scale[0] if found.ready == flat else None
            found = replace(found, flat=scale[0], reader=node, factor=found.factor * scale[1], ready=ready)
        elif part is not None:
            found = replace(found, flat=node.required_input(0), reader=node, low=found.low + part[0], total=part[2])
        else:
            break
    return found


def laid_out(parts: Sequence[Columns], new: Builder, opset: int) -> list[Value]:
    """Return each part as a tensor of rank 3; parts of the same tensor share one Split."""
    made: dict[Value, dict[int, Value]] = {}
    return [part.ready or _taken(part, parts, made, new, opset) for part in parts]


def _taken(
    part: Columns, parts: Sequence[Columns], made: dict[Value, dict[int, Value]], new: Builder, opset: int
) -> Value:
    """Return the columns of one part from the Split shared by all parts of its tensor."""
    if part.flat not in made:
        ranges = sorted({(other.low, other.low + other.width) for other in parts if other.flat == part.flat})
        bounds = [0, *(bound for pair in ranges for bound in pair), part.total]
        new.require(bounds == sorted(bounds), "the heads of queries, keys and values overlap")
        sizes = [high - low for low, high in pairwise(bounds)]
        flat = part.flat
        if flat.rank == 4:
            flat = new.node("Reshape", flat, new.constant(np.array([0, 0, part.total], np.int64), "flat"))
        kept = [(low, size) for low, size in zip(bounds, sizes) if size]
        outputs = (flat,) if len(kept) == 1 else split(flat, 2, [size for _, size in kept], new, opset)
        made[part.flat] = {low: output for (low, _), output in zip(kept, outputs)}
    return made[part.flat][part.low]


@dataclass(frozen=True)
class Biased:
    """A product and the constant that is added to each of its rows."""

    product: Value
    bias: Array


def biased(parts: Sequence[Columns]) -> dict[Value, Biased]:
    """Map each biased sum that only these parts read to its product and bias."""
    found: dict[Value, Biased] = {}
    for part in parts:
        flat, node = part.flat, part.flat.producer
        readers = {other.reader for other in parts if other.flat == flat}
        if node is None or node.op != "Add" or flat.rank != 3 or flat.is_output or set(flat.consumers) - readers:
            continue
        for product, bias in (node.inputs, node.inputs[::-1]):
            inner = None if product is None else product.producer
            constant = None if bias is None or bias.is_output else bias.constant
            if product is None or inner is None or not _is_product(inner) or constant is None:
                continue
            if (
                constant.shape[-1:] == (part.total,)
                and constant.size == part.total
                and only_reader(product) is not None
            ):
                found[flat] = Biased(product, constant.reshape(-1))
    return found


def _is_product(node: Node) -> bool:
    """Return whether a node is a MatMul, or a Split of the result of a MatMul with or without a bias."""
    if node.op != "Split":
        return node.op == "MatMul"
    source = node.required_input(0).producer
    if source is not None and source.op == "Add":
        makers = [value.producer for value in source.inputs if value is not None and not value.is_constant]
        source = makers[0] if len(makers) == 1 else None
    return source is not None and source.op == "MatMul"


def on_products(parts: Sequence[Columns], sums: dict[Value, Biased]) -> list[Columns]:
    """Return the parts as columns of the products before the biases are added."""
    return [
        part if part.flat not in sums else replace(part, flat=sums[part.flat].product, ready=_moved(part, sums))
        for part in parts
    ]


def _moved(part: Columns, sums: dict[Value, Biased]) -> Value | None:
    return sums[part.flat].product if part.ready == part.flat else None


def joint_bias(parts: Sequence[Columns], sums: dict[Value, Biased]) -> Array:
    """Return the concatenated biases of all parts; zeros for parts without a bias."""
    dtype = next(iter(sums.values())).bias.dtype
    return np.concatenate(
        [
            sums[part.flat].bias[part.low : part.low + part.width] if part.flat in sums else np.zeros(part.width, dtype)
            for part in parts
        ]
    )
