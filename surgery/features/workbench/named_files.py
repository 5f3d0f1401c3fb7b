"""The files that a recipe names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from surgery.engine.provenance.recipe_closure import paths_in
from surgery.engine.recipe import recipe_lookup
from surgery.engine.recipe.schema import PassStep, Recipe, RepeatStep, Step


def named_files(recipe: Recipe) -> Iterator[Path]:
    """Yield the files that a recipe reads: those in options, inputs and settings, and the recipes that it uses."""
    yield from paths_in(recipe.inputs)
    yield from paths_in(recipe.verify)
    yield from paths_in(recipe.baseline)
    if recipe.output is not None:
        yield Path(recipe.output)
    for step in recipe.steps:
        yield from _of_step(step)


def _of_step(step: Step) -> Iterator[Path]:
    if isinstance(step, PassStep):
        yield from paths_in(step.bind())
        return
    if not isinstance(step, RepeatStep) and step.recipe.path is not None:
        if recipe_lookup.is_shipped(step.recipe.path):
            return
        yield step.recipe.path
    for inner in step.steps:
        yield from _of_step(inner)
