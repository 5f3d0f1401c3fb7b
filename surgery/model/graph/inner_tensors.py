"""Tensors inside subgraphs and functions, which edits of the main graph cannot name, and the steps that help."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from surgery.model.graph.state import GraphState
from surgery.model.graph.values import Node
from surgery.model.storage.ir_scopes import values
from surgery.model.wire.globs import Globs

_LOOPS = ("Loop", "Scan")


def find_inner(graph: GraphState, name: str) -> ir.Value | None:
    """Return the first tensor outside of the main graph that a name or glob fits; None if there is none."""
    globs = Globs((name,))
    inner = (value for value in values(graph.scopes) if value.name and value.graph is not graph.ir.graph)
    return next((value for value in inner if value.name == name or globs.fit(value.name or "")), None)


def way_to(graph: GraphState, value: ir.Value, holders: Mapping[ir.Graph, Node]) -> tuple[str, str]:
    """Describe where an inner tensor is, and the steps that move it to the main graph; empty if there are none.

    `holders` are the nodes that contain subgraphs.
    """
    scope = _scope(value)
    around: list[Node] = []
    inner: list[ir.Graph] = []
    while scope is not None and scope in holders:
        inner.append(scope)
        around.append(holders[scope])
        scope = around[-1].scope
    function = next((one for one in graph.functions.values() if one.graph is scope), None)
    steps = ["inline-functions"] if function is not None else []
    for node, body in zip(reversed(around), reversed(inner)):
        step = "unroll-loop" if node.op in _LOOPS else "inline-if" if node.op == "If" else ""
        if not step:
            return _place(around, function), ""
        if node.op == "If" and function is None and (first := _fixing(node, body)):
            steps.append(first)
        steps.append(step)
    listed = ", then ".join(dict.fromkeys(steps))
    condition = ", if its number of iterations is constant" if "unroll-loop" in steps else ""
    name = f"'{graph.fresh(value.name or '')}' or alike"
    named = "has the name of the result that it becomes" if value.is_graph_output() else f"is named {name}"
    todo = f"first run {listed}{condition}; the tensor then {named}"
    return _place(around, function), todo if steps else ""


def _scope(value: ir.Value) -> ir.Graph | None:
    found = value.graph
    return found.graph if isinstance(found, ir.Function) else found


def _place(around: list[Node], function: ir.Function | None) -> str:
    if around:
        return f"of a subgraph of node '{around[0].label}' ({around[0].op})"
    return f"of the function {function.domain}::{function.name}" if function is not None else "of a subgraph"


def _fixing(node: Node, branch: ir.Graph) -> str:
    """Return the step that makes the condition of an If constant, so that it takes a branch; empty if it is."""
    condition = node.required_input(0)
    if condition.scalar is not None or (condition.elements is not None and len(condition.elements) == 1):
        return ""
    taken = int(node.attributes["then_branch"].as_graph() is branch)
    fixing = f"remove-inputs with {{inputs: {{{condition.name}: {taken}}}}}"
    return fixing if condition.is_input else f"cut with {{inputs: {condition.name}}} in a run of its own, then {fixing}"
