"""Run a recipe up to one of its steps, without verifying."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from surgery.base.errors import PassError, UsageError
from surgery.engine.pipeline.pipeline import Abort, Arrived, Pipeline
from surgery.engine.recipe.on_failure import decided
from surgery.engine.recipe.schema import PassStep, Recipe, pass_steps
from surgery.engine.registry.passes import suggestion

if TYPE_CHECKING:
    import onnx

    from surgery.engine.registry.passes import Pass
    from surgery.model import storage


@dataclass(frozen=True)
class Reached:
    """The step, its pass, and the model without weights on which the step would run."""

    step: PassStep
    declared: Pass
    proto: onnx.ModelProto


def run_until(stored: storage.StoredModel, recipe: Recipe, name: str) -> Reached:
    """Run the steps of a recipe before the first one of the pass `name`.

    Raises UsageError if the recipe has no such step or never reaches it, PassError if a step before it fails.
    """
    names = [step.name for step in pass_steps(recipe.steps)]
    if name not in names:
        where = f"recipe '{recipe.name}' has no step '{name}'{suggestion(name, names)}"
        raise UsageError(where, todo=f"its steps: {', '.join(dict.fromkeys(names))}")
    recipe = decided(recipe)
    pipeline = Pipeline(stored, recipe, trusted=True, until=name)
    with closing(pipeline):
        try:
            pipeline.run(recipe.steps)
            pipeline.settle()
        except Arrived as arrived:
            return Reached(arrived.step, arrived.step.find(), pipeline.model.proto)
        except Abort:
            failed = pipeline.journal.records[-1]
            raise PassError(f"the step '{failed.name}' before it fails: {failed.message}", where=failed.where) from None
    raise UsageError(f"the step '{name}' does not run: its condition 'when' is false")
