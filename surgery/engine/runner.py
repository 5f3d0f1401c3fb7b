"""Run a recipe over a model: a record of each step, and the result."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from surgery import storage
from surgery.engine.pipeline import Abort, Pipeline
from surgery.engine.records import Observer, Recorder, Result, StepRecord
from surgery.engine.step_cache import EndFacts, NoCache, StepCache
from surgery.engine.transaction import RefusedEndError
from surgery.proto.summary import data_files, summarize
from surgery.recipe.failing import decided
from surgery.recipe.schema import OnFailure, Recipe

if TYPE_CHECKING:
    import onnx

    from surgery.engine.reference_start import ReferenceStart


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Run the garbage collector less often: it visits each of the many objects of a graph, all of which stay."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], 50_000), max(before[1], 20), max(before[2], 100))
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run(
    stored: storage.StoredModel,
    recipe: Recipe,
    *,
    observer: Observer | None = None,
    contained: bool = True,
    reference: ReferenceStart | None = None,
    on_failure: OnFailure | None = None,
    strict: bool = False,
    history: Recorder | None = None,
    cache: StepCache | None = None,
) -> Result:
    """Run a recipe over a loaded model. Nothing is written; see `Result.save`.

    Passes that are not standard ones run in a process of their own, unless `contained` is false. `reference` is the run
    of this model, started early, with the inputs and the verification of the recipe. `on_failure` overrides what the
    recipe does about a step that fails. With `strict`, a run that keeps only what holds is not ok.
    `history` is told of each committed step, as `surgery.drawing.History` wants to be, and is then in the result.
    `cache` has the outcomes of steps in earlier runs, and takes those of this one; see `surgery.caching`.
    """
    cache = cache or NoCache()
    started = time.perf_counter()
    recipe = decided(recipe, on_failure)
    refused: list[StepRecord] = []
    # Where the end result is wrong, verifying each step on the whole model finds the step to blame.
    each = replace(recipe, verify=replace(recipe.verify, mode="each", compare="whole"))
    for attempt in (recipe, each):
        with (
            _rare_collections(),
            closing(
                Pipeline(
                    *(stored, attempt, observer),
                    contained=contained,
                    reference=reference,
                    recorder=history,
                    earlier=len(refused),
                    cache=cache,
                )
            ) as steps,
        ):
            try:
                steps.run(attempt.steps)
                steps.settle()
                steps.finish()
            except RefusedEndError as end:
                refused.append(end.record)
                steps.journal.observer.done(end.record)
                reference = None
                continue
            except Abort:
                pass
            else:
                steps.expect(attempt.expect)
            return replace(_result(steps, attempt, tuple(refused), started, strict, cache), history=history)
    raise AssertionError("each step was verified on the whole")


def _result(
    steps: Pipeline,
    recipe: Recipe,
    refused: tuple[StepRecord, ...],
    started: float,
    strict: bool,
    cache: StepCache,
) -> Result:
    judge, stored = steps.verifying, steps.model.stored
    files = data_files(stored.proto, stored.path) if stored.path is not None else []
    known = cache.find_end(steps.model.state)
    facts = known or _facts(steps, recipe)
    unverifiable = _unverifiable(steps, facts) if known is None else ""
    if known is None and not unverifiable:
        cache.note_end(steps.model.state, facts)
    return Result(
        recipe=recipe.name,
        target=steps.model.target.name,
        input=summarize(stored.proto, files),
        output=summarize(steps.model.proto),
        steps=(*refused, *steps.journal.records),
        expectations=tuple(steps.journal.expectations),
        bindings=facts.bindings,
        seconds=time.perf_counter() - started,
        proto=steps.model.proto,
        stored=stored,
        strict=strict,
        end=judge.end,
        validity=facts.validity,
        unverifiable=unverifiable,
        providers=recipe.verify.providers,
    )


def _facts(steps: Pipeline, recipe: Recipe) -> EndFacts:
    """Return what the report says of the original."""
    judge = steps.verifying
    if any(record.cached and record.verdict is not None for record in steps.journal.records):
        # Had the step been verified in this run, the original would have run.
        judge.tracker.verifier.prepare()
    found = judge.validity(steps.model.stored) if recipe.verify.mode != "off" else None
    return EndFacts(tuple(judge.tracker.verifier.bindings), found)


def _unverifiable(pipeline: Pipeline, facts: EndFacts) -> str:
    """Return why nothing could be verified, for a model that cannot be run; empty otherwise, or where that is accepted.

    An invalid model stays invalid, also where a step that changes nothing passes.
    """
    judge, found = pipeline.verifying, facts.validity
    if found is None:
        return ""
    verdicts = [record.verdict for record in pipeline.journal.records if record.verdict is not None]
    invalid = bool(found.refusal) and not found.gap
    if judge.spec.unverified == "accept" or (any(verdict.passed for verdict in verdicts) and not invalid):
        return ""
    return judge.why_unknown() if found.refusal or any(one.is_unverified for one in verdicts) else ""


def apply(
    model: str | Path | onnx.ModelProto,
    recipe: str | Path | Recipe,
    *,
    output: str | Path | None = None,
    force: bool = False,
    trust: bool = False,
    observer: Observer | None = None,
    layout: storage.Layout = "keep",
    contained: bool = True,
    reference: ReferenceStart | None = None,
    on_failure: OnFailure | None = None,
    strict: bool = False,
    target: str | Path | None = None,
    history: Recorder | None = None,
    cache: StepCache | None = None,
) -> Result:
    """Run a recipe over a model, and write the result to `output` if the run is ok.

    `model` is a path or a message in memory, `recipe` a path, the name of a shipped recipe, or a loaded one.
    `target` is the runtime that the model is made for, a name or the path of a profile, in the place of the recipe's.
    For `reference`, `on_failure`, `strict`, `history` and `cache` see `run`. Raises a `SurgeryError` for bad input. A
    negative verdict does not raise: look at `Result.ok`.
    """
    loaded = recipe if isinstance(recipe, Recipe) else _recipe(recipe, trust, contained)
    loaded = loaded if target is None else replace(loaded, target=str(target))
    stored = reference.stored if reference is not None else _load(model)
    if output is not None:
        storage.check_target(Path(output), force=force)
    result = run(
        stored,
        loaded,
        observer=observer,
        contained=contained,
        reference=reference,
        on_failure=on_failure,
        strict=strict,
        history=history,
        cache=cache,
    )
    return result.save(output, layout=layout, force=force) if output is not None and result.ok else result


def _recipe(recipe: str | Path, trust: bool, contained: bool) -> Recipe:
    from surgery import recipe as recipes
    from surgery.registry import discovery

    before = discovery.contained.set(contained)
    try:
        return recipes.load(recipe, trust=trust)
    finally:
        discovery.contained.reset(before)


def _load(model: str | Path | onnx.ModelProto) -> storage.StoredModel:
    return storage.load(Path(model)) if isinstance(model, str | Path) else storage.from_proto(model)
