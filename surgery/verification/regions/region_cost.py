"""The estimated cost of running the regions of a change and comparing the results."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from surgery.base.promises import Parity
from surgery.verification.inputs.feed_plan import FeedPlan
from surgery.verification.inputs.spec import InputsSpec
from surgery.verification.regions.patterns import has_weights
from surgery.verification.regions.region_values import Point
from surgery.verification.regions.regions import Region
from surgery.verification.regions.sizes import reduced
from surgery.verification.regions.tried_bindings import bindings, by_size, elements, operators, shapes

_REGION, _TWIN, _ELEMENT = 1e-2, 1e-4, 2.5e-8
"""Seconds to compare a region, to compare a region equal to another one, and per input element."""

_RUNS, _FEW_RUNS, _CLOSE_RUNS, _ARBITRATED = 5, 2, 12, 60
"""Cost of one set of values, in estimated runs of the region: with all checks; where few runs must suffice; where
rounding may differ and float64 has to decide; where that includes convolutions."""


def cost(regions: Sequence[Region], points: Sequence[Point], promise: Parity) -> float:
    """Estimate the seconds needed to run the regions whose forms are known, and to compare the results."""
    total = 0.0
    kinds: dict[Hashable, float] = {}
    families: set[Hashable] = set()
    twins: set[Hashable] = set()
    for region in by_size(regions, points[0]):
        if any(name not in point.forms for name in region.given for point in points):
            continue
        forms = tuple(points[0].forms[name] for name in region.given)
        nodes = tuple(node.op_type for piece in (region.before, region.after) for node in piece.graph.node)
        family = nodes, tuple((form.dtype, len(form.shape)) for form in forms)
        few = family in families
        if (forms, nodes) in twins and not has_weights(region):
            total += _TWIN
        else:
            key = forms, nodes, few
            if key not in kinds:
                kinds[key] = seconds(region, reduced(region, points), promise, few=few)
            total += kinds[key]
        families.add(family)
        twins.add((forms, nodes))
    return total


def seconds(region: Region, points: Sequence[Point], promise: Parity, *, few: bool) -> float:
    """Estimate the seconds for one region, with a `few` runs if it is one of many similar ones."""
    plan = FeedPlan(region.before, InputsSpec())
    run = plan.cost(shapes(region, points[0]), 0)
    sizes = {tuple(point.dims.items()): elements(region, point) for point in points}
    chosen = bindings(region, points, promise, run, few=few)
    given = sum(sizes[binding.dim_key] for binding in chosen)
    runs = _FEW_RUNS if few else _RUNS if promise is Parity.EXACT else _CLOSE_RUNS
    if promise is Parity.CLOSE and any("Conv" in operator for operator in operators(region)):
        runs = _ARBITRATED
    return _REGION + plan.listing + given * _ELEMENT + len(chosen) * run * runs
