"""Evaluation of a predicate on a model, contained in a fork of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from surgery import storage
from surgery.errors import PassError
from surgery.graph.graph import Graph
from surgery.registry.predicates import Predicate
from surgery.workers import default_memory
from surgery.workers.fork import call_in_fork

if TYPE_CHECKING:
    import onnx


def holds(
    predicate: Predicate,
    stored: storage.StoredModel,
    model: onnx.ModelProto,
    timeout: float | None = None,
    memory: int | None = None,
) -> bool:
    """Return the result of a predicate on a model; `stored` has the weights.

    Raises PassError if the predicate raises or does not return a bool, and WorkerError if it crashes or exceeds
    `timeout` (seconds) or `memory` (bytes).
    """

    def ask() -> dict[str, Any]:
        graph = Graph(storage.ir_from_proto(model, stored.weights), weights=stored.weights)
        try:
            answer = predicate.function(graph)
        except MemoryError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())
            return {"problem": f"raised {type(error).__name__}{f': {text}' if text else ''}"}
        if isinstance(answer, bool):
            return {"answer": answer}
        return {"problem": f"returned {type(answer).__name__}, not True or False"}

    stage = f"predicate '{predicate.name}'"
    found, _ = call_in_fork(ask, stage=stage, timeout=timeout, memory=memory or default_memory())
    if "problem" in found:
        raise PassError(f"{stage} {found['problem']}", where=predicate.place)
    return bool(found["answer"])
