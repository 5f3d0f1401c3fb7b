"""Static quantization of models in memory, on inputs that are drawn as a recipe does, and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from surgery.engine.bridges.run_pass import run_pass
from surgery.engine.registry.catalog import catalog
from surgery.model import storage
from surgery.model.graph.graph import Graph
from surgery.verification.inputs.spec import InputsSpec, SampleSpec, VerifySpec
from surgery.verification.signature.tracker import SignatureTracker

Feeds = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Given:
    """Inputs to calibrate with."""

    sets: Feeds
    is_drawn: bool = False

    def feeds(self) -> Feeds:
        return self.sets


def drawn(model: onnx.ModelProto, sets: int = 4, seed: int = 0) -> Feeds:
    """Draw inputs to calibrate a model with."""
    spec = InputsSpec(calibration=SampleSpec(sets=sets))
    with closing(SignatureTracker(model.SerializeToString(), spec, VerifySpec(seed=seed))) as tracker:
        return tracker.calibration()


def run_passes(
    model: onnx.ModelProto,
    *steps: tuple[str, dict[str, Any]],
    feeds: Feeds = (),
    skip: frozenset[int] = frozenset(),
    is_drawn: bool = False,
) -> tuple[onnx.ModelProto, Graph]:
    """Run passes over a model; `skip` is for the first of them. Return the result, and the graph with its account."""
    stored = storage.from_proto(model)
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
    graph.calibration = Given(feeds, is_drawn)
    for number, (name, options) in enumerate(steps):
        declared = catalog.find(name)
        run_pass(declared, graph, declared.bind(options), skip=frozenset() if number else skip, timeout=300)
    return storage.resolve(storage.proto_from_ir(graph.ir, stored.weights)), graph


def outputs(model: onnx.ModelProto, feeds: Feeds, *, optimized: bool = True) -> list[list[np.ndarray]]:
    """Run a model in ONNX Runtime with all optimizations, or none; for each set of inputs the outputs."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = {value.name for value in session.get_inputs()}
    return [session.run(None, {name: array for name, array in feed.items() if name in names}) for feed in feeds]


def snr(wanted: list[list[np.ndarray]], given: list[list[np.ndarray]]) -> float:
    """Return the ratio of signal to noise of the worst output, in dB, over all sets of inputs."""
    found = []
    for want, got in zip(zip(*wanted), zip(*given)):
        signal = sum(float((np.asarray(one, np.float64) ** 2).sum()) for one in want)
        noise = sum(float(((np.asarray(a, np.float64) - b) ** 2).sum()) for a, b in zip(want, got))
        found.append(10 * np.log10(signal / noise) if noise and signal else np.inf)
    return min(found)
