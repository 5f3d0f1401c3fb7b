"""The steps of a recipe in the order in which they run, and the progress of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from surgery.engine.recipe.schema import PassStep, Recipe, RepeatStep, UseStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from surgery.engine.recipe.schema import Step


@dataclass(frozen=True)
class Planned:
    """A step that runs a pass. `user` is its place in the main recipe: that of the step that uses its recipe."""

    step: PassStep
    user: str

    @property
    def key(self) -> tuple[str, str]:
        """The name and the place, which the record of the step has too."""
        return self.step.name, f"{self.step.path}:{self.step.line}" if self.step.path else ""


class Agenda:
    """The steps of a recipe; each round of a repetition is counted when it begins.

    `done` steps of `total` have ended. A further round adds its steps to both.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.steps: list[Planned] = []
        self._rounds: list[range] = []
        self._add(recipe.steps, "")
        self._place = 0
        self._again = 0

    def _add(self, steps: Sequence[Step], user: str) -> None:
        for step in steps:
            place = user or step.where
            if isinstance(step, PassStep):
                self.steps.append(Planned(step, place))
            elif isinstance(step, UseStep):
                self._add(step.recipe.steps, place)
            elif isinstance(step, RepeatStep):
                begin = len(self.steps)
                self._add(step.steps, user)
                self._rounds.append(range(begin, len(self.steps)))

    @property
    def done(self) -> int:
        """The number of steps that have ended, including those skipped by a condition."""
        return self._place + self._again

    @property
    def total(self) -> int:
        """The number of steps known so far."""
        return len(self.steps) + self._again

    def note(self, name: str, where: str) -> None:
        """Note that a step has ended; ignore records that are not steps of the recipe."""
        found = self._find((name, where))
        if found is None:
            return
        if found < self._place:
            self._again += self._place - found
        self._place = found + 1

    def _find(self, key: tuple[str, str]) -> int | None:
        """Return the index of a step: the next one, the first of a new round, a later one, or one of a new round."""
        ahead = range(self._place, len(self.steps))
        if ahead and self.steps[self._place].key == key:
            return self._place
        over = [one for one in self._rounds if one.stop == self._place]
        begun = [one for one in self._rounds if one.start < self._place < one.stop]
        for places in (*over, ahead, *reversed(begun)):
            found = next((place for place in places if self.steps[place].key == key), None)
            if found is not None:
                return found
        return None


def users(steps: Sequence[Planned]) -> dict[str, str]:
    """Map the place of each step, as in its record, to the place of the step in the main recipe that uses it."""
    found: dict[str, str] = {}
    for one in steps:
        found.setdefault(one.key[1], one.user)
    return found
