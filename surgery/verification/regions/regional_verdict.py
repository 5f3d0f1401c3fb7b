"""The verdict on a change, from the regions in which a changed model differs from the model it was made from.

Equality or closeness in every region, for generated values at its boundary, is at least as strong as equal outputs of
the whole model, where an output that does not move can hide a change. A difference in a region is no verdict, because
the whole model may never have the values that show it. So a region that differs is enlarged: upstream to include what
bounds its values, downstream to include what compensates for the difference. If it still differs then, the comparison
of the whole models decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from surgery.base.promises import Parity
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, VACUOUS
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.regions.definitions import Definitions
from surgery.verification.regions.region_comparer import PROVED, RegionComparer
from surgery.verification.regions.regions import Boundary, Region
from surgery.verification.regions.tables import differing_tables
from surgery.verification.regions.target_descent import descend
from surgery.verification.regions.time_budget import COSTLY, REGION, CostlyError, TimeBudget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from surgery.verification.comparing.reference_run import ReferenceRun

_ROUNDS = 6
"""Maximum number of rounds; each round enlarges the regions of the targets that were not shown to agree."""

_LARGEST = 600
"""Nodes of one region above which it is no cheaper than the whole model."""


@dataclass(frozen=True)
class ComparedRegions:
    """The result of comparing the regions of a change.

    The verdict is `equal`, `close`, or `unverified`, mostly with the reason `REGION`. `differing` are the values that
    differed in the region as it was first cut, `agreeing` those that are shown to agree. `changed_opsets` says whether
    the changed model has other opsets.
    """

    verdict: Verdict
    differing: tuple[str, ...] = ()
    agreeing: frozenset[str] = frozenset()
    changed_opsets: bool = False


class Regional:
    """Compares changed models with the models they were made from, at sizes that one original accepts."""

    def __init__(self, original: ReferenceRun, verify: VerifySpec) -> None:
        self._laboratory = RegionComparer(original, verify)
        self._last: Definitions | None = None

    def compare(self, before: bytes, after: bytes, promise: Parity, afford: float = math.inf) -> ComparedRegions:
        """Compare a changed model with the model it was made from.

        If the regions would take more than `afford` seconds, no more are run; the reason of the verdict is then
        `COSTLY`.
        """
        original = self._read(before)
        sides = original, Definitions(after, original)
        change = _GrowingChange(Boundary(*sides), self._laboratory, promise, TimeBudget(afford))
        try:
            verdict = change.verdict()
        except CostlyError as error:
            verdict = Verdict(Status.UNVERIFIED, COSTLY, message=str(error))
        tables = differing_tables(*sides, change.boundary.differing) if verdict.passed else {}
        unread = tuple(name for name in tables if name not in change.differing)
        if unread:
            verdict = _unshown(f"no drawn input reads what differs in {tables[unread[0]]} of '{unread[0]}'")
        elif verdict.passed:
            self._last = sides[1]
        differing, agreeing = (*change.differing, *unread), frozenset(change.shown)
        return ComparedRegions(verdict, differing, agreeing, sides[0].opsets != sides[1].opsets)

    def _read(self, skeleton: bytes) -> Definitions:
        if self._last is None or self._last.skeleton != skeleton:
            self._last = Definitions(skeleton, self._last)
        return self._last

    def rest(self) -> None:
        """Stop the process that runs the regions until it is needed again."""
        self._laboratory.rest()

    def close(self) -> None:
        """Stop the process that runs the regions."""
        self._laboratory.close()


class _GrowingChange:
    """One change and its growing regions."""

    def __init__(self, boundary: Boundary, laboratory: RegionComparer, promise: Parity, budget: TimeBudget) -> None:
        self.boundary = boundary
        self.laboratory = laboratory
        self.promise = promise
        self.budget = budget
        self.shown: dict[str, tuple[Verdict, Region]] = {}
        self.failing: dict[str, tuple[Verdict, Region]] = {}
        self.differing: tuple[str, ...] = ()
        self.beneath: dict[str, list[Region]] = {}

    def verdict(self) -> Verdict:
        for number in range(_ROUNDS):
            targets = self.boundary.targets - set(self.shown)
            regions = self.boundary.cut(targets)
            if not self.laboratory.runs_whole and any(region.nodes > _LARGEST for region in regions):
                regions = self.boundary.cut(targets, _LARGEST)  # there is no whole model to decide
            if any(region.nodes > _LARGEST or not self.laboratory.holds(region) for region in regions):
                too_large = f"the region of '{min(targets)}' is too large"
                return self._refusal(too_large) if self.failing else _unshown(too_large)
            self._compare(regions)
            if not self.boundary.doubted:
                self.differing = tuple(name for name, item in self.failing.items() if item[0].is_different)
            if not self.failing:
                break
            self._grow(2**number)
        if self.failing:
            return self._refusal()
        doubted = (name for name in sorted(self.boundary.doubted) if not self.boundary.is_replaced(name))
        lost = [name for name in doubted if not self._shows(name)]
        if lost and not self._agree_after_all(lost):
            return _unshown(f"'{lost[0]}' differs in its region, but no later value changes")
        return self._shown()

    def _refusal(self, *more: str) -> Verdict:
        """Return the verdict for regions that differ or show nothing and are not compared further."""
        name, (verdict, _) = min(self.failing.items())
        message = "; ".join([f"in its region, '{name}' is not verified: {verdict.message}", *more])
        return _unshown(message, NOT_RUN if verdict.reason == NOT_RUN else REGION)

    def _agree_after_all(self, names: Sequence[str]) -> bool:
        """Compare values that differed in smaller regions again; return whether they agree now."""
        self.boundary.doubted.difference_update(names)
        self._compare(self.boundary.cut(names))
        return not self.failing

    def _shows(self, name: str) -> bool:
        """Return whether a value that differs affects any target that agrees.

        After a product with zero, all changes agree; a difference that is compensated for moves later values. Axes and
        the like are not nudged: their readers have been compared on drawn data.
        """
        regions = {id(region): region for _, region in self.shown.values()}
        regions |= {id(region): region for target in self.shown for region in self.beneath.get(target, ())}
        before = self.boundary.sides[0]
        readers = before.flow.readers.get(name, ())
        if all(
            before.steers(name, number) and self.shown.keys() >= set(before.flow.makes(number)) for number in readers
        ):
            return True
        return any(self.laboratory.moves(region, before, name, self.budget) for region in regions.values())

    def _compare(self, regions: list[Region]) -> None:
        verdicts = self.laboratory.compare(
            regions, self.boundary.sides[0], self.promise, grown=bool(self.boundary.doubted), budget=self.budget
        )
        found = {name: (verdicts[name], region) for region in regions for name in region.targets}
        for name, (verdict, region) in found.items():
            if verdict.reason == VACUOUS:
                deeper, self.beneath[name] = descend(region, name, verdict, self._compare_piece)
                found[name] = deeper, region
        self.shown |= {name: item for name, item in found.items() if item[0].passed}
        self.failing = {name: item for name, item in found.items() if not item[0].passed}

    def _compare_piece(self, region: Region) -> dict[str, Verdict]:
        grown = bool(self.boundary.doubted)
        return self.laboratory.beneath(region, self.boundary.sides[0], self.promise, grown)

    def _grow(self, levels: int) -> None:
        """Grow upstream to what bounds the values, and downstream to what compensates for the difference."""
        boundary = self.boundary
        doubted = set(self.failing) - set(boundary.sides[1].flow.outputs)
        boundary.doubted |= doubted
        edge = {given for _, region in self.failing.values() for given in region.given}
        for _ in range(levels):
            boundary.opened |= edge
            edge = {read for name in edge for side in boundary.sides for read in side.read_for(name)}
        # Targets that were shown under the assumption that these are equal are open again.
        self.shown = {name: item for name, item in self.shown.items() if doubted.isdisjoint(item[1].given)}

    def _shown(self) -> Verdict:
        """Return one verdict for all targets."""
        regions = {id(region): region for _, region in self.shown.values()}
        nodes = sum(region.nodes for region in regions.values())
        close = [verdict for verdict, _ in self.shown.values() if verdict.status is Status.CLOSE]
        if not close:
            needed = {"rtol": 0.0, "atol": 0.0, "factor": 0.0}
            proved = all(verdict.message == PROVED for verdict, _ in self.shown.values())
            how = PROVED if proved else "bit-identical"
            return Verdict(
                Status.EQUAL, None, needed, f"{how} in the region of the change: {nodes} nodes", region=nodes
            )
        worst = max(close, key=lambda one: one.needed["rtol"] if one.needed else 0.0)
        return replace(worst, message=f"in the region of the change ({nodes} nodes): {worst.message}", region=nodes)


def _unshown(message: str, reason: str = REGION) -> Verdict:
    return Verdict(Status.UNVERIFIED, reason, message=message)
