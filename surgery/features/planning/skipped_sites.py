"""The recipe of a plan that skips sites, as a recipe by itself: the steps leave the nodes of these sites alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from surgery.base.errors import UsageError
from surgery.engine.recipe.schema import PassStep, Recipe, RepeatStep, Step, UseStep, with_pass_steps
from surgery.features.planning.step_places import place

if TYPE_CHECKING:
    from surgery.features.planning.plan_document import Plan, PlannedSite


def without_skipped(plan: Plan, recipe: Recipe, where: str) -> Recipe:
    """Return the recipe with steps that except the nodes of the sites which the plan skips.

    Raises UsageError, about the plan at `where`, for a skipped site that has no nodes.
    """
    excepted: dict[tuple[str, str], list[str]] = {}
    for step in plan.steps:
        for site in step.sites:
            if site.skip:
                excepted.setdefault((step.name, step.where), []).append(_node_of(site, step.step, where))

    def change(step: PassStep) -> PassStep:
        at = place(f"{step.path}:{step.line}" if step.path else "", recipe)
        more = [name for name in excepted.get((step.name, at), ()) if name not in step.excepted]
        return replace(step, excepted=(*step.excepted, *dict.fromkeys(more)))

    return replace(recipe, steps=with_pass_steps(recipe.steps, change))


def _node_of(site: PlannedSite, step: int, where: str) -> str:
    found = site.anchor or next((node.name for node in site.removes), "")
    if not found:
        what = f"site {step}:{site.site} is skipped, and has no node that a step could leave alone"
        raise UsageError(what, where=where, todo="apply the plan with surgery apply")
    return found


def written_out(recipe: Recipe, changed: Recipe) -> Recipe:
    """Return a changed recipe as one that no file has; so are the recipes that it uses, where these are changed."""
    return replace(changed, path=None, steps=_written_out(recipe.steps, changed.steps))


def _written_out(steps: tuple[Step, ...], changed: tuple[Step, ...]) -> tuple[Step, ...]:
    found: list[Step] = []
    for before, after in zip(steps, changed, strict=True):
        if before == after or isinstance(after, PassStep):
            found.append(after)
            continue
        assert isinstance(before, RepeatStep | UseStep)
        inner = after.with_steps(_written_out(before.steps, after.steps))
        found.append(replace(inner, recipe=replace(inner.recipe, path=None)) if isinstance(inner, UseStep) else inner)
    return tuple(found)
