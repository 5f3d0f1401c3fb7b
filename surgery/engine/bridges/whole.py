"""Passes over a whole model: conversion to the API of the pass, and back.

Such a pass is one site. It may refuse by raising `Refusal`; the model is then unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from surgery.base.errors import PassError
from surgery.engine.bridges.except_selectors import Kept
from surgery.engine.bridges.nodes_before import NodesBefore
from surgery.model import storage
from surgery.model.graph.graph import Graph
from surgery.model.graph.state import Refused, Site
from surgery.model.graph.values import Refusal
from surgery.model.wire.stored_lists import put_outside, stored_lists

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from surgery.engine.registry.passes import Pass

Call = Callable[[Any], Any]
"""The function of a pass with bound options, which takes the model and returns a new one or None."""


def apply(declared: Pass, graph: Graph, options: Mapping[str, Any]) -> None:
    """Run a pass over the whole model as its only site; do nothing if that site is to be skipped."""
    if 1 in graph.skip:
        graph.sites.append(Site(1, "", (), (), skipped=True))
        return
    with storage.Weights() as own:
        weights = graph.weights if graph.weights is not None else own
        before = storage.proto_from_ir(graph.ir, weights)
        nodes, kept = NodesBefore(graph), Kept(graph)
        try:
            made = _run(declared, graph.ir, before, weights, options)
            lost = kept.lost(made)
            if lost:
                raise Refusal(lost)
            graph.adopt(made)
        except Refusal as refusal:
            graph.adopt(storage.ir_from_proto(before, weights))
            graph.refusals.append(Refused("", refusal.reason))
            return
        after = storage.proto_from_ir(graph.ir, weights)
        if after.SerializeToString(deterministic=True) != before.SerializeToString(deterministic=True):
            graph.sites.append(nodes.account(graph))


def _run(
    declared: Pass,
    model: ir.Model,
    before: onnx.ModelProto,
    weights: storage.Weights,
    options: Mapping[str, Any],
) -> ir.Model:
    """Call the function of a pass with the model in its API, and return the result."""

    def call(given: Any) -> Any:
        returned = declared.function(given, **options)
        made = given if returned is None else returned
        if not isinstance(made, type(given)):
            kind = type(made).__name__
            raise PassError(f"pass '{declared.name}' returned a {kind}", todo=f"return the {declared.api} instead")
        return made

    # Each API is imported only when a pass is written in it.
    if declared.api == "onnx_ir.Model":
        made: ir.Model = call(model)
        if next(stored_lists(before), None) is None:
            return made
        # A copy that a pass makes of a model has the elements of long lists.
        skeleton = storage.proto_from_ir(made, weights)
        put_outside(skeleton, before)
        return storage.ir_from_proto(skeleton, weights)
    if declared.api == "gs.Graph":
        from surgery.engine.bridges import graphsurgeon

        return storage.ir_from_proto(graphsurgeon.run(before, weights, call), weights)
    from surgery.engine.bridges import proto

    return storage.ir_from_proto(proto.run(before, weights, call), weights)
