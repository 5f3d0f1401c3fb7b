"""Make a plan: run a recipe without writing its result, and record every match site."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from surgery.base.errors import UsageError
from surgery.base.views import view
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.pipeline import Abort, Pipeline
from surgery.engine.pipeline.records import END
from surgery.engine.recipe.on_failure import decided
from surgery.features.planning.plan_dependencies import basis
from surgery.features.planning.plan_document import Checks, Plan, PlannedExpectation, PlannedStep, Totals
from surgery.features.planning.savings import ModelParts, between, operations, planned, total
from surgery.features.planning.step_places import place
from surgery.model import storage
from surgery.model.graph.graph import Graph

if TYPE_CHECKING:
    import onnx

    from surgery.engine.pipeline.records import Expectation, Observer, StepRecord
    from surgery.engine.recipe.from_python import Given
    from surgery.engine.recipe.schema import OnFailure, Recipe
    from surgery.features.inspection.amounts import Amount
    from surgery.model.storage.loading import Model


@dataclass(frozen=True)
class Planning:
    """The outcome of planning. `failure` is the step that would end the run; the plan ends there."""

    plan: Plan
    failure: StepRecord | None

    def __repr__(self) -> str:
        """Return a line for a prompt."""
        sites = sum(len(step.sites) for step in self.plan.steps)
        return f"<Planning: {'ok' if self.ok else 'not ok'}, {len(self.plan.steps)} steps, {sites} sites>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        rows = [(step.name, str(len(step.sites))) for step in self.plan.steps if step.sites]
        remarks = (self.failure.message,) if self.failure is not None else ()
        tone = "ok" if self.ok else "bad"
        return view("listed")(repr(self)[1:-1], tone, remarks, ("Pass", "Sites"), rows, "steps")

    @property
    def ok(self) -> bool:
        """Whether the run would write its result, as far as verified."""
        return self.failure is None and all(one.ok for one in self.plan.expectations)

    @property
    def exit_code(self) -> int:
        """The exit code: 0 if ok, 3 if a pass broke, 1 for a negative verdict or an unmet expectation."""
        if self.failure is not None:
            return self.failure.exit_code
        return 0 if self.ok else 1


def plan(model: Model, recipe: Given = "default", *, verify: Checks = "none", trust: bool = False) -> Planning:
    """Find what a recipe would do to a model, site by site; nothing is written.

    The model and the recipe are as for `surgery.apply`. With `verify`, "each" or "end", each step or the result as a
    whole is verified, and the plan has only the sites that pass; otherwise it has all sites that the passes find.

    Raises RecipeError for mistakes in the recipe, UsageError if it does not exist, and ModelFileError or TransferError
    if the model cannot be read. A failing step does not raise: look at `Planning.ok`.
    """
    if verify not in get_args(Checks):
        raise UsageError(f"'{verify}' is no way to verify a plan", todo=f"choose {', '.join(get_args(Checks))}")
    from surgery.engine.recipe.from_python import read

    loaded = read(recipe, trust=trust)
    name = loaded.name if loaded.path is None else str(recipe)
    return make(storage.opened(model), loaded, name, verify=verify)


def make(
    stored: storage.StoredModel,
    recipe: Recipe,
    given: str,
    *,
    folder: Path | None = None,
    verify: Checks = "none",
    settings: Mapping[str, Any] | None = None,
    observer: Observer | None = None,
    contained: bool = True,
    on_failure: OnFailure | None = None,
) -> Planning:
    """Plan what a recipe does to a loaded model. Nothing is written.

    With `verify`, each step or the result as a whole is verified, and the plan has only the sites that pass; otherwise
    it has all sites that the passes find. `folder` is the folder of the plan, which its paths are relative to; `given`
    is the name of the recipe as given by the user, and `settings` are the flags. Raises a `SurgeryError` for bad input.
    """
    steps = _Steps(stored, recipe)
    if verify == "none":
        outcome = _trusted(stored, decided(recipe, on_failure), steps, observer, contained)
    else:
        checked = replace(recipe, verify=replace(recipe.verify, mode=verify))
        outcome = _verified(stored, checked, steps, observer, contained, on_failure)
    plan = Plan(
        verified=verify,
        again=outcome.again,
        basis=basis(stored, recipe, given, folder or Path(), settings),
        before=steps.before,
        after=steps.after,
        expectations=tuple(PlannedExpectation(what=one.what, ok=one.ok) for one in outcome.expectations),
        steps=tuple(steps.found),
    )
    return Planning(plan, outcome.failure)


@dataclass(frozen=True)
class _Outcome:
    expectations: Sequence[Expectation]
    failure: StepRecord | None
    again: bool = False


def _trusted(
    stored: storage.StoredModel, recipe: Recipe, steps: _Steps, observer: Observer | None, contained: bool
) -> _Outcome:
    """Run a recipe without verification."""
    pipeline = Pipeline(stored, recipe, observer, contained=contained, trusted=True, recorder=steps)
    # Reuse types and shapes that the passes have inferred.
    steps.graph_of = lambda proto: pipeline.model.graph
    with runner.rare_collections(), closing(pipeline):
        try:
            pipeline.run(recipe.steps)
            pipeline.settle()
        except Abort:
            return _Outcome(pipeline.journal.expectations, pipeline.journal.records[-1])
        pipeline.expect()
    return _Outcome(pipeline.journal.expectations, None)


def _verified(
    stored: storage.StoredModel,
    recipe: Recipe,
    steps: _Steps,
    observer: Observer | None,
    contained: bool,
    on_failure: OnFailure | None,
) -> _Outcome:
    result = runner.run(
        stored,
        recipe,
        options=runner.RunOptions(observer=observer, contained=contained, on_failure=on_failure, history=steps),
    )
    again = any(step.name == END and step.status == "rolled_back" for step in result.steps)
    return _Outcome(result.expectations, result.failure, again)


class _Steps:
    """A recorder of the sites of each committed step. `graph_of` returns the graph of a model."""

    def __init__(self, stored: storage.StoredModel, recipe: Recipe) -> None:
        self.found: list[PlannedStep] = []
        self.graph_of: Callable[[onnx.ModelProto], Graph] = self._graph
        self._stored, self._recipe = stored, recipe
        self._view = ModelParts()

    def begin(self, stored: storage.StoredModel, proto: onnx.ModelProto) -> None:
        """Start from a model. A restarted run calls this again."""
        self.found = []
        self._view = self._first = ModelParts.of(proto, stored.weights)
        self._view.operations = operations(self._graph(proto))

    def commit(self, proto: onnx.ModelProto, record: StepRecord, number: int) -> None:
        """Record a step with its sites."""
        before, after = self._view, ModelParts.of(proto, self._stored.weights)
        added = {label for site in record.applied for label in site.added}
        known: dict[str, Amount | None] = {
            label: amount for label, amount in before.operations.items() if label in after.nodes and label not in added
        }
        new = {label for label in after.nodes if label not in known}
        after.operations = {**known, **(operations(self.graph_of(proto), new) if new else {})}
        self.found.append(
            PlannedStep(
                step=len(self.found) + 1,
                name=record.name,
                where=place(record.where, self._recipe),
                nodes_before=record.nodes_before,
                nodes_after=record.nodes_after,
                saves=between(before, after),
                sites=planned(record.applied, before, after),
            )
        )
        self._view = after

    @property
    def before(self) -> Totals:
        """The size of the initial model."""
        return _totals(self._first)

    @property
    def after(self) -> Totals:
        """The size of the planned result."""
        return _totals(self._view)

    def _graph(self, proto: onnx.ModelProto) -> Graph:
        weights = self._stored.weights
        return Graph(storage.ir_from_proto(proto, weights), weights=weights, target=self._recipe.profile)


def _totals(view: ModelParts) -> Totals:
    return Totals(nodes=len(view.nodes), bytes=view.size, operations=total(view.operations.values()))
