"""The place inside a model where a lossy step loses most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from surgery.base.operators.dtypes import is_float
from surgery.model.proto.extract import only
from surgery.model.runtime.engine import Engine
from surgery.verification.accuracy.metrics import measure
from surgery.verification.comparing.reference_run import ReferenceRun

MOST_VALUES = 64
"""Maximum number of values that are compared, spread over the model: more would take memory and add little."""


def worst_layer(original: ReferenceRun, candidate: bytes, feed: Mapping[str, Any]) -> str:
    """Return a remark on the inner value with the lowest signal-to-noise ratio; empty if none can be compared."""
    before, after = (onnx.load_model_from_string(one) for one in (original.skeleton, candidate))
    names = _common(before, after)
    if not names:
        return ""
    engine = original.engine_for(original.engine)
    try:
        runs = [_values(engine, only(model, names), feed) for model in (before, after)]
    finally:
        engine.close()
    found = {name: _ratio(runs[0].get(name), runs[1].get(name)) for name in names}
    worst = min(found, key=lambda name: found[name])
    return f"; lowest inside at '{worst}' (SNR {found[worst]:.3g} dB)" if math.isfinite(found[worst]) else ""


def _values(engine: Engine, model: onnx.ModelProto, feed: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the outputs of a model; an empty mapping if it does not run."""
    known = {value.name for value in model.graph.input}
    outcome = engine.run(model.SerializeToString(), [{name: one for name, one in feed.items() if name in known}])
    found = outcome.runs[0] if outcome.failure is None else ""
    return {} if isinstance(found, str) else found


def _common(before: onnx.ModelProto, after: onnx.ModelProto) -> list[str]:
    """Return values that nodes of both main graphs compute and that are not outputs, evenly spread over the model."""
    outputs = {value.name for value in before.graph.output}
    made = {name for node in after.graph.node for name in node.output if name} - outputs
    names = [name for node in before.graph.node for name in node.output if name in made]
    step = max(1, math.ceil(len(names) / MOST_VALUES))
    return names[step - 1 :: step]


def _ratio(before: Any, after: Any) -> float:
    arrays = isinstance(before, np.ndarray) and isinstance(after, np.ndarray)
    if not arrays or not is_float(before.dtype) or before.shape != after.shape:
        return math.inf
    return measure(before, after.astype(before.dtype))["snr"]
