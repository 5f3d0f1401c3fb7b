"""A run that applies exactly a plan, and ends at the first step with different sites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from surgery.base.errors import PlanError, UsageError, counted
from surgery.engine.pipeline.records import END, Silent
from surgery.features.planning.plan_dependencies import basis, changes
from surgery.features.planning.plan_document import Plan, PlannedSite, PlannedStep
from surgery.features.planning.step_places import place
from surgery.model import storage
from surgery.model.graph.state import Site

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Observer, Result, StepRecord
    from surgery.engine.recipe.schema import PassStep, Recipe

_Identity = tuple[str, str, str, tuple[str, ...]]
"""The identity of a site if other sites are skipped: pass, place of the step, anchor, removed nodes."""

_AGAIN = "make the plan again"
_MOST_LISTED = 10


def skipping(plan: Plan, texts: Sequence[str]) -> Plan:
    """Return a plan that skips additional sites, each given as `STEP:SITE`; UsageError for an unknown site."""
    wanted = [_numbers(text) for text in texts]
    known = {(step.step, site.site) for step in plan.steps for site in step.sites}
    for text, numbers in zip(texts, wanted):
        if numbers not in known:
            raise UsageError(f"--skip {text}: the plan has {_instead(plan, numbers)}")
    steps = [
        step.model_copy(
            update={
                "sites": tuple(
                    site.model_copy(update={"skip": site.skip or (step.step, site.site) in wanted})
                    for site in step.sites
                )
            }
        )
        for step in plan.steps
    ]
    return plan.model_copy(update={"steps": tuple(steps)})


def _numbers(text: str) -> tuple[int, int]:
    step, colon, site = text.partition(":")
    if not (colon and step.isdecimal() and site.isdecimal()):
        raise UsageError(f"--skip {text}: expected STEP:SITE, the numbers of a step and of one of its sites")
    return int(step), int(site)


def _instead(plan: Plan, numbers: tuple[int, int]) -> str:
    step = next((step for step in plan.steps if step.step == numbers[0]), None)
    if step is None:
        return f"no step {numbers[0]}, its steps are 1 to {len(plan.steps)}" if plan.steps else "no steps"
    sites = ", ".join(str(site.site) for site in step.sites[:_MOST_LISTED])
    more = ", ..." if len(step.sites) > _MOST_LISTED else ""
    return f"no site {numbers[1]} in step {step.step}; the sites of '{step.name}' are {sites}{more}"


def require_unchanged(plan: Plan, stored: storage.StoredModel, recipe: Recipe, where: Path) -> None:
    """Raise PlanError if the model, the recipe, a pass or a package has changed, with one line for each change.

    `where` is the file of the plan.
    """
    now = basis(stored, recipe, plan.basis.recipe, where.parent, plan.basis.settings)
    found = changes(plan.basis, now)
    if found:
        raise PlanError("the dependencies of the plan have changed", found, where=str(where), todo=_AGAIN)


class Follower:
    """Holds a run to a plan: it chooses the sites, observes the steps, and accepts the result.

    Without skipped sites, the run must produce exactly the steps and sites of the plan. If sites are skipped, sites
    that depend on them may not arise, and others may arise in their place; the latter are left out, so that nothing is
    done that is not in the plan. Raises PlanError if a step differs from the plan.

    `where` is the file of the plan.
    """

    def __init__(self, plan: Plan, recipe: Recipe, where: Path) -> None:
        self._recipe = recipe
        self._plan, self._where = plan, str(where)
        self._observer: Observer = Silent()
        self._begun = not plan.again
        self._next = 0
        self._applied: Counter[_Identity] = Counter()
        self._left_out: dict[_Identity, None] = {}
        self._wanted = {_identity(*one) for one in _sites(plan.steps) if not one[1].skip}
        self._skipped = {_identity(*one) for one in _sites(plan.steps) if one[1].skip}
        self._require_distinct()
        self._skipped -= self._wanted

    def _require_distinct(self) -> None:
        """Raise PlanError if a skipped site cannot be distinguished from one that is not: neither has any nodes."""
        for step, site in _sites(self._plan.steps):
            found = _identity(step, site)
            if site.skip and found in self._wanted and not (site.anchor or site.removes):
                alike = [one for one in step.sites if _identity(step, one) == found]
                self._refuse(
                    f"step {step.step}, '{step.name}': site {site.site} has no nodes by which to skip it alone",
                    "skip " + ", ".join(f"{step.step}:{one.site}" for one in alike),
                )

    # Choosing sites

    def leaves_out(self, step: PassStep, site: Site) -> bool:
        """Return whether a site of a step is left out: it is skipped, or absent from a plan that skips others."""
        if not self._plan.is_edited:
            return False
        where = place(f"{step.path}:{step.line}" if step.path else "", self._recipe)
        found = step.name, where, site.anchor, site.removed
        if found in self._wanted:
            return False
        self._left_out[found] = None
        return True

    # Observing

    def observed(self, observer: Observer) -> Follower:
        """Set the observer that all events are passed on to."""
        self._observer = observer
        return self

    def stage(self, step: str, stage: str) -> None:
        """Pass it on."""
        self._observer.stage(step, stage)

    def said(self, step: str, text: str) -> None:
        """Pass it on."""
        self._observer.said(step, text)

    def done(self, record: StepRecord) -> None:
        """Compare a step with the plan, then pass it on."""
        refused = record.name == END and record.status == "rolled_back"
        if record.status == "failed" or not self._begun:
            self._begun = self._begun or refused
            self._observer.done(record)
            return
        if refused:
            self._refuse(f"the planned result fails verification: {record.message}", "make the plan with --verify each")
        if record.status == "committed" and record.applied:
            self._compare(record)
        elif record.status == "rolled_back" and not self._plan.is_edited:
            self._require_same(record)
        self._observer.done(record)

    def _compare(self, record: StepRecord) -> None:
        self._applied.update((record.name, self._place(record), site.anchor, site.removed) for site in record.applied)
        if not self._plan.is_edited:
            self._require_same(record)
            self._next += 1

    def _require_same(self, record: StepRecord) -> None:
        """Raise PlanError unless a record is that of the next planned step, with the same sites."""
        planned = self._plan.steps[self._next] if self._next < len(self._plan.steps) else None
        if record.status == "rolled_back":
            # In a verified plan, this step may be a later round of the one that is undone here.
            is_next = planned is not None and (planned.name, planned.where) == (record.name, self._place(record))
            if planned is not None and is_next and self._plan.verified == "none":
                self._refuse_step(planned, f"verification undoes it: {record.message}")
            return
        if planned is None:
            self._refuse(f"step '{record.name}' at {self._place(record)} is not in the plan: {_first(record)}")
        if (planned.name, planned.where) != (record.name, self._place(record)):
            self._refuse_step(planned, f"'{record.name}' at {self._place(record)} makes a change before it")
        difference = next(_differences(planned.sites, record.applied), None)
        if difference is not None:
            why = f" ({record.message})" if record.refused_sites or record.kept else ""
            self._refuse_step(planned, f"{difference}{why}")

    def _refuse_step(self, planned: PlannedStep, what: str) -> NoReturn:
        todo = _AGAIN if self._plan.verified == "each" else "make the plan with --verify each, or skip the site"
        self._refuse(f"step {planned.step}, '{planned.name}' at {planned.where}: {what}", todo)

    def _refuse(self, what: str, todo: str = _AGAIN) -> NoReturn:
        raise PlanError(what, where=self._where, todo=todo)

    def _place(self, record: StepRecord) -> str:
        return place(record.where, self._recipe)

    # Accepting the result

    def accept(self, result: Result) -> None:
        """Raise PlanError if a planned step did not take place. A failed run is left to its report."""
        if result.failure is None and not self._plan.is_edited and self._next < len(self._plan.steps):
            planned = self._plan.steps[self._next]
            self._refuse_step(planned, "the pass finds no sites")

    def to_json(self) -> dict[str, Any]:
        """Return the outcome of the plan: sites skipped, left out because they are not planned, and not reached."""
        skipped = [one for one in self._left_out if one in self._skipped]
        other = [one for one in self._left_out if one not in self._skipped]
        missing = [one for one in self._wanted if one not in self._applied]
        return {
            "path": self._where,
            "verified": self._plan.verified,
            "skipped": [_shown(one) for one in skipped],
            "left_out": [_shown(one) for one in other],
            "not_reached": [_shown(one) for one in sorted(missing)],
        }

    def summary(self) -> str:
        """Return the outcome of the plan in one line."""
        found = self.to_json()
        if not self._plan.is_edited:
            return f"as planned: {counted(self._plan.sites, 'site')} in {counted(len(self._plan.steps), 'step')}"
        parts = [f"{counted(len(found['skipped']), 'site')} skipped"]
        if found["left_out"]:
            parts.append(f"{len(found['left_out'])} left out because they only arise without them")
        if found["not_reached"]:
            parts.append(f"{len(found['not_reached'])} not reached, because they need a skipped one")
        return f"as planned: {', '.join(parts)}"


def _sites(steps: Iterable[PlannedStep]) -> Iterator[tuple[PlannedStep, PlannedSite]]:
    return ((step, site) for step in steps for site in step.sites)


def _identity(step: PlannedStep, site: PlannedSite) -> _Identity:
    return step.name, step.where, site.anchor, tuple(node.name for node in site.removes)


def _shown(identity: _Identity) -> dict[str, Any]:
    name, where, anchor, removed = identity
    return {"pass": name, "where": where, "anchor": anchor, "removed": list(removed)}


def _first(record: StepRecord) -> str:
    site = record.applied[0]
    return f"site {site.number}{_at(site.anchor)}"


def _at(anchor: str) -> str:
    return f" at '{anchor}'" if anchor else ""


def _differences(planned: Sequence[PlannedSite], found: Sequence[Site]) -> Iterator[str]:
    """Yield the differences between the planned and the found sites of a step, in order."""
    for one, other in zip(planned, found):
        at = f"site {one.site}{_at(one.anchor)}"
        if (one.site, one.anchor) != (other.number, other.anchor):
            yield f"{at} is planned, but the pass found site {other.number}{_at(other.anchor)}"
        for what, names, now in (("removes", one.removes, other.removed), ("adds", one.adds, other.added)):
            before = tuple(node.name for node in names)
            if before != now:
                yield f"{at} {what} {_listed(now)} instead of {_listed(before)}"
    if len(planned) > len(found):
        yield f"site {planned[len(found)].site}{_at(planned[len(found)].anchor)} is planned, but was not found"
    elif len(found) > len(planned):
        extra = found[len(planned)]
        yield f"site {extra.number}{_at(extra.anchor)} was found, but is not planned"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_MOST_LISTED])
    return f"{shown}, ..." if len(names) > _MOST_LISTED else shown or "nothing"
