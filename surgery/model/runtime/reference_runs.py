"""Runs in the reference evaluator of onnx, for models that ONNX Runtime cannot run; in a worker process.

With `contrib_ops`, it also supports operators of ONNX Runtime.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators.dtypes import ONNX_TYPES, spread
from surgery.base.operators.subgraphs import graphs
from surgery.base.workers import stage
from surgery.model.runtime import contrib_ops
from surgery.model.runtime.result_types import TYPE_ATTRIBUTES
from surgery.model.targets.kernels import MISTAKEN_BY_EVALUATOR
from surgery.model.wire.stored_lists import MARK, whole

if TYPE_CHECKING:
    import onnx

WEIGHTS_LIMIT = 512 << 20
"""Maximum bytes of weights for the evaluator, which needs them in memory."""


_TYPES = TYPE_ATTRIBUTES | {"output_dtype"}


def run(skeleton: bytes, feeds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Run a model once for each dict of inputs; the result has the form of `sessions.run`."""
    import time

    import onnx
    from onnx.reference import ReferenceEvaluator

    stage("reference evaluator")
    model = onnx.load_model_from_string(whole(skeleton))
    mistaken = next(_mistaken(model), None)
    if mistaken is not None:
        return {"unsupported": f"the reference evaluator computes {mistaken} incorrectly"}
    if not _has_all_types() and _has_types(model, ONNX_TYPES):
        return {"unsupported": "the reference evaluator of this onnx computes types that NumPy lacks as integers"}
    if external_bytes(model) > WEIGHTS_LIMIT:
        return {"unsupported": "the weights are too large for the reference evaluator"}
    for tensor in external_tensors(model):
        _read_in(tensor)
    try:
        evaluator = ReferenceEvaluator(model, new_ops=contrib_ops.evaluators())
    except Exception as error:
        return {"unsupported": f"the reference evaluator cannot run it: {error}"}
    names = [output.name for output in model.graph.output]
    results: list[dict[str, Any] | str] = []
    seconds: list[float] = []
    for feed in feeds:
        stage("reference evaluator")
        begin = time.process_time()
        try:
            with np.errstate(all="ignore"):
                values = evaluator.run(None, feed)
            results.append({name: _plain(value) for name, value in zip(names, values)})
        except MemoryError:
            raise
        except Exception as error:
            results.append(str(error) or type(error).__name__)
        seconds.append(time.process_time() - begin)
    return {"runs": results, "seconds": seconds}


def _mistaken(model: onnx.ModelProto) -> Iterator[str]:
    """Yield the operators of a model that the evaluator computes incorrectly."""
    import onnx.defs

    known = {op for op, _ in MISTAKEN_BY_EVALUATOR}
    holders: list[tuple[Any, Any]] = [(model, model.graph), *((function, function) for function in model.functions)]
    for holder, graph in holders:
        versions = [item.version for item in holder.opset_import if item.domain in ("", "ai.onnx")]
        for node in (node for body in graphs(graph) for node in body.node):
            if node.op_type in known and node.domain in ("", "ai.onnx") and versions:
                since = onnx.defs.get_schema(node.op_type, versions[0], "").since_version
                if (node.op_type, since) in MISTAKEN_BY_EVALUATOR:
                    yield f"{node.op_type} of opset {since}"


def _has_all_types() -> bool:
    """Return whether the evaluator of the installed onnx computes bfloat16 and its like as numbers."""
    from onnx.helper import tensor_dtype_to_np_dtype

    return tensor_dtype_to_np_dtype(16) == ONNX_TYPES[16]


def _has_types(model: onnx.ModelProto, types: Collection[int]) -> bool:
    """Return whether a model declares, stores or makes values of some element types."""
    pending: list[Any] = [model]
    while pending:
        item = pending.pop()
        for field, value in item.ListFields():
            if field.message_type is not None:
                pending.extend([value] if hasattr(value, "ListFields") else value)
                continue
            is_type = field.name in ("elem_type", "data_type") or (field.name == "i" and item.name in _TYPES)
            if is_type and value in types:
                return True
    return False


def _plain(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, dict):
        return spread(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return np.asarray(value)


_WITHOUT_TENSORS = frozenset({"input", "output", "value_info", "opset_import", "metadata_props", "type"})
"""Fields of models, graphs and functions whose messages hold no tensors: half of all messages."""


def external_tensors(message: Any) -> Iterator[onnx.TensorProto]:
    """Yield each external tensor of a model, but none that stands for a list: a run does not read it as weights."""
    import onnx

    pending = [message]
    while pending:
        item = pending.pop()
        if isinstance(item, onnx.TensorProto):
            if item.data_location == onnx.TensorProto.EXTERNAL and item.doc_string != MARK:
                yield item
            continue
        for field, value in item.ListFields():
            if field.message_type is not None and field.name not in _WITHOUT_TENSORS:
                pending.extend([value] if hasattr(value, "ListFields") else value)


def _entries(tensor: onnx.TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def external_bytes(message: Any) -> int:
    """Return the total size of the external tensors of a model in bytes."""
    return sum(int(_entries(tensor).get("length", "0")) for tensor in external_tensors(message))


def _read_in(tensor: onnx.TensorProto) -> None:
    """Read the referenced bytes into the tensor."""
    entries = _entries(tensor)
    descriptor = os.open("/" + entries["location"], os.O_RDONLY)
    try:
        tensor.raw_data = os.pread(descriptor, int(entries["length"]), int(entries.get("offset", "0")))
    finally:
        os.close(descriptor)
    del tensor.external_data[:]
    tensor.data_location = type(tensor).DEFAULT
