"""Runs of a model in ONNX Runtime Web, from a serialized skeleton. The functions here run in a worker process.

Node.js runs the package onnxruntime-web of npm on WebAssembly with one thread, as a browser does on a page that is not
isolated. It runs in a process of its own, and tensors go through files.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np

from surgery.base.workers import stage
from surgery.base.workers.limits import end_with_parent
from surgery.model.wire.stored_lists import whole

PACKAGE: Final = "onnxruntime-web"
INSTALL: Final = f"install Node.js, then: npm install {PACKAGE}"

_MISSING: Final = {"missing": "ONNX Runtime Web is not installed for Node.js", "todo": INSTALL}

_TYPES: Final = frozenset(
    {
        *("float16", "float32", "float64", "bool", "int8", "uint8"),
        *("int16", "uint16", "int32", "uint32", "int64", "uint64"),
    }
)
"""The element types of its JavaScript interface, by the names of both sides; there are strings, too."""

_LARGEST: Final = 2**31 - 1
"""Bytes of the largest model that the format of the file allows."""


def run(skeleton: bytes, feeds: list[dict[str, Any]], limit: int, folder: str) -> dict[str, Any]:
    """Run a model once for each dict of inputs; `folder` is where the search for the package starts.

    The result has the form of `sessions.run`, with the name and release of the runtime in "title"; or it is
    `{"missing": what, "todo": command}` without Node.js or the package.
    """
    node = shutil.which("node")
    if node is None:
        return dict(_MISSING)
    model = _whole(skeleton)
    if model is None:
        return {"unsupported": "ONNX Runtime Web loads models of at most 2 GB"}
    with tempfile.TemporaryDirectory() as place:
        Path(place, "model.onnx").write_bytes(model)
        job = {"model": f"{place}/model.onnx", "answer": f"{place}/answer.json", "outputs": place}
        job |= {"folder": folder, "package": PACKAGE}
        given = [_given(feed, f"{place}/in.{number}") for number, feed in enumerate(feeds)]
        usable = [feed for feed in given if not isinstance(feed, str)]
        Path(place, "job.json").write_text(json.dumps({**job, "feeds": usable}), encoding="utf-8")
        stage("ONNX Runtime Web")
        failed = _execute(node, f"{place}/job.json")
        answer = Path(place, "answer.json")
        if not answer.is_file():
            return {"invalid": f"Node.js {failed}"}
        found = json.loads(answer.read_text(encoding="utf-8"))
        if found.get("missing"):
            return dict(_MISSING)
        title = f"ONNX Runtime Web {found['version']}"
        if "invalid" in found:
            return {"invalid": _message(found["invalid"]), "title": title}
        results = iter([_outputs(one, limit) for one in found["runs"]])
        return {"runs": [feed if isinstance(feed, str) else next(results) for feed in given], "title": title}


def _whole(skeleton: bytes) -> bytes | None:
    """Return a model with its weights, which are relative to the root; None if it is too large for one message."""
    import onnx
    from onnx.external_data_helper import load_external_data_for_model

    model = onnx.load_model_from_string(whole(skeleton))
    stored = (entry for tensor in model.graph.initializer for entry in tensor.external_data if entry.key == "length")
    if sum(int(entry.value) for entry in stored) + len(skeleton) > _LARGEST:
        return None
    load_external_data_for_model(model, "/")
    data: bytes = model.SerializeToString()
    return data


def _given(feed: dict[str, Any], prefix: str) -> dict[str, Any] | str:
    """Write inputs to files, and return where they are; or return the input that has no type of the interface."""
    found: dict[str, Any] = {}
    for number, (name, value) in enumerate(feed.items()):
        if isinstance(value, np.ndarray) and value.dtype.kind in "OUS":
            texts = [text.decode() if isinstance(text, bytes) else str(text) for text in value.ravel()]
            found[name] = {"type": "string", "dims": value.shape, "data": texts}
        elif isinstance(value, np.ndarray) and value.dtype.name in _TYPES:
            path = Path(f"{prefix}.{number}")
            path.write_bytes(np.ascontiguousarray(value).tobytes())
            found[name] = {"type": value.dtype.name, "dims": value.shape, "file": str(path)}
        else:
            return f"ONNX Runtime Web takes no such value for the input '{name}'"
    return found


def _outputs(found: list[Any] | str, limit: int) -> dict[str, Any] | str:
    """Read the outputs of a run; a text is why it failed. Raises MemoryError beyond `limit` bytes."""
    if isinstance(found, str):
        return _message(found)
    size = sum(Path(value["file"]).stat().st_size for _, value in found if "file" in value)
    if size > limit:
        raise MemoryError(f"the outputs take more than {limit >> 20} MiB")
    return {name: _array(value) for name, value in found}


def _message(message: str) -> str:
    """Return a message without the failed call and its code, which the JavaScript interface puts before it."""
    return message.rpartition("ERROR_MESSAGE: ")[2]


def _array(value: dict[str, Any]) -> np.ndarray[Any, Any]:
    if value["type"] == "string":
        return np.array(value["data"], dtype=object).reshape(value["dims"])
    data = Path(value["file"]).read_bytes()
    return np.frombuffer(data, np.dtype(value["type"])).reshape(value["dims"])


def _execute(node: str, job: str) -> str:
    """Run a job in Node.js, and return how it ended. It ends with this process."""
    script = str(resources.files(__package__).joinpath("web_runs.mjs"))
    ended = subprocess.run([node, script, job], preexec_fn=end_with_parent, capture_output=True, check=False)
    if ended.returncode < 0:
        return f"crashed with {signal.Signals(-ended.returncode).name}"
    lines = [line for line in ended.stderr.decode(errors="replace").splitlines() if line.strip()]
    reason = next((line.strip() for line in lines if "Error" in line), "")
    return f"ended with exit code {ended.returncode}{': ' if reason else ''}{reason}"
