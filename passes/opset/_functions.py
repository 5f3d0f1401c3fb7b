"""Types of the values in the bodies of model-local functions, where all calls agree on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from surgery import Graph, Node, Refusal, Value

from . import _schemas, _types
from ._calls import Call
from ._lowering import Known

Kinds = tuple[str | None, ...]


class Calls:
    """Follows function calls from the main graph, and records the types of the values in their bodies."""

    def __init__(self, graph: Graph, known: Known) -> None:
        self.graph = graph
        self.known = known
        self._seen: dict[Any, Kinds] = {}

    def follow(self) -> None:
        """Record the types of the values of all functions, as far as their calls agree."""
        functions = self.graph.functions
        for node in self.graph.nodes() if functions else ():
            if not self.graph.in_function(node) and node.identifier in functions:
                self._enter(node)

    def _kind(self, value: Value | None) -> str | None:
        if value is None:
            return None
        return self.known.kinds.get(value) or _types.spelt(value.type)

    def _enter(self, node: Node) -> None:
        """Bind the inputs of a function and walk its body; types on which calls disagree are unknown."""
        identifier = node.identifier
        function = self.graph.functions[identifier]
        kinds = tuple(self._kind(value) for value in node.inputs)
        kinds += (None,) * (len(function.inputs) - len(kinds))
        if identifier in self._seen:
            same = tuple(one if one == other else None for one, other in zip(self._seen[identifier], kinds))
            if same == self._seen[identifier]:
                return
            kinds = same
        self._seen[identifier] = kinds
        for formal, kind in zip(function.inputs, kinds):
            self._note(Value(self.graph, formal), kind)
        for inner in function.all_nodes():
            self._walk(Node(self.graph, inner))
        for made, body in zip(node.outputs, function.outputs):
            self._note(made, self.known.kinds.get(Value(self.graph, body)))

    def _walk(self, node: Node) -> None:
        if node.identifier in self.graph.functions:
            self._enter(node)
            return
        for value, kind in zip(node.outputs, self._results(node)):
            self._note(value, kind)

    def _results(self, node: Node) -> Sequence[str | None]:
        version = None if node.domain else _schemas.version_at(node.op, node.opset)
        if version is None:
            return [None] * len(node.outputs)
        call = Call(node.op, version, node.inputs, node.attributes, len(node.outputs), node)
        try:
            return _types.results(call, [self._kind(value) for value in node.inputs])
        except Refusal:  # the type is a parameter of the function
            return [None] * len(node.outputs)

    def _note(self, value: Value, kind: str | None) -> None:
        if kind is not None:
            self.known.kinds[value] = kind
        else:
            self.known.kinds.pop(value, None)
