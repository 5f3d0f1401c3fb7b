"""How a recipe is run, whatever it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Observer, Recorder, Result
    from surgery.engine.pipeline.reference_start import ReferenceStart
    from surgery.engine.pipeline.site_choice import SiteChoice
    from surgery.engine.pipeline.step_cache_interface import StepCache
    from surgery.engine.provenance.statement_writing import Sidecar
    from surgery.engine.recipe.schema import OnFailure


@dataclass(frozen=True)
class RunOptions:
    """Who watches a run, what it may reuse, and what follows from a refused step.

    `observer` receives each step as it begins and ends. `history` receives each committed step, for drawings, and
    becomes part of the result. `on_failure` overrides the recipe's handling of a failed step. With `strict`, a run that
    keeps only what holds is not ok. Passes that are not shipped run in a separate process, unless `contained` is false.
    `reference` is the run of this model, started early, with the inputs and the verification of the recipe. `cache` has
    the outcomes of steps in earlier runs, and stores those of this one. `choice` says which sites are left out.
    `accept` is called with the result before it is written, and may raise. For `provenance` see `Result.save`.
    """

    observer: Observer | None = None
    history: Recorder | None = None
    on_failure: OnFailure | None = None
    strict: bool = False
    contained: bool = True
    reference: ReferenceStart | None = None
    cache: StepCache | None = None
    choice: SiteChoice | None = None
    accept: Callable[[Result], object] | None = None
    provenance: bool | Sidecar = True
