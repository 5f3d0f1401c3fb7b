"""History: the states of a model over the steps of a run, or of two compared models.

A history is passed to a run as its recorder. It stores the changes from state to state, and only the first and the last
message, which the result of the run has anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.operators.forms import plain_domain
from surgery.interface.drawing.comparing import compared, key_of
from surgery.interface.drawing.row_descent import explain
from surgery.interface.drawing.tracked_nodes import ModelState, TrackedNodes
from surgery.interface.drawing.tracking import Tracker
from surgery.model import storage
from surgery.model.storage.summary import operators
from surgery.model.wire.garbage_collection import collection_paused

if TYPE_CHECKING:
    import onnx

    from surgery.engine.pipeline.records import StepRecord
    from surgery.features.differences.difference import Difference

    Model = str | Path | onnx.ModelProto | storage.StoredModel


class History:
    """The states of a model. `first` and `last` are the models of the first and the last state, with weights."""

    def __init__(self, title: str = "") -> None:
        self.title = title
        self.first: storage.StoredModel | None = None
        self.last: storage.StoredModel | None = None
        self.times: Mapping[str, float] = {}
        """The measured seconds of nodes of the main graph in the last state, by name."""
        self._tracker = Tracker()

    # Creation of histories

    @property
    def rows(self) -> TrackedNodes:
        """The nodes and edges of all states."""
        return self._tracker.found

    @property
    def looked_at(self) -> int:
        """The number of nodes and operands examined so far."""
        return self._tracker.looked_at

    @classmethod
    @collection_paused()
    def of(cls, model: Model) -> History:
        """Return the history of one model, with one state. ModelFileError if it is not a model."""
        stored, history = storage.opened(model), cls()
        history.begin(stored, stored.proto)
        return history

    @classmethod
    @collection_paused()
    def between(cls, found: Difference, before: Model, after: Model) -> History:
        """Return the history of two compared models, with two states.

        `found` is the result of `surgery.diff`.
        """
        first, second = storage.opened(before), storage.opened(after)
        history = cls(" → ".join(_name(one, name) for one, name in ((first, "before"), (second, "after"))))
        history.first, history.last = first, second
        history._tracker = tracker = Tracker(keyed=True)
        tracker.enter(first.proto)
        old = dict(tracker.keys)
        tracker.enter(second.proto, same={key_of(pair.after): key_of(pair.before) for pair in found.nodes.pairs})
        compared(history.rows, found.nodes, old, tracker.keys)
        for one, name in ((first, "before"), (second, "after")):
            history.rows.states.append(ModelState(_name(one, name), file=_file(one), **_facts(one.proto)))
        return history

    # Interface of a recorder of a run

    def begin(self, stored: storage.StoredModel, proto: onnx.ModelProto) -> None:
        """Record the original model of a run, `proto` as the steps see it; earlier records are dropped."""
        self._tracker = Tracker()
        self.title = self.title or (stored.path.name if stored.path is not None else "")
        self.first = self.last = storage.StoredModel(stored.path, proto, stored.weights, stored.external)
        self._tracker.enter(proto)
        self.rows.states.append(ModelState("original", file=_file(stored), **_facts(proto)))

    def commit(self, proto: onnx.ModelProto, record: StepRecord, number: int) -> None:
        """Record the model after a step, with the record of the step and its number in the run."""
        assert self.first is not None
        self.last = storage.StoredModel(self.first.path, proto, self.first.weights, self.first.external)
        step = self._tracker.enter(proto, record.name)
        explain(self.rows, step, record.applied, record.name)
        self.rows.states.append(_state(record, number, proto))

    def written(self, file: Path) -> None:
        """Record the file of the result of a run."""
        self.rows.states[-1] = replace(self.rows.states[-1], file=storage.shown(str(file)))


def _file(model: storage.StoredModel) -> str | None:
    return storage.shown(str(model.path)) if model.path is not None else None


def _name(model: storage.StoredModel, otherwise: str) -> str:
    return model.path.name if model.path is not None else otherwise


def _facts(proto: onnx.ModelProto) -> dict[str, Any]:
    """Return what a state says of its model."""
    opsets = {plain_domain(one.domain): one.version for one in proto.opset_import}
    return {"nodes": sum(operators(proto).values()), "ir_version": proto.ir_version, "opsets": opsets}


def _state(record: StepRecord, number: int, proto: onnx.ModelProto) -> ModelState:
    verdict = record.verdict
    needed = verdict.needed.get("factor") if verdict is not None and verdict.needed is not None else None
    return ModelState(
        record.name,
        by=record.name,
        step=number,
        sites=record.sites,
        verdict=str(verdict.status) if verdict is not None else None,
        needed=needed,
        message=record.message,
        **_facts(proto),
    )
