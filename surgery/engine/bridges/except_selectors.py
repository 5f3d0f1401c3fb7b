"""The nodes that a step leaves alone, and whether a pass in another API did so.

They are selected by its `except`, or no measured value depends on them, so that the loss of a conversion is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import onnx_ir as ir

from surgery.base.errors import UsageError, first_few
from surgery.model import storage
from surgery.model.graph.excepted_edits import with_inner
from surgery.model.graph.graph import EXCEPTED, Graph
from surgery.model.graph.state import Refused
from surgery.model.graph.values import Node
from surgery.model.patterns.selector import NodeSelector
from surgery.model.storage.ir_scopes import scopes

_MOST_NAMED = 3
_AS_A_WHOLE = "this pass changes the model as a whole, so it cannot leave nodes alone"
UNMEASURED = "it touches a node on which no measured value depends: '"
_TOUCHED = {
    EXCEPTED: "what 'except' leaves alone",
    UNMEASURED: "nodes on which no measured value depends, and which --unverified accept converts",
}
_BODIES = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
_TENSORS = (ir.AttributeType.TENSOR, ir.AttributeType.SPARSE_TENSOR)


class NothingExceptedError(UsageError):
    """A selector of `except` selects nothing. This ends a run: the nodes that are meant would not be left alone."""


def excepted_nodes(
    selectors: Sequence[Any], graph: Graph, stored: storage.StoredModel | None = None
) -> dict[ir.Node, str]:
    """Return the nodes of a graph that selectors, in the form of recipes, select, with their subgraphs; and why.

    A selector may select nothing in the graph if it selects nodes of the original model, which earlier steps may have
    removed, or if that model is not given; otherwise raises NothingExceptedError.
    """
    found: list[ir.Node] = []
    original: Graph | None = None
    for one in map(NodeSelector.read, selectors):
        try:
            found += [node.ir for node in graph.select(one)]
        except UsageError as error:
            if stored is None:
                continue
            if original is None:
                original = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
            with suppress(UsageError):
                original.select(one)
                continue
            raise NothingExceptedError(f"'except' selects nothing: {error.what}") from None
    return dict.fromkeys(with_inner(found), EXCEPTED)


def unmeasured_nodes(graph: Graph, results: Collection[str]) -> dict[ir.Node, str]:
    """Return the nodes of a graph with these results, those of their subgraphs, and of the functions that they call."""
    found = [node for node in graph.ir.graph if any(value.name in results for value in node.outputs)]
    left, pending = set[ir.Node](), found
    while pending:
        new = with_inner(pending) - left
        left |= new
        called = {node.op_identifier() for node in new} & graph.ir.functions.keys()
        pending = [node for key in called for node in graph.ir.functions[key]]
    return dict.fromkeys(left, UNMEASURED)


def left_alone(refusals: Sequence[Refused]) -> str:
    """Describe the match sites that were refused because they touch excepted nodes; empty if there are none."""
    return "; ".join(filter(None, (_left_alone(refusals, reason) for reason in _TOUCHED)))


def _left_alone(refusals: Sequence[Refused], reason: str) -> str:
    found = {one.anchor: one.reason.removeprefix(reason) for one in refusals if one.reason.startswith(reason)}
    if not found:
        return ""
    if "" in found:  # a site of the whole model
        return f"nothing was changed: {reason}{found['']}"
    count, names = len(found), first_few([*dict.fromkeys(f"'{name}" for name in found.values())], _MOST_NAMED)
    return f"{count} match {'site touches' if count == 1 else 'sites touch'} {_TOUCHED[reason]}: {names}"


class Kept:
    """What excepted nodes are before a pass that may make another model: operators, attributes and constants."""

    def __init__(self, graph: Graph) -> None:
        self._before = {_key(node): (Node(graph, node).label, _described(node)) for node in graph.excepted}
        self._reasons = {_key(node): reason for node, reason in graph.excepted.items()}

    def lost(self, model: ir.Model) -> str:
        """Return the reason to refuse another model that lacks or changes an excepted node; empty if none does."""
        if not self._before:
            return ""
        nodes = [node for scope in scopes(model) for node in scope]
        after: Mapping[object, ir.Node] = {_key(node): node for node in nodes}
        for key, (label, described) in self._before.items():
            node = after.get(key)
            if node is None or _described(node) != described:
                return f"{self._reasons[key]}{label}'; {_AS_A_WHOLE}"
        return ""


def _key(node: ir.Node) -> object:
    """Return what identifies a node in another model: its name, else its outputs."""
    return node.name or tuple(value.name for value in node.outputs)


def _described(node: ir.Node) -> list[Any]:
    """Return the operator of a node, its attributes without subgraphs, and the constants that it reads."""
    attributes = [
        (name, _content(one.value) if one.type in _TENSORS and not one.is_ref() else str(one))
        for name, one in sorted(node.attributes.items())
        if one.type not in _BODIES
    ]
    constants = [_content(value.const_value) if value is not None else None for value in node.inputs]
    return [node.op_identifier(), attributes, constants]


def _content(tensor: Any) -> Any:
    return None if tensor is None else (tensor.dtype, [*tensor.shape], _bytes(tensor))


def _bytes(tensor: Any) -> Any:
    dense = hasattr(tensor, "tobytes") and getattr(tensor, "dtype", None) != ir.DataType.STRING
    return tensor.tobytes() if dense else str(tensor)
