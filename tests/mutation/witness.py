"""Is a rewrite truly wrong? An answer that uses nothing of `surgery.verification`.

Both models run in plain ONNX Runtime on inputs of this module: those that ONNX ships with its tests, variations of
them, hand-made ones for the bundled models. Under a promise of EXACT any bit that differs is a proof. Under CLOSE the
difference must be more than rounding: both models are computed in float64, and their distance must be at least
`FACTOR` times the distance of the original in float32 from itself in float64.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mutation import handmade, sources

FACTOR = 4.0
PLAIN = 1e-3
"""Relative distance that is no rounding, where float64 cannot be had."""
LEAST, LEAST_WIDE = 2.0**-22, 2.0**-42
TRIALS = 24

Feed = dict[str, Any]
Answer = list[dict[str, Any] | str]


# Inputs


def feeds(name: str) -> list[Feed]:
    """Return inputs for a source; those that the original refuses count for nothing."""
    group, _, rest = name.partition("/")
    model = sources.load(name)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if group == "bundled":
        return list(_bundled(model, rng))
    shipped = _shipped(name)
    found = [variation for feed in shipped for variation in _varied(feed, rng)] if shipped else _drawn(model, rng)
    return [handmade.INPUTS[rest], *found] if rest in handmade.INPUTS else found


def _bundled(model: onnx.ModelProto, rng: np.random.Generator) -> Iterator[Feed]:
    for batch, sequence, masked, height in ((3, 11, 4, 96), (2, 8, 0, 64), (1, 5, 2, 128), (1, 1, 0, 64)):
        dims = {"batch": batch, "sequence": sequence, "height": height, "width": 96}
        feed: Feed = {}
        for port in model.graph.input:
            shape = [d.dim_value or dims[d.dim_param] for d in port.type.tensor_type.shape.dim]
            if port.name == "attention_mask":
                mask = np.ones(shape, np.int64)
                mask[0, sequence - masked :] = 0
                feed[port.name] = mask
            elif port.type.tensor_type.elem_type == TensorProto.INT64:
                feed[port.name] = rng.integers(0, 300, shape)
            else:
                feed[port.name] = rng.standard_normal(shape).astype(np.float32)
        yield feed


@cache
def _test_data() -> dict[str, list[Feed]]:
    """Return the inputs that ONNX ships with its tests, by the name of the model."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    found = {}
    for case in cases:
        ports = [port.name for port in case.model.graph.input]
        found[f"node/{case.name}"] = [dict(zip(ports, inputs)) for inputs, _ in case.data_sets or ()]
    return found


def _shipped(name: str) -> list[Feed]:
    if name.startswith("node/"):
        return _test_data().get(name, [])
    from support import corpus

    found = []
    model = sources.load(name)
    given = {tensor.name for tensor in model.graph.initializer}
    ports = [port.name for port in model.graph.input if port.name not in given]
    for folder in sorted((corpus.DATA / name).parent.glob("test_data_set_*")) if name.endswith(".onnx") else ():
        tensors = [onnx.load_tensor(path) for path in sorted(folder.glob("input_*.pb"))]
        found.append(dict(zip(ports, map(numpy_helper.to_array, tensors))))
    return found


def _varied(feed: Feed, rng: np.random.Generator) -> Iterator[Feed]:
    yield feed
    for trial in range(TRIALS):
        yield {key: _vary(value, trial, rng) for key, value in feed.items()}


def _vary(value: Any, trial: int, rng: np.random.Generator) -> Any:
    if not isinstance(value, np.ndarray) or not value.ndim or value.dtype.kind not in "fib":
        return value
    if value.dtype.kind == "f":
        return _floats(value.shape, value.dtype, trial, rng)
    return rng.permutation(value.reshape(-1)).reshape(value.shape) if trial % 2 else value


def _floats(shape: Sequence[int], dtype: Any, trial: int, rng: np.random.Generator) -> np.ndarray:
    made = rng.standard_normal(tuple(shape)) * (1, 1, 10, 0.1, 100, 1000)[trial % 6]
    match trial % 4:
        case 1:
            made = np.abs(made)
        case 2:
            made = np.round(made)
        case 3:
            special = rng.choice([0.0, -0.0, 1.0, -1.0, 6.0, 0.5], made.shape)
            made = np.where(rng.random(made.shape) < 0.4, special, made)
    with np.errstate(over="ignore"):
        return np.asarray(made.astype(dtype))


