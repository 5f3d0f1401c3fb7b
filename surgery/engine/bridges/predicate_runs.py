"""Evaluation of a predicate on a model, contained in a fork of this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from surgery.base.errors import PassError, SurgeryError
from surgery.base.workers import default_memory
from surgery.base.workers.fork import call_in_fork
from surgery.engine.registry.predicates import Predicate
from surgery.model import storage
from surgery.model.graph.graph import Graph

if TYPE_CHECKING:
    import onnx


def holds(
    predicate: Predicate,
    stored: storage.StoredModel,
    model: onnx.ModelProto,
    timeout: float | None = None,
    memory: int | None = None,
    said: Callable[[str, str], None] = lambda name, printed: None,
) -> bool:
    """Return the result of a predicate on a model; `stored` has the weights, and `said` receives what it prints.

    Raises PassError if the predicate raises or does not return a bool, and WorkerError if it crashes or exceeds
    `timeout` (seconds) or `memory` (bytes).
    """

    def ask() -> bool:
        graph = Graph(storage.ir_from_proto(model, stored.weights), weights=stored.weights)
        answer = predicate.function(graph)
        if not isinstance(answer, bool):
            raise PassError(f"{stage} returned {type(answer).__name__}, not True or False", where=predicate.place)
        return answer

    stage, limit = f"predicate '{predicate.name}'", memory or default_memory()
    printed = ""
    try:
        answer, printed = call_in_fork(ask, stage=stage, timeout=timeout, memory=limit, home=predicate.file)
    except SurgeryError as error:
        printed = error.printed
        raise
    finally:
        if printed:
            said(predicate.name, printed)
    return bool(answer)
