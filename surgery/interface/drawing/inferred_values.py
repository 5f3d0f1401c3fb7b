"""Facts: types of values and multiply-accumulates of nodes in one model, from shape inference."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain

import onnx_ir as ir

from surgery.features.inspection.costs import macs
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Node, Value
from surgery.model.shapes.facts import Dim
from surgery.model.shapes.symbols import shown
from surgery.model.storage import StoredModel, ir_from_proto
from surgery.model.storage.ir_scopes import nested

Name = tuple[str, str]
"""A value: the full name of its function, empty for the main graph, and its name."""


class Facts:
    """The types of the values of a model, as text, and the multiply-accumulates of its nodes.

    Nothing is computed before the first query. A node is identified by its first result.
    """

    def __init__(self, model: StoredModel) -> None:
        self._model = model
        self._types: dict[Name, str] | None = None
        self._macs: dict[Name, int | str] = {}

    def type_of(self, function: str, name: str) -> str:
        """Return the type of a value, such as "float[batch,768]"; empty if unknown."""
        return self._known().get((function, name), "")

    def macs_of(self, function: str, name: str) -> int | str | None:
        """Return the MACs of the node that produces a value: a number, or an expression in the names of dims."""
        self._known()
        return self._macs.get((function, name))

    def _known(self) -> dict[Name, str]:
        if self._types is None:
            self._types = {}
            graph = Graph(ir_from_proto(self._model.proto, self._model.weights), weights=self._model.weights)
            self._read(graph, "", graph.ir.graph)
            for key, function in graph.ir.functions.items():
                self._read(graph, f"{key[0]}::{key[1]}{f':{key[2]}' if key[2] else ''}", function.graph)
        return self._types

    def _read(self, graph: Graph, function: str, scope: ir.Graph) -> None:
        assert self._types is not None
        inputs = (value for inner in nested([scope]) for value in inner.inputs)
        outputs = (value for inner in nested([scope]) for node in inner for value in node.outputs)
        for value in chain(inputs, outputs):
            self._types.setdefault((function, value.name or ""), _typed(Value(graph, value)))
        for node in (node for inner in nested([scope]) for node in inner):
            counted = macs(Node(graph, node)) if node.outputs else None
            if counted is not None and counted.rough:
                self._macs[function, node.outputs[0].name or ""] = counted.to_json()


def _typed(value: Value) -> str:
    """Format type and dims: "float[batch,4]", "float" for a scalar, "float[...]" if the rank is unknown."""
    kind = value.dtype
    if kind is None:
        return "" if value.type is None else str(value.type)
    return _written(kind, value.shape)


@lru_cache(maxsize=4096)
def _written(kind: ir.DataType, shape: tuple[Dim, ...] | None) -> str:
    name = kind.name.lower()
    if shape is None:
        return f"{name}[...]"
    return f"{name}[{','.join(map(_dim, shape))}]" if shape else name


def _dim(dim: Dim) -> str:
    return "?" if dim is None else shown(dim) if isinstance(dim, str) else str(dim)
