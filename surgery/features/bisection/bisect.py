"""Find the sites that make a step fail, and a small model that reproduces the failure."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import counted
from surgery.base.json_record import Record
from surgery.base.views import view
from surgery.engine.pipeline.candidate import Candidate
from surgery.engine.pipeline.delta_debugging import Guilty, SearchLimit, SiteSearch
from surgery.engine.pipeline.pipeline import Abort, Pipeline
from surgery.engine.pipeline.records import Observer, StepRecord
from surgery.engine.recipe import resolved
from surgery.engine.recipe.schema import PassStep, Recipe, with_pass_steps
from surgery.features.bisection import reproduction
from surgery.features.bisection.repro_folder import check_folder, clear, write
from surgery.features.bisection.reproduction import NoRepro, Repro
from surgery.model import storage
from surgery.model.graph.state import Site

if TYPE_CHECKING:
    from surgery.engine.recipe.from_python import Given
    from surgery.model.storage.loading import Model

_MOST_ALONE = 3
"""Maximum number of guilty sites that are also tried alone; if there are more, only the first one is."""


@dataclass(frozen=True)
class GuiltySite(Record, keys="site=site.number site.anchor site.removed site.added why"):
    """A site that makes the step fail, although the sites before it pass.

    `needs` lists earlier sites that are required for the failure. `tried` is whether it was run with only these.
    """

    site: Site
    why: str
    needs: tuple[Site, ...] = ()
    tried: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON report."""
        needs = [{"site": site.number, "anchor": site.anchor} for site in self.needs]
        return {**super().to_json(), "needs": needs, "fails_alone": not self.needs if self.tried else None}


@dataclass(frozen=True)
class Blame:
    """The result of a bisection. Without a `step`, no step failed.

    `tries` counts the verified results, including that of the failing step; `runs` counts those that were run against
    the original, which excludes results refused by the checker. `rest` is whether the other sites pass without the
    guilty ones. `remark` explains why no guilty site was found, or not all of them. `reproduced` is whether the script
    in `folder` shows the failure; without a folder, `no_repro` gives the reason.
    """

    recipe: str
    step: StepRecord | None
    sites: int = 0
    guilty: tuple[GuiltySite, ...] = ()
    rest: bool = False
    tries: int = 0
    runs: int = 0
    remark: str = ""
    folder: Path | None = None
    nodes: tuple[int, int] | None = None
    reproduced: bool = False
    no_repro: str = ""
    seconds: float = 0.0

    def __repr__(self) -> str:
        """Return a line for a prompt."""
        if self.step is None:
            return f"<Blame of {self.recipe!r}: no step fails>"
        guilty = f"{len(self.guilty)} of {counted(self.sites, 'site')}"
        return f"<Blame of {self.recipe!r}: step {self.step.name!r} fails, {guilty} guilty>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        rows = [(str(one.site.number), one.site.anchor, one.why) for one in self.guilty]
        remarks = [text for text in (self.remark, f"{self.folder} reproduces it" if self.reproduced else "") if text]
        tone = "ok" if self.step is None else "bad"
        return view("listed")(repr(self)[1:-1], tone, remarks, ("Site", "At", "Why"), rows, "guilty sites")

    @property
    def exit_code(self) -> int:
        """The exit code: 0 if no step failed, 1 for a negative verdict, 3 if a pass broke."""
        return 0 if self.step is None else self.step.exit_code or 1

    def to_json(self) -> dict[str, Any]:
        """Return the JSON report of `bisect`."""
        step = self.step
        repro = {"folder": str(self.folder), "nodes": list(self.nodes or ()), "reproduced": self.reproduced}
        return {
            "ok": step is None,
            "recipe": self.recipe,
            "step": {**step.to_json(), "where": step.where} if step is not None else None,
            "sites": self.sites,
            "guilty": [one.to_json() for one in self.guilty],
            "rest_holds": self.rest,
            "tries": self.tries,
            "runs": self.runs,
            "remark": self.remark,
            "repro": repro if self.folder is not None else None,
            "no_repro": self.no_repro,
            "seconds": round(self.seconds, 4),
        }


def bisect(
    model: Model,
    recipe: Given,
    *,
    output: str | Path | None = None,
    force: bool = False,
    trust: bool = False,
    observer: Observer | None = None,
    contained: bool = True,
) -> Blame:
    """Run a recipe up to the first failing step, find its guilty sites, and write a repro to `output`.

    `recipe` is what `surgery.apply` takes. Every step is verified, and a failing one ends the run, regardless of the
    recipe. `observer` receives the progress. Passes that are not shipped run in a separate process, unless `contained`
    is false.

    Raises RecipeError for mistakes in the recipe, UsageError if it does not exist, ModelFileError if the model cannot
    be read, and OutputError if `output` exists and is not to be replaced by `force`. A failing step raises no error:
    look at `Blame.step`.
    """
    from surgery.engine.recipe.from_python import read

    started = time.perf_counter()
    loaded = read(recipe, trust=trust)
    if output is not None:
        check_folder(Path(output), force=force)
    stored = storage.opened(model)
    steps = with_pass_steps(loaded.steps, lambda step: replace(step, on_failure="abort"))
    strict = replace(loaded, steps=steps, verify=replace(loaded.verify, mode="each", compare="whole"))
    pipeline = Pipeline(stored, strict, observer, contained=contained)
    with closing(pipeline):
        try:
            pipeline.run(strict.steps)
            pipeline.settle()
        except Abort:
            found = _Inquiry(pipeline, loaded).run(None if output is None else Path(output))
        else:
            found = Blame(loaded.name, None)
    if output is not None and found.folder is None:
        clear(Path(output))
    return replace(found, seconds=time.perf_counter() - started)


