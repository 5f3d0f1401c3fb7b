"""The sets of values that a region is tried with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from surgery.base.operators.moving import EXTENTS, REARRANGING
from surgery.base.promises import Parity
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.input_sets import CHEAP, SECOND
from surgery.verification.regions.region_values import Point
from surgery.verification.regions.regions import Region

MOVING = REARRANGING | EXTENTS | {"Constant"}
"""Operators that pass elements on unchanged, or compute with shapes alone."""

_LARGE = 1 << 20
"""Number of elements given to a region above which few sets show as much as many sets of fewer elements."""


def bindings(region: Region, points: Sequence[Point], promise: Parity, cost: float, *, few: bool) -> list[Binding]:
    """Choose kinds of data for some of the points; each point gets at least one, unless few sets must suffice."""
    first, second, *others = [point.binding for point in [*points, *points[:1]][: len(points) + (len(points) == 1)]]
    if not region.given:
        # A second run shows that the result is the same each time.
        return [first] if promise is Parity.EXACT else [first, replace(first, seed=1)]
    kinds_of_nodes = operators(region)
    is_large = elements(region, points[0]) > _LARGE
    if is_large and kinds_of_nodes <= MOVING:
        return [point.binding for point in points]
    if few:
        return [first, replace(second, character=SECOND)]
    largest = max(points[1:] or points, key=lambda point: elements(region, point)).binding
    if is_large or cost > CHEAP:
        return [first, replace(largest, character=SECOND)]
    if kinds_of_nodes <= MOVING or not any(points[0].forms[name].is_drawn for name in region.given):
        # Operators that move elements do so for any elements, and integers come from the original.
        return [point.binding for point in points] + [replace(point.binding, seed=1) for point in points]
    kinds = [(first, "normal"), (second, SECOND), (first, "near"), (second, "wide"), (first, "small")]
    kinds += [(second, "coarse"), *((binding, "normal") for binding in others)]
    if promise is Parity.EXACT:
        # Effects that few numbers show (one that is compared with, two that are equal) need many elements.
        kinds += [(largest, "near"), (largest, "coarse"), (first, "special")]
    chosen = [replace(binding, character=character) for binding, character in kinds]
    return [one for number, one in enumerate(chosen) if one not in chosen[:number]]


def shapes(region: Region, point: Point) -> dict[str, list[int]]:
    """Return the shapes of the values given to a region at a point."""
    return {name: list(point.forms[name].shape) for name in region.given}


def by_size(regions: Iterable[Region], point: Point) -> list[Region]:
    """Sort regions by the number of elements given to them at a point."""
    return sorted(regions, key=lambda region: elements(region, point))


def elements(region: Region, point: Point) -> int:
    """Count the elements given to a region at a point, where forms are known."""
    return sum(math.prod(point.forms[name].shape) for name in region.given if name in point.forms)


def operators(region: Region) -> set[str]:
    """Return the operator types of both pieces of a region."""
    return {node.op_type for piece in (region.before, region.after) for node in piece.graph.node}
