"""Static facts about a model: node counts, bytes and signature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import onnx

STANDARD = ("", "ai.onnx")


def of(path: Path) -> dict[str, Any]:
    """Return node counts, the bytes on disk including external data, and the signature."""
    model = onnx.load(path, load_external_data=False)
    counts = operators(model)
    return {
        "nodes": counts.total(),
        "outside": sum(count for (domain, _), count in counts.items() if domain not in STANDARD),
        "bytes": path.stat().st_size + sum(file.stat().st_size for file in external_files(model, path.parent)),
        "signature": signature(model),
    }


def operators(model: onnx.ModelProto) -> Counter[tuple[str, str]]:
    """Count the nodes of all scopes by domain and operator; the body of a function counts once."""
    bodies = [model.graph.node, *(function.node for function in model.functions)]
    return Counter((node.domain, node.op_type) for body in bodies for node in _nodes(body))


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _nodes(graph.node)


def external_files(model: onnx.ModelProto, folder: Path) -> set[Path]:
    """Return the files next to the model that hold its weights."""
    return {
        folder / entry.value
        for tensor in model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }


def signature(model: onnx.ModelProto) -> dict[str, list[list[Any]]]:
    """Return name, type and dims of each input and output, including inputs with an initializer as default."""
    return {"inputs": [_value(v) for v in model.graph.input], "outputs": [_value(v) for v in model.graph.output]}


def _value(value: onnx.ValueInfoProto) -> list[Any]:
    if not value.type.HasField("tensor_type"):
        return [value.name, value.type.SerializeToString(deterministic=True).hex(), None]
    tensor = value.type.tensor_type
    dims = [_dim(dim) for dim in tensor.shape.dim] if tensor.HasField("shape") else None
    return [value.name, onnx.TensorProto.DataType.Name(tensor.elem_type).lower(), dims]


def _dim(dim: Any) -> int | str:
    return dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?"


def compare_signatures(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, str]:
    """Return whether a signature is kept, refined or changed, and the first difference.

    Refined means that an open output dim, which is not a dim of an input, now has a size or another name: the model
    promises more than before and accepts the same inputs.
    """
    if before == after:
        return "kept", ""
    free = {dim for _, _, dims in before["inputs"] for dim in dims or () if isinstance(dim, str)} - {"?"}
    refined = ""
    for side in ("inputs", "outputs"):
        for old, new in zip(before[side], after[side]):
            told = f"{side[:-1]} {_told(old)} became {_told(new)}"
            if old[:2] != new[:2] or (old != new and side == "inputs") or not _refines(old[2], new[2], free):
                return "changed", told
            refined = refined or (told if old != new else "")
        if len(before[side]) != len(after[side]):
            return "changed", f"{len(before[side])} {side} became {len(after[side])}"
    return "refined", refined


def _refines(old: list[Any] | None, new: list[Any] | None, free: set[str]) -> bool:
    if old is None or old == new:
        return True
    if new is None or len(old) != len(new):
        return False
    return all(a == b or (isinstance(a, str) and a not in free) for a, b in zip(old, new))


def _told(value: list[Any]) -> str:
    name, kind, dims = value
    return f"{name} {kind[:20]}{'' if dims is None else '[' + ', '.join(map(str, dims)) + ']'}"