def _drawn(model: onnx.ModelProto, rng: np.random.Generator) -> list[Feed]:
    given = {tensor.name for tensor in model.graph.initializer}
    found = []
    for trial in range(2 * TRIALS):
        extents: dict[str, int] = {}
        feed: Feed = {}
        for port in model.graph.input:
            kind = port.type.tensor_type
            if port.name in given or not kind.elem_type:
                continue
            shape = []
            for position, dim in enumerate(kind.shape.dim):
                drawn = int(rng.choice([1, 2, 3, 4, 6, 11]))
                shape.append(dim.dim_value if dim.HasField("dim_value") else
                             extents.setdefault(dim.dim_param or f"{port.name}{position}", drawn))  # fmt: skip
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
            if dtype.kind == "f":
                feed[port.name] = _floats(shape, dtype, trial, rng)
            elif dtype.kind == "O":
                feed[port.name] = rng.choice(["a", "B", "", "c d"], shape).astype(object)
            else:
                high = (2, 3, 10, 100)[trial % 4]
                low = 0 if dtype.kind in "ub" or trial % 2 else -high
                feed[port.name] = rng.integers(low, high, shape).astype(dtype)
        found.append(feed)
    return found


# Runs, in a separate process: wrong models may crash


def run(data: bytes, given: Sequence[Feed]) -> Answer | str:
    """Run a model on each feed in plain ONNX Runtime; a text where it fails."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return " ".join(str(error).split())[:300]
    names = [output.name for output in session.get_outputs()]
    wanted = {port.name for port in (*session.get_inputs(), *session.get_overridable_initializers())}
    results: Answer = []
    for feed in given:
        try:
            values = session.run(names, {key: value for key, value in feed.items() if key in wanted})
            results.append(dict(zip(names, values)))
        except Exception as error:
            results.append(" ".join(str(error).split())[:300])
    return results


def run_wide(data: bytes, given: Sequence[Feed]) -> Answer | str:
    """Run a model in float64, in ONNX Runtime, or where that lacks a kernel in the reference evaluator."""
    model = widen(onnx.load_model_from_string(data))
    wide = [{k: v.astype(np.float64) if _is_float32(v) else v for k, v in feed.items()} for feed in given]
    answer = run(model.SerializeToString(), wide)
    if not isinstance(answer, str):
        return answer
    from onnx.reference import ReferenceEvaluator

    results: Answer = []
    try:
        evaluator = ReferenceEvaluator(model)
    except Exception as error:
        return str(error)[:300]
    names = [output.name for output in model.graph.output]
    for feed in wide:
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results.append(dict(zip(names, evaluator.run(None, feed))))
        except Exception as error:
            results.append(str(error)[:300])
    return results


def _is_float32(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float32


def widen(model: onnx.ModelProto) -> onnx.ModelProto:
    """Turn float32 into float64 everywhere: tensors, types, casts."""
    pending: list[Any] = [model]
    while pending:
        message = pending.pop()
        if isinstance(message, TensorProto):
            if message.data_type == TensorProto.FLOAT:
                value = numpy_helper.to_array(message).astype(np.float64)
                message.CopyFrom(numpy_helper.from_array(value, message.name))
            continue
        if isinstance(message, onnx.TypeProto.Tensor) and message.elem_type == TensorProto.FLOAT:
            message.elem_type = TensorProto.DOUBLE
        if isinstance(message, onnx.AttributeProto) and message.name in ("to", "dtype"):
            message.i = TensorProto.DOUBLE if message.i == TensorProto.FLOAT else message.i
        if isinstance(message, onnx.NodeProto) and message.op_type == "Constant":
            for item in message.attribute:
                if item.name in ("value_float", "value_floats"):
                    value = np.array(item.f if item.name == "value_float" else list(item.floats), np.float64)
                    message.attribute[0].CopyFrom(helper.make_attribute("value", numpy_helper.from_array(value)))
        for field, value in message.ListFields():
            if field.message_type is not None:
                pending.extend(value if field.is_repeated else [value])
    return model


class Child:
    """Runs in a process that may die."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def __call__(self, function: Any, *arguments: Any) -> Any:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, mp_context=get_context("forkserver"))
        try:
            return self._pool.submit(function, *arguments).result(timeout=300)
        except (BrokenProcessPool, TimeoutError) as error:
            self.close()
            return f"died: {type(error).__name__}"

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


