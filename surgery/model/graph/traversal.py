"""Traversal upstream and downstream of values in one scope.

A node with subgraphs also reads the values that these capture.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence

import onnx_ir as ir

from surgery.model.storage.ir_scopes import subgraphs


def reads(node: ir.Node) -> Sequence[ir.Value]:
    """List the values that a node and its subgraphs read, including values produced inside the subgraphs."""
    found = [value for value in node.inputs if value is not None]
    for subgraph in subgraphs(node):
        for inner in subgraph:
            found += reads(inner)
        found.extend(subgraph.outputs)
    return found


def above(scope: ir.Graph, ends: Iterable[ir.Value], stop: Container[ir.Value] = ()) -> dict[ir.Node, None]:
    """Find the nodes of a scope upstream of values, without going beyond the values in `stop`."""
    found: dict[ir.Node, None] = {}
    pending = list(ends)
    while pending:
        value = pending.pop()
        node = value.producer()
        if node is not None and node.graph is scope and node not in found and value not in stop:
            found[node] = None
            pending.extend(reads(node))
    return found


def below(scope: ir.Graph, starts: Iterable[ir.Value], stop: Container[ir.Value] = ()) -> dict[ir.Node, None]:
    """Find the nodes of a scope downstream of values, without going beyond the values in `stop`."""
    readers: dict[ir.Value, list[ir.Node]] = defaultdict(list)
    for node in scope:
        for value in dict.fromkeys(reads(node)):
            readers[value].append(node)
    found: dict[ir.Node, None] = {}
    pending = list(starts)
    while pending:
        value = pending.pop()
        for node in [] if value in stop else readers.get(value, []):
            if node not in found:
                found[node] = None
                pending.extend(node.outputs)
    return found


def between(scope: ir.Graph, starts: Iterable[ir.Value], ends: Iterable[ir.Value]) -> list[ir.Node]:
    """List, in order, the nodes on paths from starts to ends; all upstream without starts, all downstream without ends.

    Nodes that only supply operands to a path, such as a shape computation that does not begin at a start, are left out.
    """
    first, last = set(starts), set(ends)
    found = below(scope, first, last - first) if first else dict.fromkeys(scope)
    if last:
        upstream = above(scope, last, first - last)
        found = {node: None for node in found if node in upstream}
    return [node for node in scope if node in found]


def post_order(roots: Iterable[ir.Node | None], needs: Callable[[ir.Node], Iterable[ir.Node | None]]) -> list[ir.Node]:
    """List nodes and their dependencies, each after its dependencies, of which the last one is visited first."""
    order: dict[ir.Node, None] = {}
    opened: set[ir.Node] = set()
    for root in roots:
        stack = [root] if root is not None else []
        while stack:
            node = stack[-1]
            if node in order or node in opened:
                order[node] = None
                stack.pop()
                continue
            opened.add(node)
            stack.extend(needed for needed in needs(node) if needed is not None and needed not in opened)
    return list(order)
