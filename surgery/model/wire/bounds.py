"""Bounds on models: sizes that the tool can handle, and consistent tensors.

A file of a few hundred bytes can demand gigabytes or hours. Such files are refused with a one-line message.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from onnx import FunctionProto, ModelProto, NodeProto, TensorProto

from surgery.base.operators.subgraphs import nested
from surgery.model.wire.tensors import STRING, all_tensors, is_external, payload_size

MOST_NODES: Final = 500_000
"""Maximum number of nodes, with function bodies counted per call: a graph of 100,000 nodes takes about a minute."""

LONGEST_NAME: Final = 1 << 16
"""Maximum length of names of nodes, values, operators and tensors; exporters write at most a few hundred bytes."""

_UNHURRIED: Final = 1 << 16
_COUNT: Final = {
    1: "float_data",
    6: "int32_data",
    7: "int64_data",
    11: "double_data",
    12: "uint64_data",
    13: "uint64_data",
}
_IN_INT32: Final = frozenset({2, 3, 4, 5, 9, 10, 16, 17, 18, 19, 20})
_TYPES: Final = frozenset(TensorProto.DataType.values()) - {0}


def fault(model: ModelProto, size: int) -> tuple[str, str] | None:
    """Return the problem of a skeleton of `size` bytes, and its remedy; None if there is no problem."""
    count = len(model.graph.node)
    if count <= MOST_NODES and model.functions:
        count = _called(model)
    if count > MOST_NODES:
        where = ", with each function where it is called" if model.functions else ""
        return f"it has {_many(count)} nodes{where}, but at most {MOST_NODES:,} are allowed", "split it first"
    if size > _UNHURRIED:
        for kind, name in _names(model.graph.node):
            if len(name) > LONGEST_NAME:
                return f"the name of a {kind} has {len(name):,} characters: '{name[:20]}...'", "give it a shorter name"
    for value in (*model.graph.input, *model.graph.output):
        kind = value.type.tensor_type.elem_type
        if kind and kind not in _TYPES:
            return f"'{value.name}' has the unknown element type {kind}", "write it with a known type"
    for tensor in all_tensors(model):
        problem = _of_tensor(tensor)
        if problem:
            return f"tensor '{tensor.name}' {problem}", "export it again"
    return None


def _many(count: int) -> str:
    return f"{count:,}" if count < 10**15 else f"10^{len(str(count)) - 1}"


def _called(model: ModelProto) -> int:
    """Count the nodes that a model has when each call of a function is replaced by its body."""
    functions = {(item.domain, item.name): item for item in model.functions}
    counts: dict[tuple[str, str], int] = {}
    # Iterative instead of recursive: the nesting of function calls is unbounded.
    pending = list(functions)
    waiting: set[tuple[str, str]] = set()
    while pending:
        key = pending[-1]
        missing = (
            [] if key in waiting else [inner for inner in _calls(functions[key].node, functions) if inner not in counts]
        )
        waiting.add(key)
        if missing:
            pending += [inner for inner in missing if inner not in waiting]
        if pending[-1] is key:
            pending.pop()
            # A function that calls itself, directly or indirectly, is invalid; the checker reports it.
            counts[key] = _sum(functions[key].node, counts)
    return _sum(model.graph.node, counts)


def _sum(nodes: Sequence[NodeProto], counts: dict[tuple[str, str], int]) -> int:
    return sum(counts.get((node.domain, node.op_type), 1) for node in nested(nodes))


def _calls(nodes: Sequence[NodeProto], functions: dict[tuple[str, str], FunctionProto]) -> list[tuple[str, str]]:
    found = dict.fromkeys((node.domain, node.op_type) for node in nested(nodes))
    return [key for key in found if key in functions]


def _names(nodes: Sequence[NodeProto]) -> Iterator[tuple[str, str]]:
    for node in nested(nodes):
        yield "node", node.name
        yield "operator", node.op_type
        for name in node.output:
            yield "value", name


def _of_tensor(tensor: TensorProto) -> str:
    """Return how a tensor contradicts its type and dims; empty if it is consistent. External data is checked before."""
    kind = tensor.data_type
    if kind not in _TYPES:
        return f"has the unknown element type {kind}"
    if any(dim < 0 for dim in tensor.dims):
        return f"has the dims {list(tensor.dims)}"
    if is_external(tensor):
        return ""
    if tensor.HasField("raw_data"):
        size = payload_size(kind, tensor.dims)
        if size is not None and kind != STRING and len(tensor.raw_data) != size:
            return f"has {len(tensor.raw_data):,} bytes, but its type and dims need {_many(size)}"
        return ""
    held = tensor.string_data if kind == STRING else getattr(tensor, _field(kind), None)
    elements = math.prod(tensor.dims)
    if held is not None and len(held) != elements:
        return f"has {len(held):,} elements, but its dims need {_many(elements)}"
    return ""


def _field(kind: int) -> str:
    """Return the field with one entry per element of a type; empty for types with packed or two-part entries."""
    return "int32_data" if kind in _IN_INT32 else _COUNT.get(kind, "uint64_data" if kind == 13 else "")
