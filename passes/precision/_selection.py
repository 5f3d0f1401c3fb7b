"""The nodes that a pass edits, by their operators and by the options of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from surgery import Graph, Node, NodeSelector

CONTRIB = frozenset({"Attention", "FusedMatMul"})
"""Operators of com.microsoft that options name without the domain."""


def selection(graph: Graph, nodes: NodeSelector | None, exclude: NodeSelector | None) -> Callable[[Node], bool]:
    """Return whether a node is selected and not excluded. Raise UsageError for a selector that selects nothing."""
    selected = None if nodes is None else set(graph.select(nodes))
    excluded = set() if exclude is None else set(graph.select(exclude))
    return lambda node: (selected is None or node in selected) and node not in excluded


def chosen(
    graph: Graph, ops: Sequence[str], nodes: NodeSelector | None = None, exclude: NodeSelector | None = None
) -> list[Node]:
    """List the nodes of these operators in the order of the graph: those selected, without those excluded.

    Raise UsageError for a selector that selects nothing.
    """
    operators = {f"com.microsoft::{op}" if op in CONTRIB else op for op in ops}
    is_chosen = selection(graph, nodes, exclude)
    return [node for node in graph.nodes() if node.op in operators and is_chosen(node)]


def refuse_fused(graph: Graph, *ops: str) -> None:
    """Refuse operators of com.microsoft that have no kernel with a quantized weight, where their parts have one."""
    for node in graph.nodes(*(f"com.microsoft::{op}" for op in ops)):
        if node.required_input(1).is_constant:
            with graph.site(node) as new:
                new.require(False, "only its parts have kernels with quantized weights; decompose it first")
