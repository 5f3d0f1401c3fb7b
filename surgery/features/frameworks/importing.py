"""Import the weights of checkpoints into a model, and report the outcome for each tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError, counted
from surgery.base.views import view
from surgery.features.frameworks import import_plan, rotary, source_elements
from surgery.features.frameworks.import_plan import ImportPlan, Layout, WeightMisfit
from surgery.features.frameworks.mapping import NameMapping, TensorSource
from surgery.features.frameworks.suggesting import Suggestions, suggest
from surgery.features.frameworks.target_tensors import targets
from surgery.model import storage
from surgery.model.checkpoints.checkpoints import read_checkpoint

if TYPE_CHECKING:
    import onnx

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Imported:
    """The result of `import_weights`.

    `written` are the files, none if there are misfits that were not accepted. `unchanged` counts initializers that
    already had these elements. `suggestions` are names that may correspond; they are not applied.
    """

    plan: ImportPlan
    model: storage.StoredModel
    unchanged: int
    partial: bool
    suggestions: Suggestions
    written: tuple[Path, ...] = ()

    def __repr__(self) -> str:
        """Return a line for a prompt."""
        count, misfits = len(self.plan.assignments), len(self.plan.misfits)
        wrong = f", {counted(misfits, 'misfit')}" if misfits else ""
        return f"<Imported: {'ok' if self.ok else 'not ok'}, {counted(count, 'initializer')}{wrong}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        rows = [(one.kind, f"{one.name}: {one.message}") for one in self.plan.misfits]
        return view("listed")(repr(self)[1:-1], "ok" if self.ok else "bad", (), ("Misfit", "What"), rows, "misfits")

    @property
    def ok(self) -> bool:
        """Whether something was imported and everything fits, or misfits are accepted."""
        return bool(self.plan.assignments) and (self.partial or not self.plan.misfits)

    def to_json(self) -> dict[str, Any]:
        """Return plain values.

        `imported`: each initializer with its tensors, the order of axes if they were permuted and why, how rows were
        reordered, and the type in the checkpoint. `misfits`: mismatches, with `kind` missing, unexpected, shape, dtype,
        range or layout. `kept`, `ignored`: names that were left out on purpose. `tied`: tensors with the same elements
        as another one. `suggestions`: initializers and tensors whose names may correspond.
        """
        found = self.plan
        return {
            "format_version": FORMAT_VERSION,
            "ok": self.ok,
            "files": [str(path) for path in self.written],
            "imported": [one.to_json() for one in found.assignments],
            "unchanged": self.unchanged,
            "misfits": [one.to_json() for one in found.misfits],
            "kept": found.kept,
            "ignored": found.ignored,
            "tied": [list(pair) for pair in found.tied],
            "suggestions": self.suggestions.to_json(),
        }


Confirm = Callable[["onnx.ModelProto"], bool]
"""Called before anything is written; returns whether the model with its new weights is accepted."""


def import_weights(
    model: str | Path | onnx.ModelProto,
    checkpoints: Sequence[str | Path],
    output: str | Path | None = None,
    *,
    mapping: NameMapping | None = None,
    names: Mapping[str, TensorSource] | None = None,
    key: str | None = None,
    layout: Layout = "auto",
    partial: bool = False,
    force: bool = False,
    confirm: Confirm | None = None,
) -> Imported:
    """Replace the elements of initializers by tensors of checkpoints, and write the model if all of them fit.

    A tensor is assigned to the initializer of its name, unless `mapping` or `names` specify another; `key` selects one
    of several dicts of a PyTorch checkpoint. Matrices are transposed according to `layout`, and floats are converted to
    the type of the model. With `partial`, misfits are left out. Names, types and dims of the model do not change.

    Raises ModelFileError for a file that is missing, damaged or would run code, UsageError for initializers that do not
    exist, and OutputError if `output` exists and is not to be replaced by `force`. Misfits raise no error: look at
    `Imported.ok`.
    """
    if not checkpoints:
        raise UsageError("no checkpoint is given")
    stored = storage.opened(model)
    said = mapping or NameMapping({})
    said = replace(said, tensors={**(names or {}), **said.tensors})
    weights = stored.weights
    found = [read_checkpoint(Path(path), weights, key=key or said.key) for path in checkpoints]
    if output is not None:
        storage.check_target(Path(output), force=force)
    wanted = targets(stored.proto)
    made = import_plan.make(wanted, found, said, layout, rotary.in_model(stored.proto))
    unchanged = _fill(made, weights)
    entries, _, _ = import_plan.merged(found)
    result = Imported(made, stored, unchanged, partial, suggest(made, wanted, entries))
    if output is None or not result.ok or (confirm is not None and not confirm(stored.proto)):
        return result
    written = storage.save(stored.proto, Path(output), weights, force=force)
    return replace(result, written=tuple(written))


def _fill(made: ImportPlan, weights: storage.Weights) -> int:
    """Set the elements of the initializers, and return how many already had them."""
    unchanged = 0
    for one in list(made.assignments):
        try:
            reference = source_elements.place(one, weights)
        except source_elements.RangeError as error:
            made.assignments.remove(one)
            made.misfits.append(WeightMisfit("range", one.target.name, str(error)))
            continue
        before = type(one.target.tensor)()
        before.CopyFrom(one.target.tensor)
        source_elements.fill(one.target.tensor, reference, weights)
        unchanged += storage.same_elements(before, weights, one.target.tensor, weights)
    return unchanged


def amounts(made: ImportPlan) -> Counter[str]:
    """Return the numbers of transposed, converted, joined and split initializers."""
    found: Counter[str] = Counter()
    for one in made.assignments:
        found["transposed"] += one.order is not None
        found[f"converted from {one.dtype.name.lower()}"] += one.dtype != one.target.dtype
        found["joined"] += len(one.entries) > 1
        found["split"] += one.source.part is not None
        found.update(f"reordered: {title}" for title in one.reordered)
    return +found
