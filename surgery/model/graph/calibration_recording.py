"""Recording of values of the model that a pass works on, while the model runs on calibration inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.errors import UsageError, WorkerError
from surgery.model.graph.body_ranges import BodyRanges, extremes
from surgery.model.proto.extract import only
from surgery.model.runtime.engine import Engine, RunOutcome
from surgery.model.runtime.reference_runs import external_bytes
from surgery.model.runtime.setup import SessionSetup
from surgery.model.storage import Weights, proto_from_ir

if TYPE_CHECKING:
    import onnx

    from surgery.model.graph.state import CalibrationSource, Feed, GraphState
    from surgery.model.graph.values import Value

Recording = tuple["Value", np.ndarray[Any, Any]]
"""A value, and the array that it had in one run."""

FIRST_GROUP = 8
"""Number of values recorded in the first run, which shows how large they are."""

TOGETHER = 128 << 20
"""Target number of bytes of values recorded in one run, estimated from previous runs."""


@dataclass
class _RecordingGroup:
    """The next values to record: as many as fit, estimated from previous ones."""

    waiting: list[Value]
    size: int = FIRST_GROUP

    def take(self) -> list[Value]:
        taken, self.waiting = self.waiting[: self.size], self.waiting[self.size :]
        return taken

    def learn(self, values: int, nbytes: int) -> None:
        self.size = max(1, values * TOGETHER // max(nbytes, 1))


def record(
    graph: GraphState, values: Sequence[Value], calibration: CalibrationSource | None, magnitudes: Sequence[float] = ()
) -> Iterator[Recording]:
    """Run the unchanged model on each input set, and yield values with their arrays.

    See `Graph.recordings`.
    """
    if calibration is None:
        raise UsageError("there are no inputs to calibrate with", todo="run the pass by a recipe or `surgery run`")
    feeds = [*calibration.feeds(), *_scaled_sets(calibration, magnitudes)]
    inputs = {value.name for value in graph.ir.graph.inputs}
    distinct = list(dict.fromkeys(values))
    for value in distinct:
        if value.name in inputs:
            yield from ((value, feed[value.name]) for feed in feeds if value.name in feed)
    computed = [value for value in distinct if value.name not in inputs and value.name not in graph.unmeasured]
    if not computed:
        return
    with ExitStack() as stack:
        weights = graph.weights if graph.weights is not None else stack.enter_context(Weights())
        model = proto_from_ir(graph.ir, weights)
        runner = stack.enter_context(closing(_engine(model, graph)))
        group = _RecordingGroup(computed)
        while taken := group.take():
            largest = 0
            part = only(model, [value.name for value in taken])
            for arrays in _runs(runner, part, calibration, magnitudes):
                largest = max(largest, sum(array.nbytes for array in arrays.values()))
                yield from ((value, arrays[value.name]) for value in taken if value.name in arrays)
            group.learn(len(taken), largest)


def record_bodies(
    graph: GraphState, values: Sequence[Value], calibration: CalibrationSource | None, magnitudes: Sequence[float] = ()
) -> dict[Value, tuple[float, float, float]]:
    """Run the model on each input set, and measure values in bodies of If, Loop and Scan.

    See `Graph.body_ranges`.
    """
    if calibration is None:
        raise UsageError("there are no inputs to calibrate with", todo="run the pass by a recipe or `surgery run`")
    found: dict[str, tuple[float, float, float]] = {}
    ranges = BodyRanges([value.name for value in values], graph.opset, graph.fresh, graph.unmeasured)
    with ExitStack() as stack:
        weights = graph.weights if graph.weights is not None else stack.enter_context(Weights())
        model, names = ranges.measure(proto_from_ir(graph.ir, weights))
        if not names:
            return {}
        runner = stack.enter_context(closing(_engine(model, graph)))
        for arrays in _runs(runner, model, calibration, magnitudes):
            for matrix, array in arrays.items():
                for name, largest, smallest in extremes(array, names[matrix]):
                    before, faintest = found.get(name, (0.0, np.inf, np.inf)), largest or np.inf
                    found[name] = max(before[0], largest), min(before[1], smallest), min(before[2], faintest)
    return {value: found[value.name] for value in values if value.name in found}


def _scaled_sets(calibration: CalibrationSource, magnitudes: Sequence[float]) -> list[Feed]:
    """Return the drawn input set with the most elements, once at each of these magnitudes; given inputs stay alone."""
    feeds = calibration.feeds() if magnitudes and calibration.is_drawn else ()
    if not feeds:
        return []
    most = max(feeds, key=lambda feed: sum(np.size(array) for array in feed.values()))
    return [{name: _scaled(array, size) for name, array in most.items()} for size in magnitudes]


def _scaled(array: Any, magnitude: float) -> Any:
    """Scale the largest element of a tensor of floats to a magnitude; anything else stays as it is."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        return array
    largest = float(np.abs(array).max(initial=0.0))
    return (array * (magnitude / largest)).astype(array.dtype) if 0.0 < largest < np.inf else array


def _engine(model: onnx.ModelProto, graph: GraphState) -> Engine:
    limits, setup = graph.limits, SessionSetup(graph.libraries)
    return Engine("onnxruntime", limits.timeout or 3600.0, limits.memory, external_bytes(model), setup)


def _runs(
    runner: Engine, model: onnx.ModelProto, calibration: CalibrationSource, magnitudes: Sequence[float]
) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Run a model on one input set after another; yield the outputs that are tensors.

    Drawn sets that the model rejects are left out, unless it rejects all: that may depend on the values. So are scaled
    ones, for whatever reason.
    """
    skeleton = model.SerializeToString()
    known = {value.name for value in model.graph.input}
    rejected, ran = "", False
    for feed in calibration.feeds():
        outcome = _run(runner, skeleton, feed, known)
        if outcome.crash is not None:
            raise outcome.crash
        result = outcome.failure or outcome.runs[0]
        if not isinstance(result, str):
            ran = True
            yield _tensors(result)
        elif outcome.failure or not calibration.is_drawn:
            raise _unrecorded(result)
        else:
            rejected = result
    if rejected and not ran:
        raise _unrecorded(rejected)
    for feed in _scaled_sets(calibration, magnitudes):
        outcome = _run(runner, skeleton, feed, known)
        if not outcome.crash and not outcome.failure and not isinstance(outcome.runs[0], str):
            yield _tensors(outcome.runs[0])


def _run(runner: Engine, skeleton: bytes, feed: Feed, known: Collection[str]) -> RunOutcome:
    return runner.run(skeleton, [{name: array for name, array in feed.items() if name in known}], keep=True)


def _tensors(outputs: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: array for name, array in outputs.items() if isinstance(array, np.ndarray)}


def _unrecorded(reason: str) -> WorkerError:
    return WorkerError(f"the values to calibrate with cannot be recorded: {reason}", stage="run")
