"""The values inside a model, recorded by running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from surgery.base.errors import WorkerError
from surgery.model.proto.extract import only
from surgery.model.runtime.engine import Engine, EngineName
from surgery.model.runtime.reference_runs import external_bytes
from surgery.model.runtime.setup import SessionSetup

if TYPE_CHECKING:
    import onnx


def record(
    skeleton: bytes,
    feed: Mapping[str, Any],
    names: Sequence[str],
    *,
    timeout: float = 300,
    memory: int | None = None,
    engine: EngineName = "onnxruntime",
    setup: SessionSetup | None = None,
) -> dict[str, Any]:
    """Run a model once, in a worker, and return the named values of its main graph.

    The values are arrays, lists of arrays for sequences, None for empty optionals. Constants can be named like any
    other value. `timeout` is in seconds and `memory` in bytes; `setup` configures the sessions. Raises `UsageError` for
    a name that the main graph does not have, `WorkerError` when the process dies, when the runtime rejects the model or
    the inputs, and when the values together take too much memory.
    """
    import onnx

    model = onnx.load_model_from_string(skeleton)
    wanted = list(dict.fromkeys(names))
    runner = Engine(engine, timeout, memory, external_bytes(model), setup)
    try:
        outcome = runner.run(only(model, wanted).SerializeToString(), [feed])
    finally:
        runner.close()
    if outcome.crash is not None:
        raise outcome.crash
    result = outcome.failure or outcome.runs[0]
    if isinstance(result, str):
        raise WorkerError(f"the values cannot be recorded: {result}", stage="run")
    return {name: result[name] for name in wanted}


def observe(
    model: onnx.ModelProto, feeds: Sequence[Mapping[str, Any]], engine: Callable[[], Engine]
) -> list[Mapping[str, Any]] | None:
    """Run a model on each of `feeds`, ignoring inputs that it does not have; None if any run fails."""
    known = {value.name for value in model.graph.input}
    runner = engine()
    try:
        own = [{name: value for name, value in feed.items() if name in known} for feed in feeds]
        outcome = runner.run(model.SerializeToString(), own)
    finally:
        runner.close()
    runs = [run for run in outcome.runs if not isinstance(run, str)]
    return runs if outcome.failure is None and len(runs) == len(feeds) else None
