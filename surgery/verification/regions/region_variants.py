"""Variants of a region that are run if it shows nothing at the sizes of the model or with its stored numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.vacuity import ALWAYS_EMPTY, NEVER_FINITE
from surgery.verification.regions.kept_elements import with_elements
from surgery.verification.regions.ordinary_numbers import with_ordinary_numbers
from surgery.verification.regions.region_values import Point
from surgery.verification.regions.regions import Region
from surgery.verification.regions.sizes import enlarged, with_turns
from surgery.verification.regions.tried_bindings import MOVING, operators

REASONS = (ALWAYS_EMPTY, NEVER_FINITE)
"""Reasons why a target shows nothing that a variant may still show."""


@dataclass(frozen=True)
class RegionVariant:
    """A region at other sizes, or a variant of it.

    `is_sharp`: a difference there is a difference of the region as well. `is_open`: nodes keep elements there that keep
    none in the region, which says nothing about values that are still empty.
    """

    points: Sequence[Point]
    region: Region
    is_sharp: bool = False
    is_open: bool = False


def variants(why: str, region: Region, points: Sequence[Point]) -> Iterator[RegionVariant]:
    """Yield the variants of a region that may show what it does not show at some points, for the reason `why`."""
    if why == NEVER_FINITE:
        # A difference with other numbers than the stored ones proves nothing: the model has the stored ones.
        yield from (RegionVariant(points, ordinary) for ordinary in with_ordinary_numbers(region))
        return
    larger, turning = enlarged(region, points), with_turns(region)
    if larger or turning is not None:
        yield RegionVariant(larger or points, turning or region, is_sharp=True)
    opened = with_elements(turning or region)
    for other in (turning, opened):
        if other is not None:
            yield from (RegionVariant(each, other, is_open=True) for each in (points, larger) if each)
    wide = enlarged(region, points, ones=True)
    if wide:
        # A rewrite may be right only because of an extent of 1.
        yield RegionVariant(wide, opened or turning or region, is_open=opened is not None or turning is not None)


def shown(region: Region, verdict: Verdict, other: RegionVariant, again: Verdict) -> Verdict | None:
    """Return the verdict that a run `again` of a variant gives on a vacuous target; None if it shows nothing either."""
    if again.passed or (other.is_sharp and again.is_different):
        return again
    if other.is_sharp and again.message == verdict.message and operators(region) <= MOVING:
        # The region computes nothing that could be hidden, and numbers of positions are compared at both kinds of
        # sizes.
        return Verdict(Status.EQUAL, message="bit-identical, and empty at all sizes")
    return None
