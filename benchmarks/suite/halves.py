"""Convert models to float16, each with one converter, and judge them against float32 on the same inputs."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

Feed = dict[str, Any]

LEAST_BOUND = 2.0**-7
"""The error of an output, as its norm divided by that of the output, that always counts as rounding: eight times the
largest rounding error of a float16 number, 2^-11, doubled for the rounding of operands."""

TIMES = 8.0
"""The multiple of the change from rounding only inputs and weights that is allowed, if above `LEAST_BOUND`."""

GREATEST = 65504.0

_FEW = 4
"""The most nodes of a model that tests a single operator."""


# The test models


def collect(folder: Path) -> list[str]:
    """Write each model of the onnx package, with its inputs, into a folder; return the names of the models."""
    names = []
    for name, model, feed in _cases():
        path = folder / f"{len(names)}.pickle"
        path.write_bytes(pickle.dumps((model, feed)))
        names.append(name)
    return names


def _cases() -> Iterator[tuple[str, bytes, Feed | None]]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    for case in cases:
        given = case.data_sets[0][0] if case.data_sets else None
        wanted = _required(case.model)
        feed = None if given is None else dict(zip((value.name for value in wanted), map(_plain, given)))
        yield f"node/{case.name}", case.model.SerializeToString(), feed
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for path in sorted(data.rglob("*.onnx")):
        model = onnx.load(path)
        yield str(path.relative_to(data)), model.SerializeToString(), _given(path.parent, model)


def _plain(value: Any) -> Any:
    """Convert an input to a type that the runtime accepts."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return np.asarray(value) if isinstance(value, np.generic) else value


def _given(folder: Path, model: onnx.ModelProto) -> Feed | None:
    """Read the inputs stored next to a model; None if there are none, or if they are not tensors."""
    wanted = _required(model)
    files = [folder / "test_data_set_0" / f"input_{place}.pb" for place in range(len(wanted))]
    if not all(file.is_file() for file in files) or not all(one.type.HasField("tensor_type") for one in wanted):
        return None
    return {one.name: numpy_helper.to_array(onnx.load_tensor(file)) for one, file in zip(wanted, files)}


def _required(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    given = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in given]


# The converters


def ours(model: onnx.ModelProto, feed: Feed | None) -> onnx.ModelProto:
    """Convert with `to-float16`; a model of more than a few nodes is calibrated on the inputs of the comparison."""
    from surgery.engine.bridges.run_pass import run_pass
    from surgery.engine.registry.catalog import catalog
    from surgery.model import storage
    from surgery.model.graph.graph import Graph

    class Given:
        is_drawn = False

        def feeds(self) -> Sequence[Feed]:
            return [feed] if feed is not None else []

    stored = storage.from_proto(model)
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
    graph.calibration = Given() if feed is not None and len(model.graph.node) > _FEW else None
    declared = catalog.find("to-float16")
    run_pass(declared, graph, declared.bind({}, Path()))
    return storage.resolve(storage.proto_from_ir(graph.ir, stored.weights), stored.weights)


def of_transformers(model: onnx.ModelProto, feed: Feed | None) -> onnx.ModelProto:
    """Convert with onnxruntime.transformers."""
    from onnxruntime.transformers import float16
    from onnxruntime.transformers.onnx_model import OnnxModel

    made = float16.convert_float_to_float16(model, keep_io_types=True)
    # Its own callers sort the nodes topologically when they save.
    OnnxModel.graph_topological_sort(made.graph)
    return made


def of_common(model: onnx.ModelProto, feed: Feed | None) -> onnx.ModelProto:
    """Convert with onnxconverter-common."""
    from onnxconverter_common import float16

    return float16.convert_float_to_float16(model, keep_io_types=True)


CONVERTERS: dict[str, Callable[[onnx.ModelProto, Feed | None], onnx.ModelProto]] = {
    "to-float16": ours,
    "onnxruntime.transformers": of_transformers,
    "onnxconverter_common": of_common,
}
MODULES = {"onnxruntime.transformers": "onnxruntime.transformers", "onnxconverter_common": "onnxconverter_common"}


# The judgement


def judge(model: onnx.ModelProto, feed: Feed | None, converter: str) -> dict[str, Any]:
    """Convert a model and return the verdict on the result: {"verdict": ..., "why": ...}.

    `skipped`: the float32 model itself does not run; `unchanged`: the converter left the model unchanged.
    """
    before = model.SerializeToString(deterministic=True)
    levels = LEVELS if len(before) < _LARGE else LEVELS[-1:]
    reference = [run(before, feed, level) for level in levels]
    try:
        made = CONVERTERS[converter](onnx.load_from_string(before), feed)
    except Exception as error:
        return {"verdict": "raised", "why": _line(error)}
    after = made.SerializeToString(deterministic=True)
    if after == before:
        return {"verdict": "unchanged"}
    found: dict[str, Any] = {"casts": _count(made, "Cast") - _count(model, "Cast"), "bytes": len(after) / len(before)}
    problem = _checked(before) is None and _checked(after)
    if problem:
        return found | {"verdict": "invalid", "why": f"checker: {problem}"}
    verdicts = [_compared(model, before, after, feed, level, base) for level, base in zip(levels, reference)]
    worst = max(verdicts, key=lambda one: ORDER.index(one["verdict"]))
    return found | worst


