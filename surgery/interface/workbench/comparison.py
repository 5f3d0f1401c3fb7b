"""A second model next to the one that is edited: which nodes only one of them has, and whether they agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery import diff, verify
from surgery.base.errors import SurgeryError
from surgery.features.workbench import second_model
from surgery.interface.drawing import History, document

if TYPE_CHECKING:
    from surgery.features.workbench.snapshot import Snapshot


def compared(now: Snapshot, folder: Path, path: str, inputs: Any) -> dict[str, Any]:
    """Compare the model after the last step with another one in the opened folder; return what a page shows.

    Both run on the inputs of the verification, or on others. Raises what `second_model.opened` raises.
    """
    before, after = now.model, second_model.opened(folder, path)
    found = diff(before, after)
    drawn = document(History.between(found, before, after), f"this model → {path}")
    return {
        "path": path,
        "only_here": sum(drawn["nodes"]["died"][row] != -1 for row in _nodes(drawn)),
        "only_there": sum(drawn["nodes"]["born"][row] != 0 for row in _nodes(drawn)),
        "altered": len(found.nodes.changed),
        "signature": [str(change) for change in found.signature],
        "drawing": drawn,
        "agreement": _agreement(now, after, inputs),
    }


def _nodes(drawn: Mapping[str, Any]) -> Iterator[int]:
    """Yield the rows that are no inputs or outputs."""
    ports = set(drawn["ports"]["node"])
    return (row for row in range(len(drawn["nodes"]["died"])) if row not in ports)


def _agreement(now: Snapshot, second: Any, inputs: Any) -> dict[str, Any]:
    """Return whether the outputs agree, as `surgery verify` judges them."""
    try:
        found = verify(
            now.model, second, inputs=now.recipe.inputs if inputs is None else inputs, spec=now.recipe.verify
        )
    except SurgeryError as error:
        return {"status": "not compared", "message": str(error), "ok": False, "sets": 0, "outputs": []}
    verdict = found.verdict
    outputs = verdict.details.outputs if verdict.details is not None else ()
    return {
        "ok": found.ok,
        "status": verdict.status.value,
        "message": "; ".join(filter(None, (verdict.message, *found.complaints))),
        "sets": sum(not binding.get("refused") for binding in found.bindings),
        "outputs": [_output(one.to_json()) for one in outputs],
    }


def _output(errors: Mapping[str, Any]) -> dict[str, Any]:
    """Return how far an output is apart."""
    return {key: errors[key] for key in ("output", "elements", "equal", "worst", "largest")}
