"""What names of a model mean: tensors, nodes or dims."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import onnx

from surgery.base.errors import UsageError, closest
from surgery.model import storage
from surgery.model.wire import globs

KINDS = ("inputs", "outputs", "tensors", "nodes", "dims")
_DIM = re.compile(r"[A-Za-z_]\w*")


def by_kind(model: str, names: Mapping[str, str], kind: str | None) -> dict[str, dict[str, str]]:
    """Return new names, by old names or globs, in the groups that the pass `rename` takes.

    Without a `kind`, a name means all tensors, nodes and dims of the model that have it. Raise UsageError if nothing
    has it, or for an unknown kind.
    """
    if not names:
        raise UsageError("no name is given", todo="write it like pixel_values=image")
    if kind is not None:
        if kind not in KINDS:
            raise UsageError(f"--kind {kind}: there is no such kind", todo=f"choose from {', '.join(KINDS)}")
        return {kind: dict(names)}
    return globs.by_kind(_known(storage.load(model).proto), names)


def rank(model: str, name: str) -> int:
    """Return the number of dims of an input or output; raise UsageError if there is none of that name, or no shape."""
    graph = storage.load(model).proto.graph
    ports = {one.name: one for one in (*graph.output, *graph.input)}
    if name not in ports:
        near = closest(name, ports)
        hint = f"; did you mean '{near}'?" if near else ""
        raise UsageError(f"the model has no input or output '{name}'{hint}")
    if not ports[name].type.tensor_type.HasField("shape"):
        raise UsageError(f"the rank of '{name}' is not known", todo="declare its shape first")
    return len(ports[name].type.tensor_type.shape.dim)


def axis(name: str, number: int, count: int) -> int:
    """Return the number of a dim; raise UsageError if there is none of that number."""
    if number >= count:
        raise UsageError(f"'{name}' has {count} dims, and there is no dim {number}", todo="the first dim is 0")
    return number


def _known(proto: onnx.ModelProto) -> dict[str, dict[str, None]]:
    """Return the names of a model by kind."""
    tensors: dict[str, None] = {}
    nodes: dict[str, None] = {}
    dims: dict[str, None] = {}
    for graph in _graphs(proto):
        if isinstance(graph, onnx.GraphProto):
            values = [*graph.input, *graph.output, *graph.value_info]
            tensors |= dict.fromkeys(one.name for one in (*graph.input, *graph.initializer))
            dims |= dict.fromkeys(
                name
                for value in values
                for dim in value.type.tensor_type.shape.dim
                for name in _DIM.findall(dim.dim_param)
            )
        for node in graph.node:
            tensors |= dict.fromkeys(filter(None, node.output))
            nodes |= {node.name: None} if node.name else {}
    return {"tensors": tensors, "nodes": nodes, "dims": dims}


def _graphs(proto: onnx.ModelProto) -> Iterator[Any]:
    """Yield the main graph, the functions, and their subgraphs."""
    left: list[Any] = [proto.graph, *proto.functions]
    while left:
        graph = left.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                left += [attribute.g] if attribute.HasField("g") else []
                left += attribute.graphs
