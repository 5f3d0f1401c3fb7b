"""Run a recipe on one model of a batch. This runs in a worker process and returns plain data."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base import workers
from surgery.base.errors import PassError, SurgeryError, WorkerError, internal
from surgery.engine.batching import output_folder
from surgery.engine.batching.input_digests import digest_of_files
from surgery.engine.batching.ledger import BROKE, weakness
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.run_options import RunOptions
from surgery.engine.recipe import load
from surgery.model import storage
from surgery.model.remote import urls
from surgery.model.storage import staging
from surgery.model.storage.summary import data_files
from surgery.verification.inputs.spec import DataSpec

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Result, StepRecord
    from surgery.engine.recipe.schema import Recipe

FUNCTION = "surgery.engine.batching.job:run"
"""The function that a worker calls."""


def run(job: Mapping[str, Any]) -> dict[str, Any]:
    """Run one model and return the columns of its row in the ledger.

    `job` has the fields of `schedule.job_of`. Only MemoryError is raised; any other error makes the model fail.
    """
    started = time.perf_counter()
    stages = _Stages()
    try:
        found = _run(job, stages)
    except MemoryError:
        raise
    except Exception as error:
        found = {**_problem(error), "stage": stages.current}
    return {**found, "seconds": round(time.perf_counter() - started, 3)}


def _run(job: Mapping[str, Any], stages: _Stages) -> dict[str, Any]:
    stages.stage("reading", "")
    with (
        output_folder.local_copies(job["model"], job["output"]) as (model, output),
        output_folder.local_recipe(job["recipe"], job["recipe_content"]) as recipe,
    ):
        return _run_on(model, output, recipe, job, stages)


def _run_on(model: Path, output: Path, recipe: str, job: Mapping[str, Any], stages: _Stages) -> dict[str, Any]:
    """Run the recipe on local files, and deliver the result."""
    if not urls.is_url(job["model"]):
        workers.note({"input_files": output_folder.sizes([model])})
    stored = storage.load(model)
    source = _source(job, model, data_files(stored))
    try:
        result = runner.apply(
            model,
            _recipe(recipe, job),
            output=output,
            force=True,
            layout=job["layout"],
            options=RunOptions(observer=stages, on_failure=job["on_failure"], strict=job["strict"]),
        )
    except SurgeryError as error:
        return {**source, **_problem(staging.explained(error)), "stage": stages.current}
    found = {**source, **_figures(result)}
    if not result.ok:
        return {**found, "state": "failed", **_negative(result)}
    stages.stage("output", "")
    written = data_files(storage.load(output))
    output_folder.delivered(written, job["output"])
    return {
        **found,
        "state": "done",
        "stage": "",
        **_unmet(result),
        "output_sha256": digest_of_files(written),
        "output_files": [[path.name, path.stat().st_size] for path in written],
    }


def _source(job: Mapping[str, Any], model: Path, files: Sequence[Path]) -> dict[str, Any]:
    """Return the columns about the files of the model.

    They are sent to the parent first: if this process dies, the model need not run again while its files are the same.
    """
    if urls.is_url(job["model"]):
        noted = output_folder.versions(job["model"], output_folder.data_locations(model, files), job["version"])
    else:
        noted = output_folder.sizes(files)
    workers.note({"input_files": noted})
    source = {"input_sha256": digest_of_files(files), "input_files": noted}
    workers.note(source)
    return source


def _recipe(name: str, job: Mapping[str, Any]) -> Recipe:
    """Return the recipe, with the settings of the command line and the manifest applied."""
    # The path of a temporary copy is another one for each model.
    load = _load if name != job["recipe"] else _loaded
    recipe = load(name, job["trust"], tuple(job["plugins"]), job["recipe_sha256"])
    data = tuple(DataSpec(Path(path)) for path in job["inputs"])
    libraries = tuple(Path(path) for path in job["custom_op_libraries"])
    verify = recipe.verify
    return replace(
        recipe,
        target=job["target"] or recipe.target,
        inputs=replace(recipe.inputs, data=data + recipe.inputs.data),
        verify=replace(
            verify,
            custom_op_library=libraries + verify.custom_op_library,
            providers=tuple(job["providers"]) or verify.providers,
            unverified=job["unverified"] or verify.unverified,
        ),
    )


def _load(recipe: str, trust: bool, plugins: Sequence[str], digest: str) -> Recipe:
    from surgery.engine.registry.catalog import catalog

    for plugin in plugins:
        catalog.load_plugin(plugin)
    return load(recipe, trust=trust)


_loaded = cache(_load)
"""Loads a recipe once per worker, and again if its digest changes."""


def _figures(result: Result) -> dict[str, Any]:
    """Return the numbers and the verdict of a run."""
    final = _verdict(result)
    needed = dict(final.needed) if final is not None and final.needed is not None else {}
    return {
        "nodes_before": result.input.nodes,
        "nodes_after": result.output.nodes,
        "bytes_before": result.input.bytes,
        # The statement of provenance grows with the names and settings of the recipe, which are no part of the model.
        "bytes_after": result.figures.bytes if result.ok else None,
        "verdict": final.status.value if final is not None else None,
        "unverified": final.reason if final is not None else None,
        "rtol": _number(needed.get("rtol")),
        "atol": _number(needed.get("atol")),
        "tolerance": _number(needed.get("factor")),
        "refused": len(result.refused),
    }


def _verdict(result: Result) -> Any:
    """Return the verdict on the result: on the whole model at the end, else the weakest one on a committed step."""
    if result.end is not None:
        return result.end
    found = [step.verdict for step in result.steps if step.status == "committed" and step.verdict is not None]
    return max(found, key=lambda verdict: weakness(verdict.status.value), default=None)


def _loss(result: Result) -> str:
    """Return the loss of a lossy result against its budget; empty if no step was lossy."""
    details = result.loss.details if result.loss is not None else None
    return workers.shorten(str(details.accuracy.get("summary", ""))) if details is not None and details.accuracy else ""


def _unmet(result: Result) -> dict[str, Any]:
    """Return the kind and the reason of a result that is written: of a purpose that is not met, else the loss."""
    if not result.unmet:
        return {"reason": _loss(result)}
    words = [*(one.words for one in result.unmet), *map(_line, result.broken), *filter(None, [_loss(result)])]
    kind = "purpose" if result.exit_code < PassError.exit_code else BROKE
    return {"kind": kind, "reason": workers.shorten("; ".join(words))}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _negative(result: Result) -> dict[str, Any]:
    """Return the stage, the kind and a one-line reason of a run that is not ok."""
    step = result.failure
    if step is not None:
        kind = "pass" if step.exit_code > 1 else "verdict"
        return {"stage": step.name, "kind": kind, "reason": _line(step)}
    if result.unverifiable:
        return {"stage": "(end)", "kind": "unverified", "reason": workers.shorten(result.unverifiable)}
    missed = [item.what for item in result.expectations if not item.ok]
    if missed:
        return {"stage": "(expect)", "kind": "expectation", "reason": workers.shorten("; ".join(missed))}
    if result.unmet:
        return {"stage": "(end)", **_unmet(result)}
    refused = result.refused[0]
    return {"stage": refused.name, "kind": "strict", "reason": workers.shorten(f"a step was undone: {_line(refused)}")}


def _line(step: StepRecord) -> str:
    return workers.shorten(step.message) or step.status


def _problem(error: Exception) -> dict[str, Any]:
    """Return the columns of a model that ended with an error."""
    kind = error.code if isinstance(error, SurgeryError) else "internal"
    if isinstance(error, WorkerError) and error.signal in (workers.TIMEOUT, workers.OUT_OF_MEMORY):
        kind = "time" if error.signal == workers.TIMEOUT else "memory"
    return {"state": "failed", "kind": kind, "reason": workers.shorten(internal(error))}


class _Stages:
    """An observer that reports each stage to the parent process."""

    def __init__(self) -> None:
        self.current = ""
        self._lock = threading.Lock()

    def stage(self, step: str, stage: str) -> None:
        """Report the current stage. Steps may be verified in separate threads."""
        with self._lock:
            self.current = f"{step}: {stage}" if stage else step
            workers.stage(self.current)

    def said(self, step: str, text: str) -> None:
        """Ignore the output of a pass."""

    def done(self, record: StepRecord) -> None:
        """Do nothing, because the result contains the record."""
