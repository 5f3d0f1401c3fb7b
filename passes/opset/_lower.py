"""Conversion of all nodes of a model to an older opset: the blockers, or the edits of one site."""

from __future__ import annotations

from collections.abc import Sequence

from surgery import Builder, Graph, Node, Refusal, Value

from . import _schemas, _types
from ._calls import Call
from ._functions import Calls
from ._lowering import Known, Lowering, lacking
from ._shared import Draft

_FUNCTIONS_SINCE = 8
_DEFAULTS_SINCE = 4
"""The first IR version in which an initializer need not be an input."""


def highest(graph: Graph) -> int:
    """Return the newest opset of the default domain that the model or one of its functions imports."""
    return max(graph.opset, *(function.opset_imports.get("", 0) for function in graph.functions.values()), 0)


def downgrade(graph: Graph, new: Builder, target: int, lower_ir_version: bool) -> list[tuple[Node | None, str]]:
    """Convert all nodes of the default domain to opset `target` within one site; return blockers with reasons."""
    blockers: list[tuple[Node | None, str]] = []
    known, without = Known(), lacking(graph, target)
    Calls(graph, known).follow()
    functions = graph.functions
    for node in graph.nodes():
        call = node.identifier
        if node.domain or call in functions or node.opset <= target:
            continue
        try:
            _take(node, Lowering(node, new.at(node), target, known, without))
        except Refusal as refusal:
            blockers.append((node, refusal.reason))
    if graph.opset > target:
        new.set_opset(target)
    for function in functions.values():
        if function.opset_imports.get("", target) > target:
            new.set_opset(target, function=function)
    if lower_ir_version:
        reason = _lower_ir_version(graph, new, _schemas.ir_version_for(target))
        blockers += [(None, reason)] if reason else []
    return blockers


def _lower_ir_version(graph: Graph, new: Builder, version: int) -> str:
    """Lower the IR version; return a reason against it if the model uses a later feature, else an empty string."""
    if version < _FUNCTIONS_SINCE and graph.functions:
        return f"IR version {version} has no model-local functions; inline-functions removes them"
    if version < _DEFAULTS_SINCE:
        return f"in IR version {version} each initializer is an input"
    new.lower_ir_version(version)
    return ""


def _take(node: Node, place: Lowering) -> None:
    version = _schemas.version_at(node.op, node.opset)
    if version is None:
        raise Refusal(f"opset {node.opset} has no {node.op}")
    call = Call(node.op, version, node.inputs, node.attributes, len(node.outputs), node)
    made = place.lower(call)
    if node.op == "Scan":
        _declare_states(node, place)
    if made is None:
        casts, _ = _checked(call, place)
        if not casts:
            _edit(node, call, place)
            return
        made = place.emit(call)
    replace_outputs(node, made, place)


def _declare_states(node: Node, place: Lowering) -> None:
    """Declare the dims of the outputs of a Scan body: ONNX Runtime needs them, and infers them less well."""
    for value in node.attributes["body"].as_graph().outputs:
        known = Value(node.graph, value)
        if value.shape is None and known.shape is not None and value.producer() is not None:
            place.new.declare(known, known.type, known.shape)


def _checked(call: Call, place: Lowering) -> tuple[dict[int, str], list[str | None]]:
    """Return the result of `Lowering.types`; refuse unknown types, and output types that the version lacks."""
    node = call.node
    assert node is not None
    _types.require_known(call, [place.kind(value) for value in call.inputs], node.opset)
    _types.require_results(call, [place.kind(value) for value in node.outputs], place.target)
    return place.types(call)


def _edit(node: Node, call: Call, place: Lowering) -> None:
    """Apply the changes of a call to its node."""
    draft = Draft(node, place.new, place.target, {})
    draft.op, draft.inputs, draft.outputs = call.op, list(call.inputs), call.outputs
    for name in node.attributes:
        if name not in call.attributes:
            draft.take(name)
    for name, value in call.attributes.items():
        if value is not node.attributes.get(name):
            draft.set(name, value)
    draft.commit()


def replace_outputs(node: Node, made: Sequence[Value], place: Lowering) -> None:
    """Replace the outputs of a node with the new values."""
    for index, old in enumerate(node.outputs):
        if index < len(made):
            if old.name:
                _declare(old, made[index], place)
                place.new.replace(old, made[index])
        else:
            assert not old.is_used, f"output {index} of {node.op}"  # each rule refuses if it is


def _declare(old: Value, new: Value, place: Lowering) -> None:
    """Declare a new output of a subgraph like the output it replaces: Scan needs its shape."""
    if old.is_output and place.anchor.scope is not place.anchor.graph.main and new.producer is None:
        place.new.declare(new, old.type, old.shape)