class _Inquiry:
    """The examination of the step that ended a pipeline."""

    def __init__(self, pipeline: Pipeline, recipe: Recipe) -> None:
        self.pipeline, self.recipe = pipeline, recipe
        self.blame = Blame(recipe.name, pipeline.journal.records[-1])

    def run(self, folder: Path | None) -> Blame:
        failed = self.pipeline.failed
        if failed is None:
            return replace(self.blame, remark="the result is correct; an expectation of the step fails")
        self.blame = replace(self.blame, sites=len(failed.applied), **_counts([failed]))
        if not failed.is_wrong:
            reason = "nothing is known about the result" if failed.changed else "the pass failed, so there is no result"
            return replace(self.blame, remark=f"{reason}: its sites cannot be tested separately")
        shown = self._search(failed)
        if folder is not None:
            self._reproduce(shown, folder)
        return self.blame

    def _search(self, failed: Candidate) -> Candidate:
        """Find the guilty sites; return the run of the first one alone, or else the smallest run known to fail."""
        search = self.pipeline.search(failed)
        rest, remark = False, ""
        try:
            search.guilty()
            rest = True
        except SearchLimit as reason:
            remark = str(reason)
        guilty = [GuiltySite(one.site, one.trial.complaint) for one in search.found]
        shown = search.found[0].trial if search.found else failed
        for index, one in enumerate(search.found):
            if not index or len(search.found) <= _MOST_ALONE:
                trial = self._alone(search, one, guilty, index)
                shown = trial if not index and trial is not None else shown
        self.blame = replace(self.blame, guilty=tuple(guilty), rest=rest, remark=remark, **_counts(search.trials))
        return shown

    @staticmethod
    def _alone(
        search: SiteSearch[Candidate], one: Guilty[Candidate], guilty: list[GuiltySite], index: int
    ) -> Candidate | None:
        """Run a guilty site with only the sites that it needs."""
        try:
            needs, trial = search.accomplices(one, [other.site.number for other in search.found[:index]])
        except SearchLimit:
            return None
        guilty[index] = replace(guilty[index], needs=tuple(needs), tried=True)
        return trial

    def _reproduce(self, shown: Candidate, folder: Path) -> None:
        """Extract a small model and write it."""
        step = shown.step
        self.pipeline.journal.stage(step.name, "repro")
        try:
            repro = self._repro(shown)
        except NoRepro as reason:
            self.blame = replace(self.blame, no_repro=str(reason))
            return
        title = f"Pass '{step.name}' of recipe '{self.blame.recipe}'"
        if self.blame.guilty:
            site = self.blame.guilty[0].site
            title += f" is wrong at its site {site.number}, at node '{site.anchor}'."
        else:
            title += " is wrong."
        report = {key: value for key, value in self.blame.to_json().items() if key not in ("no_repro", "seconds")}
        reproduced = write(repro, folder, title=title, report=report, step=_step_text(step, self.recipe))
        self.blame = replace(self.blame, folder=folder, nodes=repro.nodes, reproduced=reproduced)

    def _repro(self, shown: Candidate) -> Repro:
        pipeline, judge = self.pipeline, self.pipeline.verifying
        if shown.verdict is None or shown.proto is None:
            raise NoRepro("the failure is visible without a run")
        verifier, before, after = judge.tracker.references.compared(
            pipeline.model.proto, shown.proto, shown.renamed, shown.accounts
        )
        return reproduction.make(
            verifier,
            before,
            after,
            pipeline.model.stored.weights,
            promise=shown.step.find().promise(shown.step.options),
            spec=judge.spec,
        )


def _counts(attempts: Iterable[Candidate]) -> dict[str, Any]:
    """Count the verified results and the runs."""
    judged = [attempt for attempt in attempts if attempt.changed]
    return {"tries": len(judged), "runs": sum(1 for attempt in judged if attempt.verdict is not None)}


def _step_text(step: PassStep, recipe: Recipe) -> str:
    """Return a step as a recipe of its own, without its conditions and exceptions, which are about the whole model."""
    alone = replace(step, when=None, expect=None, excepted=(), on_failure=None)
    rules = {} if step.declared is None else {step.name: step.declared}
    about = f"The failing step of recipe '{recipe.name}'."
    plugins = tuple(resolved.plugins_of(recipe))
    return resolved.brief(Recipe(step.name, (alone,), about, plugins=plugins, rules=rules, target=recipe.target))
