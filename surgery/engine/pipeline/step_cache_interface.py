"""The interface of the step cache: the lookup before a step, and the update after it.

The pipeline works the same with and without a cache. A step whose outcome is known is committed like one that was run
and judged, so that refusals, expectations, records and later comparisons do not depend on the source of an outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from surgery.engine.pipeline.candidate import Candidate, State
from surgery.engine.pipeline.records import RefusedSite, StepRecord
from surgery.engine.pipeline.sensitivity import Sensitivity
from surgery.engine.recipe.schema import PassStep, Recipe
from surgery.model.graph.state import Site
from surgery.model.targets import Target
from surgery.verification.comparing.details import Verdict
from surgery.verification.verdict.validity import Validity

if TYPE_CHECKING:
    from surgery.model import storage
    from surgery.verification.comparing.deployment import Deployed


@dataclass(frozen=True)
class Judged:
    """A judged step: the candidate that remains after the search for failing sites, and the sites left out.

    `refused` are the sites with which it fails, `guilty` those of them that are avoided in later rounds, `kept` the
    sites of a LOSSY step that exceed the budget. `cut_short` says that another search may find others, because a limit
    of time or memory affected this one. `cached` says that an earlier run judged it.
    """

    candidate: Candidate
    refused: tuple[RefusedSite, ...] = ()
    guilty: tuple[Site, ...] = ()
    kept: tuple[Sensitivity, ...] = ()
    cut_short: bool = False
    cached: bool = False


@dataclass(frozen=True)
class EndFacts:
    """The facts about the original for the report: the inputs that it ran on, and whether it is valid."""

    bindings: tuple[Mapping[str, Any], ...]
    validity: Validity | None


@dataclass(frozen=True)
class RunStart:
    """The start of a run: the model as it was read and as steps see it, the recipe and the target.

    `contained` says whether non-standard passes run in a separate process, and `chosen` whether sites are left out for
    a reason outside the recipe.
    """

    stored: storage.StoredModel
    first: State
    recipe: Recipe
    target: Target
    contained: bool
    chosen: bool = False


class StepCache(Protocol):
    """Outcomes of steps, by everything they depend on. Steps are looked up and stored in the order of the run."""

    def expects(self, stored: storage.StoredModel) -> bool:
        """Return whether an earlier run had this model, so that the original may not have to be run."""

    def begin(self, run: RunStart) -> None:
        """Start a run. A run that restarts calls this again."""

    def may_know(self, step: PassStep, before: State) -> bool:
        """Return whether it is worth waiting for the steps before this one in order to look up its outcome."""

    def find(self, step: PassStep, before: State) -> Judged | None:
        """Return the outcome of a step on a committed model; None if it is not known."""

    def note(self, step: PassStep, judged: Judged, record: StepRecord, before: State, after: State) -> None:
        """Store the outcome of a step, known or new, and the models before and after it."""

    def find_whole(self, name: str, state: State) -> Verdict | None:
        """Return the verdict on a committed model as a whole; None if it is not known."""

    def note_whole(self, name: str, state: State, verdict: Verdict) -> None:
        """Store the verdict on a committed model as a whole."""

    def find_deployed(self, state: State) -> Deployed | None:
        """Return the result of running a committed model as deployed; None if it is not known."""

    def note_deployed(self, state: State, deployed: Deployed) -> None:
        """Store the result of running a committed model as deployed."""

    def find_end(self, state: State) -> EndFacts | None:
        """Return the facts about the original for the report; None if they are not known."""

    def note_end(self, state: State, facts: EndFacts) -> None:
        """Store the facts about the original, at the end of a run in which everything was verified."""

    def finish(self) -> None:
        """Wait until everything that was noted is stored."""


class NoCache:
    """A cache that knows nothing and stores nothing."""

    def expects(self, stored: storage.StoredModel) -> bool:
        """Return False."""
        return False

    def begin(self, run: RunStart) -> None:
        """Do nothing."""

    def may_know(self, step: PassStep, before: State) -> bool:
        """Return False."""
        return False

    def find(self, step: PassStep, before: State) -> Judged | None:
        """Return None."""
        return None

    def note(self, step: PassStep, judged: Judged, record: StepRecord, before: State, after: State) -> None:
        """Do nothing."""

    def find_whole(self, name: str, state: State) -> Verdict | None:
        """Return None."""
        return None

    def note_whole(self, name: str, state: State, verdict: Verdict) -> None:
        """Do nothing."""

    def find_deployed(self, state: State) -> Deployed | None:
        """Return None."""
        return None

    def note_deployed(self, state: State, deployed: Deployed) -> None:
        """Do nothing."""

    def find_end(self, state: State) -> EndFacts | None:
        """Return None."""
        return None

    def note_end(self, state: State, facts: EndFacts) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""
