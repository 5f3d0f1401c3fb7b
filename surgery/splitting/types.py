"""Types and shapes of tensors that cross a cut, to be declared as inputs and outputs of pieces."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import onnx_ir as ir

from surgery import storage
from surgery.errors import UsageError
from surgery.graph.graph import Graph
from surgery.graph.values import Value
from surgery.shapes.facts import Dim, declarable

if TYPE_CHECKING:
    import onnx


class Types:
    """Types and dims of the values of a main graph, declared or inferred; no weight is read for them."""

    def __init__(self, stored: storage.StoredModel) -> None:
        self._stored = stored

    @cached_property
    def _graph(self) -> Graph:
        return Graph(storage.ir_from_proto(self._stored.proto, self._stored.weights), weights=self._stored.weights)

    @cached_property
    def _values(self) -> dict[str, Value]:
        return {value.name: value for value in self._graph.values()}

    def __call__(self, name: str) -> onnx.ValueInfoProto:
        """Declare a value. UsageError when its type is not known, and a model must say what it takes."""
        value = self._values[name]
        kind, dims = value.type, self._dims(value)
        if kind is None:
            raise UsageError(
                f"tensor '{name}' would cross from one piece to the next, but its type is unknown",
                todo="cut elsewhere, or declare it in the model",
            )
        declared = ir.Value(name=name, type=kind, shape=None if dims is None else ir.Shape(dims))
        return ir.serde.serialize_value(declared)

    def shapes(self) -> dict[str, Sequence[int | None]]:
        """Return the dims of all values whose rank is known; one that is no number is None."""
        found: dict[str, Sequence[int | None]] = {}
        for name, value in self._values.items():
            dims = value.shape
            if dims is not None:
                found[name] = [dim if isinstance(dim, int) else None for dim in dims]
        return found

    def _dims(self, value: Value) -> tuple[Dim, ...] | None:
        """Return the dims, without the symbols that inference made up: nothing else is called so."""
        facts, dims = self._graph.facts, value.shape
        if dims is None:
            return None
        return tuple(declarable([None if isinstance(dim, str) and facts.is_made_up(dim) else dim for dim in dims]))
