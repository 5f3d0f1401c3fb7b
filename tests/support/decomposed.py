"""A model with operators of ONNX Runtime against what `decompose` makes of it: both run here, nothing optimized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

from surgery import Graph
from surgery.engine.bridges import run_pass
from surgery.engine.registry.catalog import catalog
from surgery.model import storage
from surgery.model.graph import text

Feeds = Mapping[str, np.ndarray[Any, Any]]


def parsed(body: str, opset: int = 17) -> onnx.ModelProto:
    """Parse a graph with operators of com.microsoft."""
    return text.parse(f'<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1]> {body}')


def decomposed(model: onnx.ModelProto, *ops: str) -> tuple[onnx.ModelProto, list[str]]:
    """Return the model with operators taken apart, and the reasons for which some were not."""
    declared = catalog.find("decompose")
    stored = storage.from_proto(model)
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
    run_pass.apply(declared, graph, declared.bind({"ops": list(ops or ["com.microsoft::*"])}))
    made = storage.resolve(storage.proto_from_ir(graph.ir, graph.weights))
    return made, [refused.reason for refused in graph.refusals]


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Return a session without optimizations, of one thread."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(model: onnx.ModelProto, feeds: Feeds) -> Sequence[np.ndarray[Any, Any]]:
    """Run a model."""
    return list(session(model).run(None, feeds))


def run_in_place(model: onnx.ModelProto, feeds: Feeds) -> Sequence[np.ndarray[Any, Any]]:
    """Run a model whose second and third outputs are written over its inputs `past_key` and `past_value`."""
    made = session(model)
    bound, held = made.io_binding(), {name: onnxruntime.OrtValue.ortvalue_from_numpy(x) for name, x in feeds.items()}
    for name, value in held.items():
        bound.bind_ortvalue_input(name, value)
    first, *buffers = [output.name for output in made.get_outputs()]
    bound.bind_output(first)
    for name, shared in zip(buffers, ("past_key", "past_value")):
        bound.bind_ortvalue_output(name, held[shared])
    made.run_with_iobinding(bound)
    return [value.numpy() for value in bound.get_outputs()]