class Witness:
    """Says whether rewrites of one source are wrong."""

    def __init__(self, name: str, child: Child) -> None:
        self._child = child
        data = sources.load(name).SerializeToString()
        given = feeds(name)
        answer = child(run, data, given)
        self.problem = answer if isinstance(answer, str) else ""
        kept = [] if self.problem else [(f, r) for f, r in zip(given, answer) if not isinstance(r, str)]
        self.feeds = [feed for feed, _ in kept]
        self.results = [result for _, result in kept]
        self.steady = bool(kept) and not _distance(self.results[:4], child(run, data, self.feeds[:4]))
        self._data = data
        self._wide: tuple[list[int], list[Any]] | None = None

    def wrong(self, changed: bytes, promise: str) -> str:
        """Say how a rewrite is seen to be wrong: "" when it is not, "invalid" when it does not run at all."""
        answer = self._child(run, changed, self.feeds)
        if isinstance(answer, str) or all(isinstance(item, str) for item in answer):
            return "invalid"
        bits = _distance(self.results, answer, bits=True)
        if not bits:
            return ""
        distance = _distance(self.results, answer)
        if promise == "exact":
            return f"bits, {distance:.1e}"
        if any(getattr(value, "dtype", None) == np.float64 for value in self.results[0].values()):
            return f"{distance:.1e} in float64" if distance > LEAST_WIDE else ""
        return self._beyond_rounding(changed, distance)

    def _beyond_rounding(self, changed: bytes, distance: float) -> str:
        if self._wide is None:
            # The first, which may be hand-made, and a few more.
            chosen = list(range(min(4, len(self.feeds))))
            answer = self._child(run_wide, self._data, [self.feeds[i] for i in chosen])
            failed = isinstance(answer, str) or any(isinstance(item, str) for item in answer)
            self._wide = (chosen, []) if failed else (chosen, answer)
        chosen, exact = self._wide
        if exact:
            answer = self._child(run_wide, changed, [self.feeds[i] for i in chosen])
            if not isinstance(answer, str) and not any(isinstance(item, str) for item in answer):
                noise = _distance(exact, [self.results[i] for i in chosen])
                apart = _distance(exact, answer)
                if np.isfinite(noise) and apart > max(FACTOR * noise, LEAST):
                    return f"{apart:.1e} in float64, rounding {noise:.1e}"
                if np.isfinite(noise) and distance <= max(FACTOR * noise, PLAIN):
                    return ""
        return f"{distance:.1e}" if distance > PLAIN else ""


def _distance(mine: Sequence[Mapping[str, Any]], theirs: Any, bits: bool = False) -> float:
    """Return the largest difference of an element, in units of its row's largest; infinite when it is no number."""
    if isinstance(theirs, str):
        return float("inf")
    worst = 0.0
    for one, other in zip(mine, theirs):
        if isinstance(other, str) or one.keys() != other.keys():
            return float("inf")
        for name, value in one.items():
            worst = max(worst, _apart(value, other[name], bits))
    return worst


def _apart(a: Any, b: Any, bits: bool) -> float:
    if isinstance(a, list) or isinstance(b, list):
        if not isinstance(a, list) or not isinstance(b, list) or len(a) != len(b):
            return float("inf")
        return max((_apart(x, y, bits) for x, y in zip(a, b)), default=0.0)
    if a is None or b is None:
        return 0.0 if a is b else float("inf")
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
        return float("inf")
    if a.dtype.kind != "f":
        return 0.0 if np.array_equal(a, b) else float("inf")
    if bits:
        equal = (a.dtype == b.dtype) and np.array_equal(np.signbit(a) & ~np.isnan(a), np.signbit(b) & ~np.isnan(b))
        return 0.0 if equal and np.array_equal(a, b, equal_nan=True) else 1.0
    x, y = np.atleast_1d(a).astype(np.float64), np.atleast_1d(b).astype(np.float64)
    if not (np.array_equal(np.isnan(x), np.isnan(y)) and np.array_equal(x[np.isinf(x)], y[np.isinf(x)])):
        return float("inf")
    finite = np.isfinite(x)
    with np.errstate(all="ignore"):
        size = np.max(np.abs(np.where(finite, x, 0.0)), axis=-1, keepdims=True, initial=0.0)
        gap = np.where(finite, np.abs(x - y), 0.0)
        ratio = np.where(gap == 0, 0.0, gap / size)
    return float(np.max(ratio, initial=0.0))
