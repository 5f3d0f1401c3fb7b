"""Patterns of regions, so that what one of many similar regions has shown need not be shown again by the others."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from surgery.base.operators.subgraphs import subgraphs
from surgery.verification.comparing.fingerprint import content as stored
from surgery.verification.regions.definitions import Definitions
from surgery.verification.regions.region_feeding import bounding
from surgery.verification.regions.region_values import Point
from surgery.verification.regions.regions import Region

if TYPE_CHECKING:
    import onnx

_FEW = 64
"""Largest number of elements of a constant that counts as part of the computation."""


@dataclass(frozen=True)
class Pattern:
    """A region without names.

    Regions of one `family` have the same operators and attributes. If they also have the same extents and small
    constants (`details`), they compute the same, except for the contents of large constants; `weights` says whether
    there are any.
    """

    family: Hashable
    details: Hashable
    weights: bool


def pattern_of(region: Region, points: Sequence[Point], before: Definitions) -> Pattern | None:
    """Return the pattern of a region; None if it has subgraphs, functions or sparse initializers.

    `before` is the model that produces the values given to it: the values that it may produce belong to the pattern.
    """
    numbers: dict[str, int] = {}

    def number(name: str) -> int:
        return numbers.setdefault(name, len(numbers)) if name else -1

    family: list[Hashable] = []
    details: list[Hashable] = []
    weights = False
    for piece in (region.before, region.after):
        if piece.functions or piece.graph.sparse_initializer:
            return None
        family.append(tuple((item.domain, item.version) for item in piece.opset_import))
        for node in piece.graph.node:
            if any(subgraphs(node)):
                return None
            attributes = tuple(sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute))
            names = tuple(map(number, node.input)), tuple(map(number, node.output))
            family.append((node.domain, node.op_type, *names, attributes))
        # The elements of large weights are left out, so that repeated layers have the same pattern.
        for tensor in piece.graph.initializer:
            is_large = _is_large(tensor)
            weights = weights or is_large
            family.append((number(tensor.name), tensor.data_type, len(tensor.dims)))
            details.append(tuple(tensor.dims) if is_large else stored(tensor))
    for name in region.given:
        form = points[0].forms[name]
        origin = name in before.inputs, bounding(before, name)
        family.append((number(name), form.dtype.str, len(form.shape), *origin))
        details.append(tuple(point.forms[name].shape for point in points))
        # Recorded values belong to one run, and regions with other values may behave in another way.
        if not form.is_drawn:
            details.append(tuple(values[name].tobytes() for point in points for values in point.recorded))
    family.append(tuple(map(number, region.outputs)))
    return Pattern(tuple(family), tuple(details), weights)


def has_weights(region: Region) -> bool:
    """Return whether the results of a region depend on large constants, not only on its forms and operators."""
    return any(_is_large(tensor) for piece in (region.before, region.after) for tensor in piece.graph.initializer)


def _is_large(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == tensor.EXTERNAL or math.prod(tensor.dims) > _FEW
