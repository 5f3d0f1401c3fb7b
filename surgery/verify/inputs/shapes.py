"""The graph with functions inlined, and the shapes of its values for given inputs. In a worker process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from surgery.verify.inputs.dims import Extent, Implied
from surgery.workers import stage

if TYPE_CHECKING:
    import onnx

INLINE_LIMIT = 64 << 20
"""Bytes above which an inlined skeleton is not sent back: functions within functions can grow without bound."""


def inline(skeleton: bytes) -> bytes | None:
    """Replace the calls of model-local functions by their bodies; None when that leads nowhere."""
    import onnx
    import onnx.inliner

    stage("inliner")
    model = onnx.load_model_from_string(skeleton)
    if not model.functions:
        return skeleton
    inlined = onnx.inliner.inline_local_functions(model)
    return inlined.SerializeToString() if inlined.ByteSize() <= INLINE_LIMIT else None


def ties(skeleton: bytes, dims: Mapping[str, list[Extent]], names: Sequence[str]) -> Implied:
    """Say what the graph implies for the dims of the inputs; see `surgery.verify.inputs.ties`."""
    from surgery.verify.inputs.ties import find

    return find(skeleton, dims, names)


def infer(skeleton: bytes, dims: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Infer the shapes of all values whose dims come out as numbers, with the inputs bound to `dims`."""
    import onnx
    import onnx.shape_inference

    stage("shape inference")
    model = onnx.load_model_from_string(skeleton)
    for value in model.graph.input:
        if value.name in dims:
            shape = _tensor_type(value.type).shape
            del shape.dim[:]
            for extent in dims[value.name]:
                shape.dim.add().dim_value = extent
    # What was inferred before, with symbolic dims, would only stand in the way of numbers.
    del model.graph.value_info[:]
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:
        inferred = model
    found: dict[str, list[int]] = {}
    for graph in graphs(inferred.graph):
        for value in (*graph.value_info, *graph.input, *graph.output):
            shape = _tensor_type(value.type).shape
            if _has_shape(value.type) and all(dim.HasField("dim_value") for dim in shape.dim):
                found[value.name] = [dim.dim_value for dim in shape.dim]
    return found


def _tensor_type(kind: onnx.TypeProto) -> onnx.TypeProto.Tensor:
    while (field := kind.WhichOneof("value")) in ("sequence_type", "optional_type"):
        kind = getattr(kind, field).elem_type
    return kind.tensor_type


def _has_shape(kind: onnx.TypeProto) -> bool:
    return bool(kind.HasField("tensor_type") and kind.tensor_type.HasField("shape"))


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and its subgraphs at any depth."""
    pending = [graph]
    while pending:
        current = pending.pop()
        yield current
        for node in current.node:
            for attribute in node.attribute:
                pending.extend(bodies(attribute))


def bodies(attribute: onnx.AttributeProto) -> Sequence[onnx.GraphProto]:
    """List the graphs in an attribute."""
    if attribute.HasField("g"):
        return [*attribute.graphs, attribute.g]
    graphs: Sequence[onnx.GraphProto] = attribute.graphs
    return graphs
