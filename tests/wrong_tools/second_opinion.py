"""What plain ONNX says of what a tool made, without any part of the engine that is under test.

The reference evaluator of onnx runs in this process. ONNX Runtime is asked where that evaluator has no such operator
or does not follow the opset, in a process of its own.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

Feed = Mapping[str, Any]
Outputs = list[dict[str, Any]]


def difference(before: onnx.ModelProto, made: onnx.ModelProto, feeds: Sequence[Feed], engine: str) -> str:
    """Say how the outputs of two models differ; empty when they do not. The model before must run."""
    expected = _run(before, feeds, engine)
    assert not isinstance(expected, str), expected
    found = _run(made, feeds, engine)
    if isinstance(found, str):
        return found
    for one, other in zip(expected, found, strict=True):
        for name, value in one.items():
            if name not in other:
                return f"output '{name}' is gone"
            if not same(value, other[name]):
                return f"{name}: {other[name]} instead of {value}"
    return ""


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Compare two outputs: dtype, shape, infinities and NaN, and numbers up to rounding."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    scale = np.abs(one[np.isfinite(one)]).max(initial=0.0)
    # A half float has 11 bits: two of them that were rounded differently are a thousandth apart.
    bound = max(1e-4, 2 * float(np.finfo(one.dtype).eps))
    return bool(np.allclose(one, other, rtol=bound, atol=bound * scale, equal_nan=True))


def all_zero(model: onnx.ModelProto, feed: Feed) -> bool:
    """Return whether a model gives nothing but zeros."""
    (outputs,) = _must(_run(model, [feed], "reference"))
    return not any(np.any(value) for value in outputs.values())


def repeats(model: onnx.ModelProto, feed: Feed) -> bool:
    """Return whether a model gives the same outputs each time that it is loaded and run."""
    first, second = (_must(_run(model, [feed], "reference"))[0] for _ in range(2))
    return all(np.array_equal(value, second[name]) for name, value in first.items())


def checked(model: onnx.ModelProto) -> str:
    """Return what onnx's full check finds; empty when the model is fine."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        return str(error)
    return ""


def ports(model: onnx.ModelProto) -> list[tuple[str, bytes]]:
    """List the inputs and outputs with their types."""
    return [(port.name, port.type.SerializeToString()) for port in (*model.graph.input, *model.graph.output)]


def feed(model: onnx.ModelProto, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Turn the values of a case into arrays of the input's type; draw those that it does not give."""
    rng = np.random.default_rng(0)
    initializers = {tensor.name for tensor in model.graph.initializer}
    arrays = {}
    for port in model.graph.input:
        kind = port.type.tensor_type
        if port.name in given:
            arrays[port.name] = np.array(given[port.name], onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        elif port.name not in initializers:
            shape = [dim.dim_value or 2 for dim in kind.shape.dim]
            arrays[port.name] = (rng.normal(size=shape) * 3).astype(
                onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            )
    return arrays


def _must(outputs: Outputs | str) -> Outputs:
    assert not isinstance(outputs, str), outputs
    return outputs


def _run(model: onnx.ModelProto, feeds: Sequence[Feed], engine: str) -> Outputs | str:
    """Run a model on each feed; a string says why it does not run."""
    if engine == "onnxruntime":
        return _in_onnxruntime(model, feeds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            evaluator = ReferenceEvaluator(model)
            names = set(evaluator.input_names)
            return [
                dict(
                    zip(
                        evaluator.output_names,
                        evaluator.run(None, {name: value for name, value in feed.items() if name in names}),
                        strict=True,
                    )
                )
                for feed in feeds
            ]
        except Exception as error:
            return f"{type(error).__name__}: {error}"


_SCRIPT = """
import pickle, sys
import onnxruntime as ort
data, feeds = pickle.load(sys.stdin.buffer)
options = ort.SessionOptions()
options.log_severity_level = 4
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
try:
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    inputs = {port.name for port in session.get_inputs()}
    inputs |= {port.name for port in session.get_overridable_initializers()}
    names = [port.name for port in session.get_outputs()]
    answer = [dict(zip(names, session.run(None, {k: v for k, v in feed.items() if k in inputs}))) for feed in feeds]
except Exception as error:
    answer = str(error)
pickle.dump(answer, sys.stdout.buffer)
"""


def _in_onnxruntime(model: onnx.ModelProto, feeds: Sequence[Feed]) -> Outputs | str:
    """Run a model in plain ONNX Runtime, unoptimized."""
    given = pickle.dumps((model.SerializeToString(), [dict(feed) for feed in feeds]))
    done = subprocess.run([sys.executable, "-c", _SCRIPT], input=given, capture_output=True, check=False)
    if done.returncode:
        return f"ended with {done.returncode}"
    answer: Outputs | str = pickle.loads(done.stdout)
    return answer
