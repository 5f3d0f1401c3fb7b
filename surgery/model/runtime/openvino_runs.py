"""Runs of a model in OpenVINO on the CPU, from a serialized skeleton. The functions here run in a worker process.

OpenVINO's frontend reads the ONNX file itself, not through ONNX Runtime. Models are compiled in its accuracy mode: by
default, float32 is computed in bfloat16 on processors that have instructions for it, which says nothing of a model.
"""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from typing import Any, Final

import numpy as np

from surgery.base.operators.dtypes import ONNX_TYPES
from surgery.base.workers import stage
from surgery.model.wire.stored_lists import whole

INSTALL: Final = "pip install openvino"

_BFLOAT16 = ONNX_TYPES[16]

_NO_RULE = re.compile(r"No conversion rule found for operations: (.+)")
_NODE = re.compile(r"While validating ONNX node '<Node\((\w+)\): ([^>]*)>': ")
_NOISE = re.compile(
    r"Exception from |Check '.*' failed|FrontEnd API |Model wasn't |Summary:|-- |While validating node "
)

_SOURCES = frozenset({"Input", "MemoryInput"})
_NOT_COMPUTED = _SOURCES | {"Output", "Const", "MemoryOutput"}
"""Kinds of layers of a compiled model that compute nothing."""


def run(skeleton: bytes, feeds: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """Run a model once for each dict of inputs.

    The result has the form of `sessions.run`, with the layers of the compiled model in "executed", and the name and
    release of the runtime in "title"; or it is `{"missing": what, "todo": command}` without the package.
    """
    if importlib.util.find_spec("openvino") is None:
        return {"missing": "OpenVINO is not installed", "todo": INSTALL}
    import onnx
    import openvino

    title = f"OpenVINO {openvino.__version__.partition('-')[0]}"
    names = [output.name for output in onnx.load_model_from_string(skeleton).graph.output]
    stage("OpenVINO")
    try:
        # Weights are references to files, relative to the root, which is the current folder of workers.
        core = openvino.Core()
        model = core.read_model(whole(skeleton))
        compiled = core.compile_model(model, "CPU", {"EXECUTION_MODE_HINT": "ACCURACY"})
    except Exception as error:
        return {"invalid": reason(str(error)), "title": title}
    results: list[dict[str, Any] | str] = []
    stage("run")
    for feed in feeds:
        try:
            results.append(_run_once(compiled, feed, names))
        except Exception as error:
            results.append(reason(str(error)))
        size = sum(value.nbytes for found in results if isinstance(found, dict) for value in found.values())
        if size > limit:
            raise MemoryError(f"the outputs take more than {limit >> 20} MiB")
    return {"runs": results, "executed": _layers(compiled), "title": title}


def _run_once(compiled: Any, feed: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the outputs by name. OpenVINO drops inputs that nobody reads, and keeps the order of outputs."""
    import openvino

    request = compiled.create_infer_request()
    for place, port in enumerate(compiled.inputs):
        found = next((feed[name] for name in port.names if name in feed), None)
        if not isinstance(found, np.ndarray) or found.dtype.kind in "OUS":
            raise ValueError(f"OpenVINO takes no such value for the input '{port.any_name}'")
        value = np.ascontiguousarray(found).reshape(found.shape)
        if value.dtype == _BFLOAT16:
            request.set_input_tensor(place, openvino.Tensor(value.view(np.uint16), value.shape, port.element_type))
        else:
            request.set_input_tensor(place, openvino.Tensor(value))
    request.infer()
    return {name: _array(request.get_output_tensor(place)) for place, name in enumerate(names)}


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    data: np.ndarray[Any, Any] = np.array(tensor.data)
    return data.view(np.uint16).view(_BFLOAT16) if str(tensor.element_type) == "<Type: 'bfloat16'>" else data


def _layers(compiled: Any) -> list[tuple[str, str, int]]:
    """Return the layers of the compiled model that a run computes: rows of kind, device and number.

    Layers that only read constants, such as the Transpose or Reorder of a weight, are computed when a model is
    compiled, and take no time in its runs.
    """
    counted, varying = Counter[str](), set[str]()
    for layer in compiled.get_runtime_model().get_ordered_ops():
        kind = _kind(layer)
        read = [port.get_source_output().get_node().get_friendly_name() for port in layer.inputs()]
        if kind in _SOURCES or not (varying.isdisjoint(read) and (read or kind == "Const")):
            varying.add(layer.get_friendly_name())
            counted[kind] += kind not in _NOT_COMPUTED
    return [(kind, "CPU", count) for kind, count in sorted(counted.items()) if count]


def _kind(layer: Any) -> str:
    info = layer.get_rt_info()
    return str(info["layerType"].value)


def reason(message: str) -> str:
    """Return the informative line of a message of OpenVINO, preceded by the node that it is about."""
    missing = _NO_RULE.search(message)
    if missing is not None:
        return f"OpenVINO does not convert {missing.group(1).strip()}"
    node = _NODE.search(message)
    lines = [_NODE.sub("", line).strip() for line in message.splitlines() if line.strip()]
    informative = [line for line in lines if not _NOISE.match(line)] or lines or ["it fails without a message"]
    where = f"{node.group(1)} '{node.group(2)}': " if node is not None else ""
    return f"{where}{informative[0]}".rstrip(".")
