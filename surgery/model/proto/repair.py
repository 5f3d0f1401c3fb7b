"""Node names that are used twice, nodes that come before what they read, and axes of Transposes that are negative.

Runtimes reject these. Editors and scripts write such files, and the TorchScript exporter of PyTorch writes negative
axes. The order of nodes that can run, new names for the later ones of a name, and axes counted from the front are the
same model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from surgery.base.operators.subgraphs import graphs, subgraphs

if TYPE_CHECKING:
    import onnx

    Scope = onnx.GraphProto | onnx.FunctionProto


def faults(model: onnx.ModelProto) -> str:
    """Say in words what `repaired` repairs; empty if that is nothing."""
    scopes = _scopes(model)
    twice = sorted({name for scope in scopes for name, count in _names(scope).items() if count > 1})
    unsorted = sum(not _is_sorted(scope) for scope in scopes)
    said = (
        [f"{len(twice)} node name{'s are' if len(twice) > 1 else ' is'} used twice, such as '{twice[0]}'"]
        if twice
        else []
    )
    said += ["nodes come before what they read"] if unsorted else []
    if count := sum(1 for scope in scopes for _ in _negative(scope)):
        said.append(f"{count} {'Transposes have' if count > 1 else 'Transpose has'} negative axes")
    return " and ".join(said)


def repaired(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy with unique node names, nodes in topological order and axes of Transposes counted from the front.

    Nodes that form a cycle stay as they are.
    """
    copy = deepcopy(model)
    for graph in _scopes(copy):
        taken, seen = set(_names(graph)), set[str]()
        for node in graph.node:
            if node.name in seen:
                node.name = _fresh(node.name, taken)
                taken.add(node.name)
            seen.update({node.name} - {""})
        if not _is_sorted(graph):
            _sort(graph)
        for perm in _negative(graph):
            perm.ints[:] = [axis % len(perm.ints) for axis in perm.ints]
    return copy


def _scopes(model: onnx.ModelProto) -> list[Scope]:
    """List the graphs of a model and the bodies of its functions, with all subgraphs."""
    inner = (body for function in model.functions for node in function.node for body in subgraphs(node))
    return [*graphs(model.graph), *model.functions, *(graph for body in inner for graph in graphs(body))]


def _names(graph: Scope) -> Counter[str]:
    return Counter(node.name for node in graph.node if node.name)


def _negative(graph: Scope) -> Iterator[onnx.AttributeProto]:
    """Yield the axes of Transposes that count some from the back, which ONNX does not define."""
    for node in graph.node:
        for perm in node.attribute if node.op_type == "Transpose" and node.domain in ("", "ai.onnx") else ():
            rank = len(perm.ints)
            if -rank <= min(perm.ints, default=0) < 0 and {axis % rank for axis in perm.ints} == {*range(rank)}:
                yield perm


def _fresh(name: str, taken: set[str]) -> str:
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def _reads(node: onnx.NodeProto) -> set[str]:
    """Return the names that a node and its subgraphs read, including those that a subgraph makes itself."""
    inner = (graph for body in subgraphs(node) for graph in graphs(body))
    read = {*node.input}
    for graph in inner:
        read.update(*(each.input for each in graph.node), (output.name for output in graph.output))
    return read - {""}


def _is_sorted(graph: Scope) -> bool:
    """Return whether no node reads what a later node makes."""
    later = {name for node in graph.node for name in node.output if name}
    for node in graph.node:
        # Subgraphs are few, and what they read is the only other thing that a node reads.
        if not later.isdisjoint(_reads(node) if any(subgraphs(node)) else node.input):
            return False
        later.difference_update(node.output)
    return True


def _sort(graph: Scope) -> None:
    """Sort the nodes, keeping the order of those that do not depend on each other as far as possible."""
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needs = {
        index: [makers[name] for name in sorted(_reads(node)) if name in makers and makers[name] != index]
        for index, node in enumerate(graph.node)
    }
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError:
        return
    nodes = [deepcopy(graph.node[index]) for index in order]
    del graph.node[:]
    graph.node.extend(nodes)
