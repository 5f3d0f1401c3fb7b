"""Refresh of the declarations of values after an upstream edit that changes types or dims.

A declaration is kept, with the names that its author chose, if inference gives the same result as before the edit.
Any other is replaced by the inferred one, if known; for outputs of the model this changes the signature.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from surgery.model.shapes.facts import Dim, Fact, declarable, dims
from surgery.model.storage.ir_scopes import subgraphs

if TYPE_CHECKING:
    from surgery.model.graph.state import GraphState

_Known = tuple[ir.TypeProtocol | None, tuple[Dim, ...] | None]


class RefreshedDeclarations:
    """Created before a site is applied: clears the declarations of values and of all values downstream of them."""

    def __init__(self, graph: GraphState, starts: Iterable[ir.Value]) -> None:
        self._graph = graph
        self._declared = {value: Fact(value.type, value.shape) for value in _below(graph, starts)}
        self._clear()
        self._before = {value: self._known(value) for value in self._declared}

    def finish(self, replaced: Mapping[ir.Value, ir.Value]) -> None:
        """Declare changed values as inferred, and restore all other declarations; `replaced` maps old to new values."""
        # A replacement has the declaration of the value that it replaces, and none of its own.
        new = set(replaced.values())
        held = {value: replaced.get(value, value) for value in self._declared if value not in new}
        declared = {value: self._declared[old] for old, value in held.items()}
        before = {value: self._before[old] for old, value in held.items()}
        self._declared = declared
        self._clear()
        after = {value: self._known(value) for value in declared}
        for value, fact in declared.items():
            value.type, value.shape = fact.type, fact.shape
            kind, shape = after[value]
            if after[value] == before[value] or (fact.type is None and fact.shape is None):
                continue
            value.type = kind or (fact.type if value.is_graph_output() else None)
            if shape is not None or not value.is_graph_output():
                value.shape = None if shape is None else ir.Shape(declarable(shape))
        self._graph.facts.forget()

    def _clear(self) -> None:
        for value in self._declared:
            value.type = value.shape = None
        self._graph.facts.forget()

    def _known(self, value: ir.Value) -> _Known:
        facts = self._graph.facts
        fact = facts.of(value)
        shape = dims(fact.shape)
        if shape is None:
            return fact.type, None
        return fact.type, tuple(None if isinstance(dim, str) and facts.is_made_up(dim) else dim for dim in shape)


def _below(graph: GraphState, starts: Iterable[ir.Value]) -> dict[ir.Value, None]:
    """Return values and all values computed from them, also across subgraph and function boundaries."""
    holders = {inner: node for scope in graph.scopes for node in scope for inner in subgraphs(node)}
    owners = {function.graph: function.identifier() for function in graph.ir.functions.values()}
    found: dict[ir.Value, None] = {}
    pending = list(starts)
    while pending:
        value = pending.pop()
        if value in found:
            continue
        found[value] = None
        readers = [use.node for use in value.uses()]
        if value.is_graph_output() and value.graph in holders:
            readers.append(holders[value.graph])
        elif value.is_graph_output() and value.graph in owners:
            readers += [node for scope in graph.scopes for node in scope if node.op_identifier() == owners[value.graph]]
        for node in dict.fromkeys(readers):
            pending += [value for value in node.outputs if value.name]
            pending += [value for inner in subgraphs(node) for value in inner.inputs]
            function = graph.ir.functions.get(node.op_identifier())
            pending.extend(function.inputs if function is not None else ())
    # Declarations of model inputs and initializers are always valid.
    return {value: None for value in found if not value.is_initializer() and value not in graph.ir.graph.inputs}
