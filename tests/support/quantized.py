"""Passes that trade accuracy, run on models in memory, and what ONNX Runtime makes of the results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from support import ROOT
from surgery.engine.registry.catalog import catalog
from surgery.features.testing import harness
from surgery.model import storage

MODELS = ROOT / "models"
NAMES = sorted(path.stem for path in MODELS.glob("*.onnx"))
_SIZES = {"batch": 2, "sequence": 9, "height": 64, "width": 64}
_LEVELS = {True: ort.GraphOptimizationLevel.ORT_ENABLE_ALL, False: ort.GraphOptimizationLevel.ORT_DISABLE_ALL}

Feed = dict[str, np.ndarray[Any, Any]]


def apply(name: str, model: onnx.ModelProto, options: Mapping[str, Any] | None = None) -> onnx.ModelProto:
    """Run one pass over a model; return the result, weights inside."""
    outcome = harness.run(model, catalog.find(name), options or {})  # it holds the scratch file with new weights
    return storage.resolve(outcome.after)


@cache
def folded(name: str) -> bytes:
    """Return a bundled model whose weights are constants: exports hide them behind Identity and Transpose."""
    model = onnx.load(MODELS / f"{name}.onnx")
    for step in ("drop-identity", "common-subexpressions", "fold-constants", "drop-dead"):
        model = apply(step, model)
    return model.SerializeToString()


def bundled(name: str) -> onnx.ModelProto:
    """Return a new copy of what `folded` makes."""
    return onnx.load_from_string(folded(name))


def feed_of(model: onnx.ModelProto, seed: int = 0) -> Feed:
    """Draw inputs of a bundled model: normal floats, masks of ones, ids that each table has."""
    random = np.random.default_rng(seed)
    tables = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if len(tensor.dims) == 2}
    given: Feed = {}
    for value in model.graph.input:
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [dim.dim_value or _SIZES.get(dim.dim_param, 5) for dim in value.type.tensor_type.shape.dim]
        if kind.kind == "f":
            given[value.name] = random.standard_normal(shape).astype(kind)
        elif "mask" in value.name:
            given[value.name] = np.ones(shape, kind)
        else:
            rows = 2 if "type" in value.name else min([64, *(rows for rows in tables.values() if rows > 8)])
            given[value.name] = random.integers(0, rows, shape).astype(kind)
    return given


def run(model: onnx.ModelProto, feed: Feed, *, optimized: bool = True) -> list[Any]:
    """Run a model in ONNX Runtime, with all of its optimizations or none."""
    options = ort.SessionOptions()
    options.graph_optimization_level = _LEVELS[optimized]
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


def snr(wanted: Sequence[Any], given: Sequence[Any]) -> float:
    """Return the ratio of signal to noise of the worst output, in dB."""
    assert [np.shape(array) for array in wanted] == [np.shape(array) for array in given]
    ratios = [math.inf]
    for want, got in zip(wanted, given):
        exact = np.asarray(want, np.float64)
        noise = ((exact - np.asarray(got, np.float64)) ** 2).sum()
        assert np.isfinite(noise)
        ratios.append(10 * math.log10((exact**2).sum() / noise) if noise else math.inf)
    return min(ratios)


def operators(model: onnx.ModelProto) -> set[str]:
    """Return the operators of the main graph."""
    return {node.op_type for node in model.graph.node}
