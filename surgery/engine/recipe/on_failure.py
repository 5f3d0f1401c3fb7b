"""The `on_failure` of steps: set by the step, by the enclosing recipes, or by the caller."""

from __future__ import annotations

from dataclasses import replace

from surgery.engine.recipe.schema import OnFailure, PassStep, Recipe, RepeatStep, Step, UseStep

DEFAULT: OnFailure = "abort"


def decided(recipe: Recipe, override: OnFailure | None = None) -> Recipe:
    """Return a copy of a recipe in which `on_failure` is set for each step.

    `override` applies to all steps. Without it, the setting of the step itself applies, or else that of the outermost
    enclosing recipe that has one, or else the run is aborted.
    """
    return replace(recipe, steps=_decided(recipe.steps, override, recipe.on_failure))


def _decided(steps: tuple[Step, ...], override: OnFailure | None, outer: OnFailure | None) -> tuple[Step, ...]:
    found: list[Step] = []
    for step in steps:
        match step:
            case PassStep():
                found.append(replace(step, on_failure=override or step.on_failure or outer or DEFAULT))
            case RepeatStep():
                inner = _decided(step.steps, override, outer)
                found.append(replace(step, steps=inner, on_failure=override or outer or DEFAULT))
            case UseStep():
                inner = _decided(step.recipe.steps, override, outer or step.recipe.on_failure)
                found.append(replace(step, recipe=replace(step.recipe, steps=inner)))
    return tuple(found)
