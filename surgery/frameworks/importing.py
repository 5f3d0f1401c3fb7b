"""Import the weights of checkpoints into a model, and report the outcome for each tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery import storage
from surgery.errors import UsageError
from surgery.frameworks import elements, plan
from surgery.frameworks.mapping import NameMapping, Source
from surgery.frameworks.plan import Layout, Misfit, Plan
from surgery.frameworks.suggesting import Suggestions, suggest
from surgery.frameworks.targets import targets

if TYPE_CHECKING:
    import onnx

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Imported:
    """What `import_weights` did.

    `written` are the files, none where something did not fit and that was not accepted. `unchanged` counts initializers
    that had these elements before. `suggestions` are names that may belong together, and are not used.
    """

    plan: Plan
    model: storage.StoredModel
    unchanged: int
    partial: bool
    suggestions: Suggestions
    written: tuple[Path, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all fits, or what does not is accepted, and something was imported."""
        return bool(self.plan.assignments) and (self.partial or not self.plan.misfits)

    def to_json(self) -> dict[str, Any]:
        """Return plain values.

        `imported`: each initializer with its tensors, the order of axes if they were permuted and why, and the type in
        the checkpoint. `misfits`: what did not fit, with `kind` missing, unexpected, shape, dtype, range or layout.
        `kept`, `ignored`: names that were left out on purpose. `tied`: tensors with the elements of another one.
        `suggestions`: initializers and tensors whose names may belong together.
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
"""Asked before anything is written whether the model with its new weights is what is wanted."""


def import_weights(
    model: str | Path | onnx.ModelProto,
    checkpoints: Sequence[str | Path],
    output: str | Path | None = None,
    *,
    mapping: NameMapping | None = None,
    names: Mapping[str, Source] | None = None,
    key: str | None = None,
    layout: Layout = "auto",
    partial: bool = False,
    force: bool = False,
    confirm: Confirm | None = None,
) -> Imported:
    """Replace the elements of initializers by tensors of checkpoints; write the model where all of it fits.

    A tensor goes into the initializer of its name, or where `mapping` and `names` say; `key` picks one of several dicts
    of a PyTorch checkpoint. Matrices are transposed as `layout` says, floats converted to the type of the model.
    With `partial` what does not fit is left out. Names, types and dims of the model stay as they are.

    Raises ModelFileError for a file that is damaged or would run code, UsageError for names that are not there.
    """
    if not checkpoints:
        raise UsageError("no checkpoint is given")
    stored = storage.opened(model)
    said = mapping or NameMapping({})
    said = replace(said, tensors={**(names or {}), **said.tensors})
    weights = stored.weights
    found = [storage.read_checkpoint(Path(path), weights, key=key or said.key) for path in checkpoints]
    if output is not None:
        storage.check_target(Path(output), force=force)
    wanted = targets(stored.proto)
    made = plan.make(wanted, found, said, layout)
    unchanged = _fill(made, weights)
    entries, _, _ = plan.merged(found)
    result = Imported(made, stored, unchanged, partial, suggest(made, wanted, entries))
    if output is None or not result.ok or (confirm is not None and not confirm(stored.proto)):
        return result
    written = storage.save(stored.proto, Path(output), weights, force=force)
    return replace(result, written=tuple(written))


def _fill(made: Plan, weights: storage.Weights) -> int:
    """Put the elements into the initializers; return how many had them before."""
    unchanged = 0
    for one in list(made.assignments):
        try:
            reference = elements.place(one, weights)
        except elements.RangeError as error:
            made.assignments.remove(one)
            made.misfits.append(Misfit("range", one.target.name, str(error)))
            continue
        before = type(one.target.tensor)()
        before.CopyFrom(one.target.tensor)
        elements.fill(one.target.tensor, reference, weights)
        unchanged += storage.same_elements(before, weights, one.target.tensor, weights)
    return unchanged


def amounts(made: Plan) -> Counter[str]:
    """Count transposed, converted, joined, split and reshaped initializers."""
    found: Counter[str] = Counter()
    for one in made.assignments:
        found["transposed"] += one.order is not None
        found[f"converted from {one.dtype.name.lower()}"] += one.dtype != one.target.dtype
        found["joined"] += len(one.entries) > 1
        found["split"] += one.source.part is not None
    return +found
