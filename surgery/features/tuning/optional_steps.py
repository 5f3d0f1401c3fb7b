"""The optional steps of a recipe: finding, removing and reinserting them with other options."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from surgery.base.errors import UsageError
from surgery.base.frozen_dict import FrozenDict
from surgery.engine.recipe.schema import Expect, PassStep, Recipe, RepeatStep, Step, UseStep
from surgery.engine.registry.passes import suggestion

Place = tuple[int, ...]
"""The position of a step: its index in the recipe, then in the nested recipe or repetition at that index."""

_EXCLUDING = ("exclude", "keep")
"""Options of passes for the nodes that stay unchanged."""


@dataclass(frozen=True)
class OptionalStep:
    """A step that a recipe can do without, and its position."""

    place: Place
    step: PassStep


def optional_steps(recipe: Recipe, names: Collection[str] = ()) -> tuple[OptionalStep, ...]:
    """Return the lossy steps of a recipe and the steps of the passes in `names`, in order.

    Raises UsageError for a name that no step has, and if there is no optional step.
    """
    every = [*_placed(recipe.steps)]
    known = [step.name for _, step in every]
    for name in names:
        if name not in known:
            raise UsageError(f"recipe '{recipe.name}' has no step '{name}'{suggestion(name, known)}")
    found = tuple(OptionalStep(place, step) for place, step in every if step.name in names or step.is_lossy)
    if not found:
        raise UsageError(
            f"recipe '{recipe.name}' has no lossy step, so nothing is optional",
            todo="name steps that it can do without: --optional PASS",
        )
    return found


def _placed(steps: Sequence[Step], place: Place = ()) -> Iterator[tuple[Place, PassStep]]:
    for number, step in enumerate(steps):
        here = (*place, number)
        if isinstance(step, PassStep):
            yield here, step
        else:
            yield from _placed(step.steps, here)


def _with_inner(step: RepeatStep | UseStep, steps: tuple[Step, ...]) -> RepeatStep | UseStep:
    """Replace the inner steps of a step. A changed recipe no longer has a file."""
    if isinstance(step, RepeatStep):
        return replace(step, steps=steps)
    return replace(step, recipe=replace(step.recipe, steps=steps, path=None))


def with_chosen(recipe: Recipe, optional: Sequence[OptionalStep], chosen: Mapping[int, PassStep]) -> Recipe:
    """Return a recipe with only those optional steps that are `chosen`, by their numbers, in their chosen form."""
    steps = {one.place: chosen.get(number) for number, one in enumerate(optional)}
    return replace(recipe, steps=_chosen(recipe.steps, steps, ()))


def _chosen(steps: Sequence[Step], chosen: Mapping[Place, PassStep | None], place: Place) -> tuple[Step, ...]:
    found: list[Step] = []
    for number, step in enumerate(steps):
        here = (*place, number)
        if isinstance(step, PassStep):
            kept = chosen.get(here, step)
            found += [kept] if kept is not None else []
        elif any(one[: len(here)] == here for one in chosen):
            left = _chosen(step.steps, chosen, here)
            found += [_with_inner(step, left)] if left else []
        else:
            found.append(step)
    return tuple(found)


def split_before(steps: Sequence[Step], place: Place) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Return the steps before a position, and those from there on.

    A step that is repeated, or that has a condition, is not divided.
    """
    number, rest = place[0], place[1:]
    step, before, after = steps[number], tuple(steps[:number]), tuple(steps[number + 1 :])
    if not rest or not isinstance(step, UseStep) or step.when is not None:
        return before, (step, *after)
    first, second = split_before(step.recipe.steps, rest)
    # Its expectations apply to its end only.
    begun = replace(step, recipe=replace(step.recipe, steps=first, expect=Expect()))
    return (*before, *([begun] if first else [])), (_with_inner(step, second), *after)


def without_speed(recipe: Recipe) -> Recipe:
    """Return a recipe without speed expectations, including those of recipes it uses: a measurement takes long."""
    steps = tuple(_without_speed(step) for step in recipe.steps)
    return replace(recipe, steps=steps, expect=replace(recipe.expect, speed=None))


def _without_speed(step: Step) -> Step:
    if isinstance(step, UseStep):
        return replace(step, recipe=without_speed(step.recipe))
    if isinstance(step, RepeatStep):
        return replace(step, steps=tuple(map(_without_speed, step.steps)))
    return step


def excluding_option(step: PassStep) -> str | None:
    """Return the option of a step that selects the nodes that stay unchanged, if its pass has one."""
    known = {option.name: option.type_name for option in step.find().options}
    return next((name for name in _EXCLUDING if known.get(name, "").startswith("node selector")), None)


def excluding(step: PassStep, selectors: Sequence[Mapping[str, Any]]) -> PassStep:
    """Return a step that leaves more nodes unchanged. Its pass must have an option for them."""
    option = excluding_option(step)
    assert option is not None
    given = step.options.get(option)
    others = [] if given is None else [*given] if isinstance(given, list | tuple) else [given]
    return replace(step, options=FrozenDict({**step.options, option: [*others, *map(dict, selectors)]}))
