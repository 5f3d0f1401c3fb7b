"""The nodes that a step leaves alone, by the selectors of its `except`; and whether a pass in another API did so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
_BODIES = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
_TENSORS = (ir.AttributeType.TENSOR, ir.AttributeType.SPARSE_TENSOR)


class NothingExceptedError(UsageError):
    """A selector of `except` selects nothing. This ends a run: the nodes that are meant would not be left alone."""


def excepted_nodes(
    selectors: Sequence[Any], graph: Graph, stored: storage.StoredModel | None = None
) -> frozenset[ir.Node]:
    """Return the nodes of a graph that selectors, in the form of recipes, select, with their subgraphs.

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
    return with_inner(found)


def left_alone(refusals: Sequence[Refused]) -> str:
    """Describe the match sites that were refused because they touch excepted nodes; empty if there are none."""
    found = {one.anchor: one.reason.removeprefix(EXCEPTED) for one in refusals if one.reason.startswith(EXCEPTED)}
    if not found:
        return ""
    if "" in found:  # a site of the whole model
        return f"nothing was changed: {EXCEPTED}{found['']}"
    count, names = len(found), first_few([*dict.fromkeys(f"'{name}" for name in found.values())], _MOST_NAMED)
    return f"{count} match {'site touches' if count == 1 else 'sites touch'} what 'except' leaves alone: {names}"


class Kept:
    """What excepted nodes are before a pass that may make another model: operators, attributes and constants."""

    def __init__(self, graph: Graph) -> None:
        self._before = {_key(node): (Node(graph, node).label, _described(node)) for node in graph.excepted}

    def lost(self, model: ir.Model) -> str:
        """Return the reason to refuse another model that lacks or changes an excepted node; empty if none does."""
        if not self._before:
            return ""
        nodes = [node for scope in scopes(model) for node in scope]
        after: Mapping[object, ir.Node] = {_key(node): node for node in nodes}
        for key, (label, described) in self._before.items():
            node = after.get(key)
            if node is None or _described(node) != described:
                return f"{EXCEPTED}{label}'; {_AS_A_WHOLE}"
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
