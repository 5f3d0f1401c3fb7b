"""The steps of a session and their outcomes at one time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from surgery.base.errors import UsageError
from surgery.engine.recipe.schema import Recipe
from surgery.features.workbench.live_run import StepRun
from surgery.features.workbench.step_outcomes import SessionStep, outcome
from surgery.features.workbench.step_texts import StepTexts
from surgery.model import storage

if TYPE_CHECKING:
    from surgery.engine.pipeline.candidate import State


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of a session: its steps and their outcomes at one time. It never changes, so any thread may read it.

    `stored` is the model that was opened, and `first` the state that the steps start from. Steps that are off have no
    outcome.
    """

    stored: storage.StoredModel
    first: State
    texts: StepTexts
    recipe: Recipe
    ran: tuple[StepRun | None, ...] = field(default=())

    @cached_property
    def steps(self) -> tuple[SessionStep, ...]:
        """The steps with their outcomes."""
        steps = iter(self.recipe.steps)
        return tuple(
            outcome(number, next(steps) if text.on else None, text, ran)
            for number, (text, ran) in enumerate(zip(self.texts.steps, self.ran))
        )

    @property
    def state(self) -> State:
        """The state after the last step."""
        return self.states(len(self.ran) - 1)[-1]

    @property
    def model(self) -> storage.StoredModel:
        """The model after the last step; weights are shared with the original."""
        return self._stored(self.state)

    def states(self, step: int) -> list[State]:
        """Return the first state, and those after each step that is on, up to a step counted from 0."""
        if not -1 <= step < len(self.ran):
            raise UsageError(f"there is no step {step}", todo=f"there are {len(self.ran)}, counted from 0")
        return [self.first, *(ran.after for ran in self.ran[: step + 1] if ran is not None)]

    def model_after(self, step: int) -> storage.StoredModel:
        """Return the model after a step, counted from 0; -1 is the original."""
        return self._stored(self.states(step)[-1])

    @property
    def refused(self) -> int:
        """The number of the first step that is on and did not run: the one that was refused."""
        return next(number for number, text in enumerate(self.texts.steps) if text.on and self.ran[number] is None)

    def refused_alone(self) -> tuple[storage.StoredModel, Recipe]:
        """Return the model before the refused step, and a recipe with only that step."""
        done = sum(ran is not None for ran in self.ran)
        return self.model, replace(self.recipe, steps=self.recipe.steps[done : done + 1])

    def _stored(self, state: State) -> storage.StoredModel:
        if state is self.first:
            return self.stored
        return storage.StoredModel(None, state.proto, self.stored.weights, self.stored.external)
