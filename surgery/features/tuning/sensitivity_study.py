"""Measure how sensitive the outputs of a model are to each site of a lossy step."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from surgery.base.errors import PassError, UsageError
from surgery.base.json_record import Record
from surgery.base.promises import Parity
from surgery.engine.pipeline.pipeline import Pipeline
from surgery.engine.pipeline.records import Observer
from surgery.engine.pipeline.run_until import run_until
from surgery.engine.pipeline.sensitivity import Sensitivity
from surgery.engine.pipeline.transaction import Transaction
from surgery.engine.recipe.schema import PassStep, Recipe, pass_steps
from surgery.verification.accuracy.metrics import Metrics, tell

if TYPE_CHECKING:
    from surgery.model import storage


@dataclass(frozen=True)
class SensitivityStudy(Record, keys="pass=name budget use metrics synthetic sites"):
    """The sensitivities of the sites of a step, the most sensitive first, and the loss of all of them together.

    `use` is the share of the budget that the whole step uses, and `metrics` the worst value of each metric. `budget`
    lists the limits.
    """

    name: str
    budget: tuple[str, ...]
    use: float
    metrics: Metrics
    sites: tuple[Sensitivity, ...]
    synthetic: bool

    def __str__(self) -> str:
        return f"{self.name}: all {len(self.sites)} sites together: {tell(self.metrics)}"


def study(
    stored: storage.StoredModel, recipe: Recipe, name: str | None = None, observer: Observer | None = None
) -> SensitivityStudy:
    """Measure individually each site of a recipe's first lossy step, or of its first step of the pass `name`.

    The steps before it run without verification. Raises `UsageError` if there is no such step or it has no sites.
    """
    reached = run_until(stored, recipe, name or _first_lossy(recipe))
    if reached.declared.promise(reached.step.options) is not Parity.LOSSY:
        raise UsageError(f"the pass '{reached.step.name}' is not lossy, so its sites have no loss to measure")
    step = replace(reached.step, when=None, expect=None, on_failure="abort")
    alone = replace(recipe, steps=(step,), verify=replace(recipe.verify, mode="each"))
    before = replace(stored, proto=reached.proto)
    with closing(Pipeline(before, alone, observer)) as pipeline:
        return _measured(pipeline, step)


def _measured(pipeline: Pipeline, step: PassStep) -> SensitivityStudy:
    transaction = Transaction(step, pipeline.bench)
    whole = transaction.run()
    if whole.proto is None or not whole.ok:
        raise PassError(whole.complaint or f"the pass '{step.name}' returned no model")
    if not whole.applied:
        reasons = dict.fromkeys(one.reason for one in whole.refusals)
        raise UsageError(f"the pass '{step.name}' has no sites", todo="; ".join(list(reasons)[:3]) or None)
    tracker = pipeline.verifying.tracker
    tracker.verifier.original.prepare()
    loss = pipeline.judge.loss(whole)
    return SensitivityStudy(
        step.name,
        tuple(tracker.verifier.accuracy.budget),
        loss.use(tracker.limits),
        loss.worst,
        transaction.chooser().sensitivities(whole.applied),
        tracker.verifier.accuracy.samples.synthetic,
    )


def _first_lossy(recipe: Recipe) -> str:
    for step in pass_steps(recipe.steps):
        if step.find().promise(step.options) is Parity.LOSSY:
            return step.name
    raise UsageError(f"recipe '{recipe.name}' has no lossy step")
