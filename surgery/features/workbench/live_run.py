"""A pipeline that stays open between steps: further steps run at once, other changes are replayed from the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.engine.caching.cache_folder import CacheFolder
from surgery.engine.caching.step_cache import Steps
from surgery.engine.pipeline.pipeline import Abort, Pipeline
from surgery.engine.pipeline.reference_start import repaired
from surgery.engine.pipeline.runner import rare_collections
from surgery.engine.recipe.on_failure import decided
from surgery.features.workbench.node_changes import NodeChanges

if TYPE_CHECKING:
    import onnx

    from surgery.engine.pipeline.candidate import State
    from surgery.engine.pipeline.records import Observer, StepRecord
    from surgery.engine.recipe.schema import Recipe
    from surgery.model import storage


@dataclass(frozen=True)
class StepRun:
    """A step that has run: its records, of which nested recipes have several, and the models around it."""

    records: tuple[StepRecord, ...]
    before: State
    after: State

    @cached_property
    def changed(self) -> NodeChanges:
        """The nodes that it changed."""
        return NodeChanges.between(self.before.proto, self.after.proto)


@dataclass(frozen=True)
class EndedRun:
    """A step that ended the run: its number, its records, the last of which is the failure, and the models around it.

    `wrong` is the model without weights that was refused, None if there is none.
    """

    step: int
    records: tuple[StepRecord, ...]
    before: onnx.ModelProto
    wrong: onnx.ModelProto | None


class LiveRun:
    """Runs steps on a model as `surgery.apply` does, and keeps the pipeline for further ones.

    `folder` has the outcomes of steps, so that steps which ran before are not run or judged again.
    """

    def __init__(self, stored: storage.StoredModel, folder: Path, observer: Observer | None) -> None:
        self.stored = repaired(stored)
        self.first: State | None = None
        self._folder, self._observer = folder, observer
        self._pipeline: Pipeline | None = None
        self._ran: list[tuple[str, StepRun]] = []
        self._settings = ""

    def close(self) -> None:
        """End the pipeline, and stop its parallel work."""
        pipeline, self._pipeline, self._ran = self._pipeline, None, []
        if pipeline is not None:
            pipeline.close()

    def run(self, recipe: Recipe, settings: str, texts: Sequence[str]) -> tuple[list[StepRun], EndedRun | None]:
        """Run the steps of a recipe; return the outcomes up to the first refused step, and that step.

        `settings` is the text of everything else in the recipe, and `texts` are those of the steps. A failure does not
        change the model; what is not committed at the end is undone.
        """
        with rare_collections(), self._closed_after_errors():
            pipeline = self._prepared(recipe, settings, texts)
            steps = decided(recipe).steps
            for number in range(len(self._ran), len(texts)):
                before, earlier = pipeline.model.state, len(pipeline.journal.records)
                try:
                    pipeline.run((steps[number],))
                    pipeline.settle()
                except Abort:
                    records = tuple(pipeline.journal.records[earlier:])
                    found = [ran for _, ran in self._ran]
                    wrong = pipeline.failed.proto if pipeline.failed is not None else None
                    refused = EndedRun(number, records, pipeline.model.proto, wrong)
                    # What was refused counts in the history of the cache, so the next run replays the steps before it.
                    self.close()
                    return found, refused
                records = tuple(pipeline.journal.records[earlier:])
                self._ran.append((texts[number], StepRun(records, before, pipeline.model.state)))
        return [ran for _, ran in self._ran], None

    @contextmanager
    def _closed_after_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _prepared(self, recipe: Recipe, settings: str, texts: Sequence[str]) -> Pipeline:
        """Return a pipeline that has run the first of these steps, or none."""
        done = [text for text, _ in self._ran]
        if self._pipeline is None or settings != self._settings or done != list(texts[: len(done)]):
            self.close()
            cache = Steps(CacheFolder(self._folder, lambda text: None))
            started = replace(decided(recipe), steps=())
            self._pipeline = Pipeline(self.stored, started, self._observer, cache=cache)
            self._settings = settings
            self.first = self.first or self._pipeline.model.state
        return self._pipeline
