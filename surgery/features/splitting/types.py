"""Types and shapes of tensors that cross a cut, for the declarations of the inputs and outputs of pieces."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import onnx_ir as ir

from surgery.base.errors import UsageError
from surgery.model import storage
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Value
from surgery.model.shapes.facts import Dim, declarable

if TYPE_CHECKING:
    import onnx


class Types:
    """Declared or inferred types and dims of the values of a main graph; no weights are read."""

    def __init__(self, stored: storage.StoredModel) -> None:
        self._stored = stored

    @cached_property
    def _graph(self) -> Graph:
        return Graph(storage.ir_from_proto(self._stored.proto, self._stored.weights), weights=self._stored.weights)

    @cached_property
    def _values(self) -> dict[str, Value]:
        return {value.name: value for value in self._graph.values()}

    def __call__(self, name: str) -> onnx.ValueInfoProto:
        """Return the declaration of a value. UsageError if its type is unknown, because inputs must be typed."""
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
        """Return the dims of all values of known rank; a dim that is not a number is None."""
        found: dict[str, Sequence[int | None]] = {}
        for name, value in self._values.items():
            dims = value.shape
            if dims is not None:
                found[name] = [dim if isinstance(dim, int) else None for dim in dims]
        return found

    def _dims(self, value: Value) -> tuple[Dim, ...] | None:
        """Return the dims, without symbols made up by inference, which are used nowhere else."""
        facts, dims = self._graph.facts, value.shape
        if dims is None:
            return None
        return tuple(declarable([None if isinstance(dim, str) and facts.is_made_up(dim) else dim for dim in dims]))
