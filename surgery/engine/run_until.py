"""A model as a step of a recipe finds it: the steps before it are run, and nothing is verified."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from surgery.engine.runner import Abort, Attempt, Chain
from surgery.errors import PassError, UsageError
from surgery.recipe.failing import decided
from surgery.recipe.schema import PassStep, Recipe, RepeatStep, Step, UseStep
from surgery.registry.declare import suggestion

if TYPE_CHECKING:
    import onnx

    from surgery import storage
    from surgery.registry.declare import Pass


@dataclass(frozen=True)
class Reached:
    """The step that was asked for, its pass, and the model, without weights, when its turn comes."""

    step: PassStep
    declared: Pass
    proto: onnx.ModelProto


class _Arrived(Exception):  # noqa: N818 - the end of the way, not an error
    def __init__(self, step: PassStep) -> None:
        super().__init__(step.name)
        self.step = step


class _Approach(Chain):
    """A chain that takes each step at its word, and stops before the first run of one pass."""

    goal = ""

    def _pass(self, step: PassStep) -> None:
        if step.name == self.goal:
            self._settle()
            raise _Arrived(step)
        super()._pass(step)

    def _judged(self, attempt: Attempt, declared: Pass, findings: list[str] | None) -> Attempt:
        return attempt

    def _find(self, attempt: Attempt) -> list[str]:
        return []

    def _expect_of_step(self, step: PassStep, attempt: Attempt) -> None:
        return


def approach(stored: storage.StoredModel, recipe: Recipe, name: str) -> Reached:
    """Run the steps of a recipe that come before the first one of the pass `name`.

    UsageError when no step is of that pass, or none has its turn, PassError when a step before it breaks.
    """
    names = [step.name for step in _steps(recipe.steps)]
    if name not in names:
        where = f"recipe '{recipe.name}' has no step '{name}'{suggestion(name, names)}"
        raise UsageError(where, todo=f"its steps: {', '.join(dict.fromkeys(names))}")
    recipe = decided(recipe)
    chain = _Approach(stored, replace(recipe, verify=replace(recipe.verify, mode="off")))
    chain.goal = name
    with closing(chain):
        try:
            chain.run(recipe.steps)
        except _Arrived as arrived:
            return Reached(arrived.step, arrived.step.find(), chain.proto)
        except Abort:
            failed = chain.records[-1]
            raise PassError(f"the step '{failed.name}' before it fails: {failed.message}", where=failed.where) from None
    raise UsageError(f"the step '{name}' has no turn: its condition 'when' does not hold")


def _steps(steps: tuple[Step, ...]) -> Iterator[PassStep]:
    """Yield all steps that run a pass, in the order in which they are written."""
    for step in steps:
        match step:
            case PassStep():
                yield step
            case RepeatStep():
                yield from _steps(step.steps)
            case UseStep():
                yield from _steps(step.recipe.steps)
