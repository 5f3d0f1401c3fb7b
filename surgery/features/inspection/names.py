"""What names of a model mean: tensors, nodes or dims."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import onnx

from surgery.base.errors import UsageError
from surgery.model import storage
from surgery.model.wire.globs import Globs, did_you_mean

KINDS = ("inputs", "outputs", "tensors", "nodes", "dims")
_REGEX = "re:"
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
    known = _known(storage.load(model).proto)
    found: dict[str, dict[str, str]] = {}
    for old, new in names.items():
        kinds = [kind for kind, all_names in known.items() if _has(old, all_names)]
        if not kinds:
            near = did_you_mean(old, [name for all_names in known.values() for name in all_names])
            raise UsageError(f"the model has no tensor, node or dim '{old}'", todo=near or None)
        for kind in kinds:
            found.setdefault(kind, {})[old] = new
    return found


def _has(old: str, known: Mapping[str, None]) -> bool:
    """Return whether a name, a glob, or a regular expression after `re:` fits any of the names."""
    if not old.startswith(_REGEX) or old in known:
        fitting = Globs((old,))
        return any(map(fitting.fit, known))
    try:
        pattern = re.compile(old.removeprefix(_REGEX))
    except re.error as error:
        raise UsageError(f"'{old}' is not a regular expression: {error}") from None
    return any(map(pattern.fullmatch, known))


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
