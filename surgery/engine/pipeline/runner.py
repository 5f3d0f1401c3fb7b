"""Run a recipe over a model: a record of each step, and the result."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import require_machine
from surgery.engine.pipeline import baseline
from surgery.engine.pipeline.pipeline import Abort, Pipeline
from surgery.engine.pipeline.purpose import off_target, shortfall
from surgery.engine.pipeline.records import DEPLOYED, Figures, Result, StepRecord, last_loss
from surgery.engine.pipeline.reference_start import repaired
from surgery.engine.pipeline.run_options import RunOptions as RunOptions
from surgery.engine.pipeline.shortfall import Shortfall
from surgery.engine.pipeline.step_cache_interface import EndFacts, NoCache, StepCache
from surgery.engine.pipeline.transaction import RefusedEndError
from surgery.engine.recipe.on_failure import decided
from surgery.engine.recipe.schema import Recipe
from surgery.model import storage
from surgery.model.proto.repair import faults
from surgery.model.remote import urls
from surgery.model.storage.summary import data_files, summarize
from surgery.verification.comparing.details import Status
from surgery.verification.inputs.spec import DataSpec
from surgery.verification.verdict.validity import Validity

if TYPE_CHECKING:
    import onnx

    from surgery.engine.provenance.statement_writing import Sidecar
    from surgery.engine.recipe.from_python import Given
    from surgery.model.storage.loading import Model
    from surgery.verification.comparing.details import Verdict

_DEFAULT = RunOptions()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Run the garbage collector less often: it visits each of the many objects of a graph, all of which stay alive."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], 50_000), max(before[1], 20), max(before[2], 100))
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run(
    stored: storage.StoredModel,
    recipe: Recipe,
    options: RunOptions = _DEFAULT,
    *,
    meanwhile: Callable[[onnx.ModelProto], object] | None = None,
) -> Result:
    """Run a recipe over a loaded model. Nothing is written; see `Result.save`.

    `meanwhile` is called with the resulting model while the last steps are still being verified.
    """
    cache, reference = options.cache or NoCache(), options.reference
    started = time.perf_counter()
    fault = faults(stored.proto) or (reference.fault if reference is not None else "")
    stored = repaired(stored)
    asked = replace(recipe, on_failure=options.on_failure or recipe.on_failure)
    recipe = decided(recipe, options.on_failure)
    refused: list[StepRecord] = []
    attempt = recipe
    # The verdict on the whole result comes last. If it is negative although every step held, the recipe runs again
    # from the start, with a stricter verification that finds the step to blame.
    while True:
        with (
            rare_collections(),
            closing(
                Pipeline(
                    *(stored, attempt, options.observer),
                    contained=options.contained,
                    reference=reference,
                    recorder=options.history,
                    earlier=len(refused),
                    cache=cache,
                    choice=options.choice,
                )
            ) as steps,
        ):
            try:
                steps.run(attempt.steps)
                if meanwhile is not None:
                    meanwhile(steps.model.proto)
                steps.settle()
                steps.finish()
            except RefusedEndError as end:
                refused.append(end.record)
                steps.journal.observer.done(end.record)
                # The reference run that was started early belongs to the first attempt, which has used it up.
                attempt, reference = _stricter(attempt, end.record), None
                continue
            except Abort:
                pass
            except (OSError, MemoryError) as error:
                require_machine(error)
                raise
            else:
                steps.expect()
            found = _result(steps, attempt, tuple(refused), started, options.strict, cache)
            known = found.validity or Validity()
            validity = replace(known, repaired=fault) if fault else found.validity
            return replace(found, history=options.history, made_by=asked, validity=validity)


def _stricter(recipe: Recipe, refused: StepRecord) -> Recipe:
    """Return a recipe whose verification finds the step that makes the end result wrong."""
    verify = recipe.verify
    if refused.name == DEPLOYED:
        stricter = replace(verify, mode="each", deployment="each")
    else:
        stricter = replace(verify, mode="each", compare="whole" if verify.compare == "whole" else "both")
    assert stricter != verify, "each step was verified in this way"
    return replace(recipe, verify=stricter)


def _result(
    steps: Pipeline,
    recipe: Recipe,
    refused: tuple[StepRecord, ...],
    started: float,
    strict: bool,
    cache: StepCache,
) -> Result:
    judge, stored = steps.verifying, steps.model.stored
    files = data_files(stored)
    known = cache.find_end(steps.model.state)
    facts = known or _facts(steps, recipe)
    unverifiable = _unverifiable(steps, facts) if known is None else ""
    if known is None and not unverifiable:
        cache.note_end(steps.model.state, facts)
    return Result(
        recipe=recipe.name,
        target=steps.model.target.name,
        misfits=_misfits(steps),
        input=summarize(stored.proto, files),
        output=summarize(steps.model.proto),
        steps=(*refused, *steps.journal.records),
        expectations=tuple(steps.journal.expectations),
        bindings=facts.bindings,
        seconds=time.perf_counter() - started,
        proto=steps.model.proto,
        stored=stored,
        strict=strict,
        end=_end(judge.end, steps.journal.records),
        deployed=steps.deployed,
        validity=facts.validity,
        unverifiable=unverifiable,
        shortfall=shortfall(recipe, steps.journal.records, stored.proto),
        providers=recipe.verify.providers,
        figures=_figures(steps),
    )


def _misfits(steps: Pipeline) -> Shortfall | None:
    """Return why the target does not run the result; None if it does, there is none, or an expectation says so."""
    from surgery.model.targets import STANDARD

    if steps.model.target == STANDARD or any(one.target for one in steps.journal.expectations):
        return None
    return off_target(steps.model.editable(), steps.model.stored, steps.deployed)


def _end(whole: Verdict | None, records: Sequence[StepRecord]) -> Verdict | None:
    """Return the verdict on the result: the loss if a step was lossy, even if later steps changed nothing more."""
    loss = last_loss(records)
    return replace(loss, cached=False) if loss is not None and (whole is None or whole.passed) else whole


def _figures(pipeline: Pipeline) -> Figures:
    """Return the figures of the committed model and of its verification."""
    from surgery.engine.provenance import statement

    model, judge = pipeline.model, pipeline.verifying
    kept = [record.verdict for record in pipeline.journal.records if record.status == "committed"]
    needed = [verdict.needed.get("factor") for verdict in (*kept, judge.end) if verdict is not None and verdict.needed]
    known = [factor for factor in needed if factor is not None]
    return Figures(
        nodes=model.nodes,
        bytes=storage.saved_size(statement.embed(model.proto, None), model.stored.weights),
        tolerance=max(known, default=None if kept else 0.0),
        speed=pipeline.speed,
    )


def _facts(steps: Pipeline, recipe: Recipe) -> EndFacts:
    """Return the facts about the original for the report."""
    judge = steps.verifying
    if any(record.cached and record.verdict is not None for record in steps.journal.records):
        # Had the step been verified in this run, the original would have run.
        judge.tracker.verifier.original.prepare()
    found = judge.validity(steps.model.stored) if recipe.verify.mode != "off" else None
    return EndFacts(tuple(judge.tracker.verifier.original.bindings), found)


def _unverifiable(pipeline: Pipeline, facts: EndFacts) -> str:
    """Return why a model cannot be run if nothing could be verified; empty otherwise, or if that is accepted.

    A model that no step changed has nothing to be verified. An invalid model stays invalid, even if no step changes it,
    or one passes.
    """
    judge, found, records = pipeline.verifying, facts.validity, pipeline.journal.records
    if found is None or judge.spec.unverified == "accept":
        return ""
    verdicts = [record.verdict for record in records if record.verdict is not None]
    if found.refusal and not found.gap:
        return judge.why_unknown()
    if any(verdict.passed or verdict.status is Status.LOSSY for verdict in verdicts):
        return ""
    is_changed = any(record.status == "committed" for record in records)
    if any(verdict.is_unverified for verdict in verdicts) or (found.refusal and is_changed):
        return judge.why_unknown()
    return ""


def _with_data(recipe: Recipe, calibration: Any, evaluation: Any) -> Recipe:
    """Return a recipe with other data for lossy passes, where it is given."""
    inputs, verify = recipe.inputs, recipe.verify
    if calibration is not None:
        found = replace(inputs.calibration, data=DataSpec.each(calibration))
        recipe = replace(recipe, inputs=replace(inputs, calibration=found))
    if evaluation is not None:
        samples = replace(verify.accuracy.samples, data=DataSpec.each(evaluation))
        recipe = replace(recipe, verify=replace(verify, accuracy=replace(verify.accuracy, samples=samples)))
    return recipe


def apply(
    model: Model,
    recipe: Given = "default",
    *,
    output: str | Path | None = None,
    force: bool = False,
    trust: bool = False,
    target: str | Path | None = None,
    calibration: Any = None,
    evaluation: Any = None,
    layout: storage.Layout = "keep",
    lock: str | Path | bool = False,
    options: RunOptions = _DEFAULT,
) -> Result:
    """Run a recipe over a model, and write the result to `output` if the run is ok.

    `model` is a path, a URL, an onnx.ModelProto, an onnx_ir.Model, or what `surgery.load` returns, `output` a path or a
    URL. `recipe` is a path, the name of a shipped recipe, YAML text, a list of passes and steps, a mapping, or a loaded
    recipe. `target` is the runtime that the model is made for, as a name or the path of a profile; it overrides the
    recipe's. So do `calibration` and `evaluation`, the data of lossy passes: paths of .npz files or of folders, such as
    of images, `FILE.py:FUNCTION`, mappings of arrays by the names of inputs, `DataSpec`, or a list of these. With
    `lock`, the path of a lock or True for the one next to the recipe, nothing runs if anything has changed since the
    lock was made.

    Raises RecipeError for mistakes in the recipe, UsageError if a recipe, target or lock does not exist or the lock
    does not hold, ModelFileError if the model cannot be read, and OutputError if `output` exists and is not to be
    replaced by `force`, or cannot be written. Raises TransferError if a connection breaks, and MachineError if memory
    or disk space run out. A negative verdict does not raise: look at `Result.ok`.
    """
    loaded = recipe if isinstance(recipe, Recipe) else _recipe(recipe, trust, options.contained)
    loaded = _with_data(loaded if target is None else replace(loaded, target=str(target)), calibration, evaluation)
    if lock:
        from surgery.engine.provenance.lock import require

        pinned = replace(loaded, on_failure=options.on_failure or loaded.on_failure)
        require(pinned, Path(lock) if not isinstance(lock, bool) else None)
    stored = options.reference.stored if options.reference is not None else storage.opened(model)
    last = baseline.read(loaded.baseline, stored.path) if loaded.baseline is not None else None
    if output is not None:
        storage.check_target(output, force=force)
    provenance = options.provenance
    if not isinstance(provenance, bool) and not (isinstance(output, str) and urls.is_url(output)):
        provenance.check(Path(output) if output is not None else None, stored.weights, force=force)
    provenance = _stated(loaded, provenance)
    meanwhile = None
    if output is not None and provenance:
        from surgery.engine.provenance.statement_writing import digest_weights

        meanwhile = partial(digest_weights, stored)
    result = run(stored, loaded, options, meanwhile=meanwhile)
    if last is not None:
        result = baseline.held(result, loaded, last)
    if options.accept is not None:
        options.accept(result)
    if output is None or not result.ok:
        return result
    return result.save(output, layout=layout, force=force, provenance=provenance)


def _stated(recipe: Recipe, asked: bool | Sidecar) -> bool | Sidecar:
    """Return the requested provenance, unless the recipe switches it off."""
    return asked if recipe.provenance or not isinstance(asked, bool) else False


def _recipe(recipe: Given, trust: bool, contained: bool) -> Recipe:
    from surgery.engine.recipe.from_python import read
    from surgery.engine.registry import discovery

    before = discovery.contained.set(contained)
    try:
        return read(recipe, trust=trust)
    finally:
        discovery.contained.reset(before)
