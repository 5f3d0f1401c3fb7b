"""A changed model that begins inside the original: nodes of the original compute what it is given.

So an extracted piece is run on what the original takes, and its outputs are compared with the original's own values.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import TYPE_CHECKING

from surgery.verify.inside.flow import Flow
from surgery.verify.matching import names_of, rename_values

if TYPE_CHECKING:
    import onnx


def obstacle(model: onnx.ModelProto, original: onnx.ModelProto, names: Collection[str]) -> str:
    """Say why the original cannot compute these inputs of a changed model; empty when it can."""
    flow = Flow(original.graph)
    unknown = next((name for name in names if name not in flow), None)
    if unknown is not None:
        return f"input '{unknown}' is new, and the original has no value of that name"
    versions = {item.domain: item.version for item in model.opset_import}
    for item in original.opset_import:
        if versions.get(item.domain, item.version) != item.version:
            what = f"{item.domain or 'ai.onnx'} {versions[item.domain]}, and the original {item.version}"
            return f"the original cannot compute input '{next(iter(names))}': the model imports {what}"
    return ""


def graft(model: onnx.ModelProto, original: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """Copy a changed model with nodes of the original above these inputs, which are values of the original.

    The result takes inputs of the original in their place. What is copied gets names that the changed model lacks.
    """
    import onnx

    stem, taken = _above(original, names), set(names_of(model.graph))
    ports = {value.name: value for value in original.graph.input}
    prefix = next(text for n in count() if not any(name.startswith(text := f"original_{n}/") for name in taken))
    kept = {*names, *ports}
    rename_values(stem, {name: f"{prefix}{name}" for name in names_of(stem) if name not in kept})
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    del graph.node[:]
    graph.node.extend([*stem.node, *model.graph.node])
    graph.initializer.extend(stem.initializer)
    graph.sparse_initializer.extend(stem.sparse_initializer)
    for port in [port for port in graph.input if port.name in names]:
        graph.input.remove(port)
    present = {port.name for port in graph.input}
    graph.input.extend(ports[name] for name in dict.fromkeys(_reads(stem)) if name in ports and name not in present)
    _add_definitions(result, original)
    return result


def _above(original: onnx.ModelProto, names: Collection[str]) -> onnx.GraphProto:
    """Cut out the nodes and constants that values are computed from."""
    import onnx

    flow, stem = Flow(original.graph), onnx.GraphProto()
    numbers = sorted(flow.above(names))
    stem.node.extend(flow.nodes[number] for number in numbers)
    read = {*names, *(name for number in numbers for name in flow.reads[number])}
    ports = set(flow.inputs)
    stem.initializer.extend(item for item in original.graph.initializer if item.name in read - ports)
    sparse = original.graph.sparse_initializer
    stem.sparse_initializer.extend(item for item in sparse if item.values.name in read - ports)
    return stem


def _reads(graph: onnx.GraphProto) -> list[str]:
    return [name for reads in Flow(graph).reads for name in reads]


def _add_definitions(model: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Import the domains and take over the functions that only the original has."""
    domains = {item.domain for item in model.opset_import}
    model.opset_import.extend(item for item in original.opset_import if item.domain not in domains)
    known = {(item.domain, item.name, item.overload) for item in model.functions}
    model.functions.extend(item for item in original.functions if (item.domain, item.name, item.overload) not in known)
