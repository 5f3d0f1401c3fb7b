"""Integer tensors that hold their own coordinates: sums of multiples of the positions along each axis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from surgery import Node, Value

from ._targets import Extent

_DEEPEST = 32
"""Maximum depth of nodes that is examined."""


@dataclass(frozen=True)
class Grid:
    """Each element is the offset plus, for each axis in `factors`, the factor times the position along it."""

    factors: dict[int, Extent]
    offset: Extent


def grid(value: Value, depth: int = 0) -> Grid | None:
    """Return the grid of an integer tensor built by Range, sums, products and moves that keep the order; else None."""
    shape, elements = value.shape, value.elements
    if shape is None or None in shape or value.dtype is None or not value.dtype.is_integer() or depth > _DEEPEST:
        return None
    if elements is not None and len(elements) == 1:
        return Grid({}, elements[0])
    rule = None if value.producer is None else _RULES.get(value.producer.op)
    return None if rule is None or value.producer is None else rule(value.producer, depth + 1)


def _range(node: Node, depth: int) -> Grid | None:
    start, delta = node.required_input(0).elements, node.required_input(2).elements
    return None if start is None or delta is None else Grid({0: delta[0]}, start[0])


def _moved(node: Node, depth: int) -> Grid | None:
    """Follow the axes through a node that adds or removes axes of extent 1."""
    data, inner = node.required_input(0), grid(node.required_input(0), depth)
    if inner is None:
        return None
    before, after = (_long_axes(value) for value in (data, node.outputs[0]))
    if [extent for _, extent in before] != [extent for _, extent in after]:
        return None
    axes = {old: new for (old, _), (new, _) in zip(before, after)}
    return Grid({axes[axis]: factor for axis, factor in inner.factors.items()}, inner.offset)


def _long_axes(value: Value) -> list[tuple[int, Extent | None]]:
    return [(axis, extent) for axis, extent in enumerate(value.shape or ()) if extent != 1]


def _cast(node: Node, depth: int) -> Grid | None:
    kind = node.outputs[0].dtype
    return grid(node.required_input(0), depth) if kind is not None and kind.name in ("INT32", "INT64") else None


def _aligned(node: Node, index: int, depth: int) -> Grid | None:
    """Return the grid of an operand, with the axes of the result that it is broadcast to."""
    value, result = node.required_input(index), node.outputs[0].shape
    inner = grid(value, depth)
    if inner is None or result is None or value.shape is None:
        return None
    shift = len(result) - len(value.shape)
    if any(value.shape[axis] != result[axis + shift] for axis in inner.factors):
        return None
    return Grid({axis + shift: factor for axis, factor in inner.factors.items()}, inner.offset)


def _expand(node: Node, depth: int) -> Grid | None:
    return _aligned(node, 0, depth)


def _sum(node: Node, depth: int) -> Grid | None:
    one, other = _aligned(node, 0, depth), _aligned(node, 1, depth)
    if one is None or other is None or one.factors.keys() & other.factors.keys():
        return None
    if isinstance(one.offset, int) and isinstance(other.offset, int):
        return Grid({**one.factors, **other.factors}, one.offset + other.offset)
    return None


def _product(node: Node, depth: int) -> Grid | None:
    one, other = _aligned(node, 0, depth), _aligned(node, 1, depth)
    if one is None or other is None or (one.factors and other.factors):
        return None
    inner, times = (one, other.offset) if one.factors else (other, one.offset)
    if inner.offset != 0 or any(1 not in (factor, times) for factor in inner.factors.values()):
        return None
    return Grid({axis: times if factor == 1 else factor for axis, factor in inner.factors.items()}, 0)


_RULES: dict[str, Callable[[Node, int], Grid | None]] = {
    "Add": _sum,
    "Cast": _cast,
    "Expand": _expand,
    "Identity": _expand,
    "Mul": _product,
    "Range": _range,
    "Reshape": _moved,
    "Squeeze": _moved,
    "Unsqueeze": _moved,
}


def counts_up(value: Value, total: Extent | None) -> bool:
    """Return whether a tensor holds 0, 1, 2 ... in element order, with `total` elements."""
    found = grid(value)
    if found is None or found.offset != 0 or total is None:
        return False
    stride: Counter[Extent] = Counter()
    for axis, extent in reversed(_long_axes(value)):
        factor = found.factors.get(axis)
        if factor is None or extent is None or _parts(factor) != stride:
            return False
        stride += _parts(extent)
    return stride == _parts(total)


def _parts(extent: Extent) -> Counter[Extent]:
    """Return the factors of a product; any other expression is one factor."""
    if isinstance(extent, int):
        return Counter([extent] if extent != 1 else [])
    return Counter(extent.split("*") if "(" not in extent and " " not in extent else [extent])


def smallest(value: Value) -> int | None:
    """Return a lower bound of the elements of a tensor of coordinates; None if unknown."""
    found = grid(value)
    if found is None or not isinstance(found.offset, int) or not found.factors:
        return None
    rising = all(isinstance(factor, str) or factor >= 0 for factor in found.factors.values())
    return found.offset if rising else None
