"""A changed model that begins inside the original: nodes of the original compute its inputs.

So an extracted piece is run on the inputs of the original, and its outputs are compared with the original's own values.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from itertools import count
from typing import TYPE_CHECKING

from surgery.base.operators.subgraphs import graphs
from surgery.model.proto.dataflow import Flow, reads
from surgery.model.proto.extract import function_key
from surgery.verification.comparing.ports import make_room, names_of, rename_values

if TYPE_CHECKING:
    import onnx


def obstacle(model: onnx.ModelProto, original: onnx.ModelProto, names: Collection[str]) -> str:
    """Return why the original cannot compute these inputs of a changed model; an empty string if it can.

    Another version of the default domain is not an obstacle yet, see `lifting`.
    """
    flow = Flow(original.graph)
    unknown = next((name for name in names if name not in flow), None)
    if unknown is not None:
        return f"input '{unknown}' is new, but the original has no value of that name"
    versions = {item.domain: item.version for item in model.opset_import}
    for item in original.opset_import:
        if item.domain and versions.get(item.domain, item.version) != item.version:
            what = f"{item.domain} {versions[item.domain]}, and the original {item.version}"
            return f"the original cannot compute input '{next(iter(names))}': the model imports {what}"
    return ""


def graft(
    model: onnx.ModelProto, original: onnx.ModelProto, names: Collection[str], stem: onnx.GraphProto
) -> onnx.ModelProto:
    """Copy a changed model with the nodes upstream of these inputs, which are values of the original, in `stem`.

    The result takes inputs of the original in their place. The added nodes and values get names that the changed model
    lacks, and a value of the changed model is renamed if an input of the original that is added has its name.
    """
    result, nodes = deepcopy(model), deepcopy(stem)
    graph = result.graph
    for port in [port for port in graph.input if port.name in names]:
        graph.input.remove(port)
    ports = {value.name: value for value in original.graph.input}
    present = {port.name for port in graph.input}
    read = {name for node in nodes.node for name in reads(node)} | {*names}
    added = [port for name, port in ports.items() if name in read and name not in present]
    make_room(graph, sorted({port.name for port in added} - {*names}))
    taken = set(names_of(graph))
    prefix = next(text for n in count() if not any(name.startswith(text := f"original_{n}/") for name in taken))
    kept = {*names, *ports}
    rename_values(nodes, {name: f"{prefix}{name}" for name in names_of(nodes) if name not in kept})
    for node in (node for inner in graphs(nodes) for node in inner.node):
        node.name = node.name and f"{prefix}{node.name}"  # a node may be in both
    body = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes.node, *body])
    # The default of an input is added with it.
    graph.initializer.extend(item for item in nodes.initializer if item.name not in present)
    graph.sparse_initializer.extend(nodes.sparse_initializer)
    graph.input.extend(added)
    _add_definitions(result, original)
    return result


def above(original: onnx.ModelProto, names: Collection[str]) -> onnx.GraphProto:
    """Cut out the nodes, constants and defaults that values are computed from."""
    import onnx

    flow, stem = Flow(original.graph), onnx.GraphProto()
    numbers = sorted(flow.above(names))
    stem.node.extend(flow.nodes[number] for number in numbers)
    read = {*names, *(name for number in numbers for name in flow.reads[number])}
    stem.initializer.extend(item for item in original.graph.initializer if item.name in read)
    stem.sparse_initializer.extend(item for item in original.graph.sparse_initializer if item.values.name in read)
    return stem


def _add_definitions(model: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Import the domains and add the functions that only the original has."""
    domains = {item.domain for item in model.opset_import}
    model.opset_import.extend(item for item in original.opset_import if item.domain not in domains)
    known = set(map(function_key, model.functions))
    model.functions.extend(item for item in original.functions if function_key(item) not in known)
