"""Dims that meet in a broadcast: each of the two may be 1 while the other is larger.

In an Einsum this holds for each label of several operands, also for one that is summed (`einsum_auxiliary_ops` and
`einsum_compute_preprocessor` of ONNX Runtime repeat the operand).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from surgery.base.operators import traits
from surgery.model.shapes.declarations import Extent
from surgery.model.shapes.linear import names as names_in

if TYPE_CHECKING:
    import onnx_ir as ir

Pair = tuple[Extent, Extent]
Shape = Sequence[Extent]
Shapes = Callable[["ir.Value | None"], "list[Extent] | None"]

ELEMENTWISE = traits.BROADCASTING | traits.NORMALIZING
_CONTRIB = frozenset({"QLinearAdd", "QLinearMul", "QLinearWhere", "SkipGroupNorm", "SkipLayerNormalization"})
PRODUCTS = frozenset({"FusedGemm", "FusedMatMul", "Gemm", "GemmFastGelu", "MatMul"})

_MOST = 64
"""Maximum number of pairs of dims that are tried."""


def broadcasts(node: ir.Node) -> bool:
    """Return whether all dims that meet in a node are broadcast to each other."""
    return node.op_type in ELEMENTWISE | _CONTRIB | {"Einsum", "Expand"}


def meeting(
    nodes: Iterable[ir.Node], shape: Shapes, elements: Shapes, names: Mapping[str, str], equal: Mapping[str, Extent]
) -> list[list[str]]:
    """Return dims that meet other dims in a broadcast, each followed by the dims that the other extent depends on.

    `names` are the names of the symbols, and `equal` extents of the symbols that inference made up.
    """
    found: dict[tuple[str, ...], None] = {}
    for node in nodes:
        for pair in _loose(node, shape, elements):
            first, second = (_resolved(extent, equal) for extent in pair)
            for one, other in ((first, second), (second, first)):
                if one in names and isinstance(other, str) and one != other:
                    others = dict.fromkeys(names[symbol] for symbol in names_in(other) if symbol in names)
                    if others and names[str(one)] not in others:
                        found[names[str(one)], *others] = None
    return [list(item) for item in found][:_MOST]


def _resolved(extent: Extent, equal: Mapping[str, Extent]) -> Extent:
    for _ in range(8):
        if not isinstance(extent, str) or extent not in equal:
            break
        extent = equal[extent]
    return extent


def _loose(node: ir.Node, shape: Shapes, elements: Shapes) -> Iterator[Pair]:
    """Yield the pairs of extents of which either may be 1, as far as the operator goes."""
    shapes = [shape(value) for value in node.inputs]
    known = [found for found in shapes if found is not None]
    op = node.op_type
    if op in ELEMENTWISE or op in _CONTRIB:
        for first, second in combinations(known, 2):
            yield from _aligned(first, second)
    elif op == "Expand" and shapes[0] is not None:
        yield from _aligned(shapes[0], elements(node.inputs[1]) or ())
    elif op == "Einsum":
        yield from einsum_pairs(node, shapes)
    elif op in PRODUCTS and len(known) >= 2 and shapes[0] and shapes[1]:
        if "Gemm" not in op:
            yield from _aligned(shapes[0][:-2], shapes[1][:-2])
        result = shape(node.outputs[0])
        if len(known) > 2 and result is not None:
            yield from _aligned(result, known[2])


def _aligned(first: Shape, second: Shape) -> Iterator[Pair]:
    return zip(reversed(first), reversed(second))


def einsum_pairs(node: ir.Node, shapes: Sequence[Shape | None]) -> Iterator[Pair]:
    """Yield the pairs of extents of each label that several operands have; those of an ellipsis are aligned."""
    attribute = node.attributes.get("equation")
    equation = "" if attribute is None or attribute.is_ref() else str(attribute.value)
    found: dict[str, list[Extent]] = defaultdict(list)
    for term, extents in zip(equation.replace(" ", "").partition("->")[0].split(","), shapes):
        head, dots, tail = term.partition("...")
        if extents is None or len(extents) < len(head) + len(tail):
            continue
        open_axes = len(extents) - len(head) - len(tail)
        labels = [*head, *(f"...{place}" for place in range(-open_axes, 0) if dots), *tail]
        for label, extent in zip(labels, extents):
            found[label].append(extent)
    for extents in found.values():
        yield from combinations(extents, 2)