_LARGE = 1 << 24
"""The size in bytes from which a model is run only with optimization."""

LEVELS = ("disabled", "all")
"""Optimization levels of the runtime."""

ORDER = ("skipped", "unchanged", "right", "exceeds", "wrong", "invalid", "raised", "crashed")
"""Verdicts from best to worst."""


def _compared(
    model: onnx.ModelProto, before: bytes, after: bytes, feed: Feed | None, level: str, base: Any
) -> dict[str, Any]:
    if isinstance(base, str):
        return {"verdict": "skipped", "why": f"float32 does not run: {base}"}
    given = run(after, feed, level)
    if isinstance(given, str):
        return {"verdict": "invalid", "why": f"runtime ({level}): {given}"}
    if feed is None:
        return {"verdict": "right", "why": "loaded only: no inputs"}
    found = [_error(one, other, one) for one, other in zip(base, given)]
    if all(error <= allowed for error, allowed, _ in found):
        return _verdict(found)
    again = run(before, feed, level)
    if not all(_same(one, other) for one, other in zip(base, again)):
        same = all(np.shape(one) == np.shape(other) for one, other in zip(base, given))
        return {"verdict": "right" if same else "wrong", "why": "random"}
    rounded = run(_rounded_weights(model), {name: _rounded(value) for name, value in feed.items()}, level)
    sensitive = rounded if not isinstance(rounded, str) else base
    return _verdict([_error(*three) for three in zip(base, given, sensitive)])


def _verdict(errors: Sequence[tuple[float, float, bool]]) -> dict[str, Any]:
    wrong = next((each for each in errors if not each[0] <= each[1]), None)
    if wrong is None:
        return {"verdict": "right", "error": max((error for error, _, _ in errors), default=0.0)}
    error, allowed, _ = wrong
    why = f"error {error:.3g}, rounding inputs and weights gives {allowed / TIMES:.3g}"
    return {"verdict": "exceeds" if any(beyond for _, _, beyond in errors) else "wrong", "why": why, "error": error}


def run(model: bytes, feed: Feed | None, level: str) -> Any:
    """Run a model; return its outputs, or why it does not run. Without inputs, it is only loaded."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if level == "disabled":
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return [] if feed is None else session.run(None, feed)
    except Exception as error:
        return _line(error)


def _error(one: Any, other: Any, near: Any) -> tuple[float, float, bool]:
    """Return the error of an output, the allowed error, and whether the output exceeds the range of float16."""
    if isinstance(one, list | dict) or one is None:
        pairs = list(zip(one, other, near)) if isinstance(one, list) and isinstance(other, list) else []
        found = [_error(*pair) for pair in pairs if isinstance(pair[0], np.ndarray)]
        return max(found, default=(0.0, 0.0, False), key=lambda each: each[0] - each[1])
    if one.shape != other.shape or one.dtype != other.dtype:
        return np.inf, 0.0, False
    distance = _distance(one, other)
    allowed = TIMES * _distance(one, near) if one.shape == near.shape else np.inf
    is_float = one.dtype.kind == "f"
    exceeds = is_float and bool(np.any(np.isfinite(one) & (np.abs(np.where(np.isnan(one), 0, one)) > GREATEST)))
    return distance, max(allowed, LEAST_BOUND if is_float else 0.0), exceeds


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the norm of the difference over the norm of `one`; for non-floats, the share of differing elements."""
    if one.dtype.kind != "f":
        return float(np.mean(one != other)) if one.size else 0.0
    a, b = one.astype(np.float64), other.astype(np.float64)
    if not np.array_equal(np.isnan(a), np.isnan(b)) or not np.array_equal(a[np.isinf(a)], b[np.isinf(a)]):
        return np.inf
    finite = np.isfinite(a)
    if not np.isfinite(b[finite]).all():
        return np.inf
    norm, size = np.linalg.norm(a[finite] - b[finite]), np.linalg.norm(a[finite])
    return float(norm / size) if size > 2.0**-14 else float(norm)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.shape == other.shape and (
            one.dtype.kind == "O" or np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
        )
    return True


def _rounded(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype == np.float32:
        with np.errstate(over="ignore"):
            return value.astype(np.float16).astype(np.float32)
    return value


def _rounded_weights(model: onnx.ModelProto) -> bytes:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(_rounded(numpy_helper.to_array(tensor)), tensor.name))
    return copy.SerializeToString()


def _checked(model: bytes) -> str | None:
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        return _line(error)
    return None


def _count(model: onnx.ModelProto, op: str) -> int:
    return sum(node.op_type == op for node in model.graph.node)


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"
