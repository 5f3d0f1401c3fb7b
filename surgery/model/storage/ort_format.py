"""Models in ORT format, the FlatBuffers format of ONNX Runtime on devices. Only ONNX Runtime can read them.

ONNX Runtime loads such a model without optimizations, and saves the resulting graph as ONNX, with the operators,
attributes and weights of the file.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from surgery.base.errors import ModelFileError, WorkerError
from surgery.base.workers import Worker, WorkerRaised, shorten

if TYPE_CHECKING:
    import onnx

SUFFIX: Final = ".ort"
_MARK: Final = b"ORTM"
_NO_VERSION: Final = 2**63 - 1
_TIMEOUT: Final = 600.0


def marks(head: bytes) -> bool:
    """Return whether these first bytes of a file belong to a model in ORT format."""
    return head[4:8] == _MARK


def is_ort(path: Path) -> bool:
    """Return whether a file is a model in ORT format; False if it cannot be read."""
    try:
        # Opening a pipe would wait for its writer.
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return marks(file.read(8))
    except (OSError, ValueError):
        return False


def read(path: Path) -> bytes:
    """Return the model of a file in ORT format as protobuf. Raises ModelFileError if ONNX Runtime cannot load it."""
    try:
        with Worker(timeout=_TIMEOUT) as worker:
            data: bytes = worker.call(f"{__name__}:convert", path=str(path.absolute()))
    except WorkerRaised as error:
        what = f"ONNX Runtime does not load this model in ORT format: {shorten(error.message)}"
        raise ModelFileError(what, where=str(path), todo="give the .onnx file it was made from") from error
    except WorkerError as error:
        error.where = str(path)
        raise
    return data


def convert(path: str) -> bytes:
    """Load a file in ORT format, and return the model as protobuf; runs in the worker."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.load_model_format", "ORT")
    options.add_session_config_entry("session.save_model_format", "ONNX")
    with tempfile.TemporaryDirectory(prefix="surgery-ort-") as folder:
        saved = Path(folder) / "model.onnx"
        options.optimized_model_filepath = str(saved)
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        model = onnx.load(saved)
    _tidy(model)
    return bytes(model.SerializeToString(deterministic=True))


def _tidy(model: onnx.ModelProto) -> None:
    """Remove additions of ONNX Runtime: imports of all known opsets, and the version of a model without one."""
    from surgery.base.operators.subgraphs import nodes

    used = {node.domain for node in nodes(model)} | {function.domain for function in model.functions} | {""}
    kept = [opset for opset in model.opset_import if opset.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    if model.model_version == _NO_VERSION:
        model.ClearField("model_version")
    # The checker requires a graph name, which the format does not store.
    model.graph.name = model.graph.name or "graph"
