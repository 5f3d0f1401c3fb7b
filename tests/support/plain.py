"""ONNX Runtime in a separate process, with nothing of surgery around it: what a caller of the models would see."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

TIMEOUT = 120.0

# What this ONNX Runtime reads
NEWEST_IR, NEWEST_OPSET = 13, 26

# The largest error that counts as rounding, as a share of the output's largest magnitude, by bytes of a float
LIMITS = {1: 0.15, 2: 1e-2, 4: 1e-3, 8: 1e-6}


class Crashed(Exception):  # noqa: N818 - what became of the process
    """The process died, or did not answer in time."""


class Isolated:
    """A process that answers by `serve`; a question that takes it down costs no more than its own answer."""

    def __init__(self, serve: Callable[[Connection], None]) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._serve = serve
        self._start()

    def _start(self) -> None:
        self._ours, theirs = self._context.Pipe()
        self._process = self._context.Process(target=self._serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, *question: Any) -> Any:
        """Return what the process says; Crashed when it dies or says nothing for long."""
        answered = False
        try:
            self._ours.send(question)
            answered = self._ours.poll(TIMEOUT)
            if answered:
                return self._ours.recv()
            raise Crashed(f"no answer in {TIMEOUT:.0f} s")
        except (EOFError, OSError):
            self._process.join(10)
            raise Crashed(f"exit code {self._process.exitcode}") from None
        finally:
            if not answered or not self._process.is_alive():
                self.close()
                self._start()

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._ours.close()


class Plain(Isolated):
    """Runs models without optimizations."""

    def __init__(self) -> None:
        super().__init__(_serve)

    def run(self, model: bytes | str, feed: dict[str, Any]) -> list[Any] | str:
        """Return the outputs, or the message with which ONNX Runtime refuses."""
        return self.ask(model, feed)


def _serve(channel: Connection) -> None:
    os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    while True:
        model, feed = channel.recv()
        try:
            session = ort.InferenceSession(_runnable(model), options, providers=["CPUExecutionProvider"])
            channel.send(session.run(None, feed))
        except Exception as problem:
            channel.send(" ".join(str(problem).split()))


def _runnable(model: bytes | str) -> bytes | str:
    """Return the model with versions that the runtime reads; most operators are what they were before the newest."""
    proto = onnx.load(model) if isinstance(model, str) else onnx.load_from_string(model)
    standard = [entry for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    if proto.ir_version <= NEWEST_IR and all(entry.version <= NEWEST_OPSET for entry in standard):
        return model
    proto.ir_version = min(proto.ir_version, NEWEST_IR)
    for entry in standard:
        entry.version = min(entry.version, NEWEST_OPSET)
    return proto.SerializeToString()


def difference(expected: Any, found: Any, *, values: bool = True) -> str:
    """Say how an output differs from what was expected beyond rounding; without `values`, in shape and type only."""
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return f"{len(found)} elements instead of {len(expected)}" if values else ""
        return next(filter(None, (difference(a, b, values=values) for a, b in zip(expected, found))), "")
    if not isinstance(expected, np.ndarray) or not isinstance(found, np.ndarray):
        return "" if not values or expected == found else f"{found} instead of {expected}"
    if expected.dtype != found.dtype or expected.shape != found.shape:
        return f"{found.dtype}{list(found.shape)} instead of {expected.dtype}{list(expected.shape)}"
    if not values:
        return ""
    if not is_float(expected.dtype):
        return "" if np.array_equal(expected, found) else "other values"
    return _beyond_rounding(expected, found)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether it is a float of any width or a complex number; the narrow ones are no numbers to numpy."""
    return dtype.kind in "fc" or (dtype.kind == "V" and "float" in dtype.name)


def _beyond_rounding(expected: np.ndarray[Any, Any], found: np.ndarray[Any, Any]) -> str:
    width = expected.dtype.itemsize // (2 if expected.dtype.kind == "c" else 1)
    left, right = expected.astype(np.complex128), found.astype(np.complex128)
    finite = np.isfinite(left)
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True) or not np.isfinite(right[finite]).all():
        return "NaN or infinity in other places"
    scale = np.abs(left[finite]).max(initial=0.0) or 1.0
    error = np.abs(left[finite] - right[finite]).max(initial=0.0) / scale
    return f"off by {error:.1e}" if error > LIMITS[width] else ""


def feeds(inputs: list[str], sets: list[list[Any]]) -> list[dict[str, Any]]:
    """Name the values of each test set; what a set leaves out is not given."""
    return [{name: _array(value) for name, value in zip(inputs, values) if value is not None} for values in sets]


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def sets_beside(path: Path, types: list[Any], what: str = "input") -> list[list[Any]]:
    """Read the inputs, or the outputs, of the test sets that are next to a model."""
    readers = {
        "tensor_type": (onnx.TensorProto, numpy_helper.to_array),
        "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
    }
    found = []
    for folder in sorted(path.parent.glob("test_data_set_*")):
        values = []
        for number, kind in enumerate(types):
            file = folder / f"{what}_{number}.pb"
            message, convert = readers[kind.WhichOneof("value")]
            values.append(convert(message.FromString(file.read_bytes())) if file.is_file() else None)
        found.append(values)
    return found
