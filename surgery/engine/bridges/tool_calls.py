"""Calls of third-party tools. They run in a worker in the root directory, to which references are relative.

Each takes a serialized model and returns one; a tool is imported only where it is called.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from surgery.base.operators.subgraphs import nodes
from surgery.base.workers import stage
from surgery.model.wire.leftovers import ScratchFolder

_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (\S*/onnxruntime_src/.*?\) (?=[A-Z]))?")
"""The prefix of messages of ONNX Runtime: codes, a source file, the signature of a C++ function."""

_LISTED = {"value_ints": np.int64, "value_floats": np.float32}
"""The list attributes of a Constant, and their element types."""

Answer = dict[str, Any]
"""`model`, serialized; for tools with several steps also `sites`: name, skipped, removed nodes, new nodes."""


def call(tool: str, model: bytes, options: dict[str, Any]) -> Answer:
    """Run a tool of this module by name."""
    stage(tool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _TOOLS[tool](model, **options)


def optimizer_passes() -> dict[str, list[str]]:
    """List the passes of the installed onnxoptimizer: `all` of them, and its `default` set."""
    import onnxoptimizer

    return {
        "all": sorted(onnxoptimizer.get_available_passes()),
        "default": list(onnxoptimizer.get_fuse_and_elimination_passes()),
    }


def _onnxoptimizer(model: bytes, *, passes: list[str] | None, skip: Sequence[int]) -> Answer:
    """Run one pass after another, each as a separate site, and discard the results of those to skip."""
    import onnxoptimizer

    chosen = passes if passes is not None else optimizer_passes()["default"]
    # The effect of a pass is measured against a round trip of the model through the tool.
    state = onnxoptimizer.optimize(onnx.load_model_from_string(model), ["nop"])
    sites: list[list[Any]] = []
    for name in chosen:
        stage(f"onnxoptimizer's {name}")
        made = onnxoptimizer.optimize(state, [name])
        if made.SerializeToString(deterministic=True) == state.SerializeToString(deterministic=True):
            continue
        before, after = _labels(state.graph), _labels(made.graph)
        skipped = len(sites) + 1 in skip
        sites.append([name, skipped, list((before - after).elements()), list((after - before).elements())])
        state = state if skipped else made
    return {"model": state.SerializeToString(), "sites": sites}


def _labels(graph: onnx.GraphProto) -> Counter[str]:
    return Counter(node.name or f"{node.op_type} -> {', '.join(node.output)}" for node in graph.node)


def _onnxsim(model: bytes, **options: Any) -> Answer:
    import onnxsim

    made, _ = onnxsim.simplify(onnx.load_model_from_string(model), import_custom_schemas=False, **options)
    return {"model": made.SerializeToString()}


def _onnxscript(model: bytes, **options: Any) -> Answer:
    import onnxscript.optimizer

    return {"model": onnxscript.optimizer.optimize(onnx.load_model_from_string(model), **options).SerializeToString()}


def _graphsurgeon(model: bytes, *, fold_shapes: bool, size_threshold: int | None) -> Answer:
    import onnx_graphsurgeon as gs

    loaded = onnx.load_model_from_string(model)
    for node in nodes(loaded):
        _hold_in_tensor(node)
    graph = gs.import_onnx(loaded)
    graph.fold_constants(fold_shapes=fold_shapes, size_threshold=size_threshold).cleanup().toposort()
    return {"model": gs.export_onnx(graph, do_type_check=False).SerializeToString()}


def _hold_in_tensor(node: onnx.NodeProto) -> None:
    """Convert the list of a Constant to a tensor, because graphsurgeon 0.6.1 reads all lists as doubles."""
    listed = node.attribute[0] if node.op_type == "Constant" and len(node.attribute) == 1 else None
    if listed is None or listed.ref_attr_name or listed.name not in _LISTED:
        return
    elements = np.array([*listed.ints, *listed.floats], dtype=_LISTED[listed.name])
    node.attribute[0].CopyFrom(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(elements)))


def _converter(model: bytes, *, target: int) -> Answer:
    import onnx.version_converter

    made = onnx.version_converter.convert_version(onnx.load_model_from_string(model), target)
    return {"model": made.SerializeToString()}


def _ort(model: bytes, *, level: str, without: list[str]) -> Answer:
    """Optimize and write the model with a session, which keeps references and maps the weights that it reads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level.upper()}")
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", "/")
    options.add_session_config_entry("session.disable_prepacking", "1")
    with ScratchFolder() as folder:
        options.optimized_model_filepath = f"{folder}/optimized.onnx"
        try:
            onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"], disabled_optimizers=without or None
            )
        except Exception as error:
            raise RuntimeError(_PREFIX.sub("", str(error))) from None
        return {"model": Path(options.optimized_model_filepath).read_bytes()}


def _ort_transformers(model: bytes, *, model_type: str, num_heads: int, hidden_size: int) -> Answer:
    from onnxruntime.transformers import optimizer

    # The runtime's own optimizations are disabled; they are a separate tool here.
    made = optimizer.optimize_model(
        onnx.load_model_from_string(model), model_type, num_heads, hidden_size, opt_level=0, verbose=False
    )
    return {"model": made.model.SerializeToString()}


_TOOLS: dict[str, Callable[..., Answer]] = {
    "onnxoptimizer": _onnxoptimizer,
    "onnxsim": _onnxsim,
    "onnxscript-optimize": _onnxscript,
    "graphsurgeon-fold": _graphsurgeon,
    "onnx-version-converter": _converter,
    "ort": _ort,
    "ort-transformers": _ort_transformers,
}
