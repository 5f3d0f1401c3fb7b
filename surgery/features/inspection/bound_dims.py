"""Binding of dynamic dims to sizes, and inlining of functions."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING

from surgery.base.errors import SurgeryError, UsageError
from surgery.base.workers import Worker
from surgery.engine.registry.passes import suggestion

if TYPE_CHECKING:
    import onnx


def dynamic_dims(proto: onnx.ModelProto) -> dict[str, list[str]]:
    """Return the dynamic dims of the inputs, each with its places.

    A dim without a name is named after its place: "x[0]".
    """
    given = {tensor.name for tensor in proto.graph.initializer}
    found: dict[str, list[str]] = {}
    for value in proto.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if value.name not in given and not dim.HasField("dim_value"):
                place = f"{value.name}[{axis}]"
                found.setdefault(dim.dim_param or place, []).append(place)
    return found


def bind(proto: onnx.ModelProto, sizes: Mapping[str, int]) -> onnx.ModelProto:
    """Return a copy of a model with these sizes for dynamic dims; UsageError if it has no such dim."""
    known = dynamic_dims(proto)
    for name in sizes:
        if name not in known:
            has = f"its dynamic dims are {', '.join(known)}" if known else "its dims are all fixed"
            raise UsageError(f"the model has no dynamic dim '{name}'{suggestion(name, known)}", todo=has)
    result = deepcopy(proto)
    ports = list(result.graph.input)
    for value in ports:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            size = sizes.get(f"{value.name}[{axis}]") if not dim.HasField("dim_value") else None
            if size is not None and not dim.dim_param:
                dim.dim_value = size
    for value in (*ports, *result.graph.output, *result.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    return result


def inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with calls of functions replaced by their bodies, or the model itself if inlining fails."""
    import onnx

    if not proto.functions:
        return proto
    try:
        with Worker(timeout=60) as worker:
            answer = worker.call("surgery.features.inspection.bound_dims:inline", skeleton=proto.SerializeToString())
    except SurgeryError:
        return proto
    return onnx.load_model_from_string(answer)


def inline(skeleton: bytes) -> bytes:
    """Inline the functions of a model; runs in a worker, because a recursive function ends the process."""
    import onnx
    import onnx.inliner

    inlined = onnx.inliner.inline_local_functions(onnx.load_model_from_string(skeleton))
    data: bytes = inlined.SerializeToString()
    return data
