"""Entries: the nodes of a model with their scopes, for comparing and describing models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from surgery.base.json_record import Record
from surgery.model.proto import lineage
from surgery.model.proto.lineage import Lineage

if TYPE_CHECKING:
    import onnx

CONSTANT = "constant"
"""The operator name of an initializer entry."""
GRAPHS = (5, 10)
"""The types of attributes with subgraphs: AttributeProto.GRAPH and GRAPHS."""


@dataclass(frozen=True, eq=False)
class LineageEntry(Record, keys="op name scope"):
    """A node, or an initializer that a pass made.

    `name` is the name of the node, or its operator and outputs if it has none ("Relu -> y"). `scope` is empty for the
    main graph, "loop.body" for a subgraph of a node, and "local::f" for a function body.
    """

    op: str
    name: str
    scope: str
    lineage: Lineage | None
    node: onnx.NodeProto | None = field(default=None, repr=False)

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs; an omitted one is empty."""
        return [self.name] if self.node is None else list(self.node.output)

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs, without values that only subgraphs read."""
        return [] if self.node is None else list(self.node.input)

    def bodies(self) -> Iterator[tuple[str, onnx.GraphProto]]:
        """Yield the subgraphs of the node, each after the scope of its nodes."""
        for attribute in self.node.attribute if self.node is not None else ():
            if attribute.type in GRAPHS:
                graphs = attribute.graphs or [attribute.g]
                for number, graph in enumerate(graphs):
                    index = f"[{number}]" if attribute.graphs else ""
                    yield f"{self.scope}{'/' if self.scope else ''}{self.name}.{attribute.name}{index}", graph

    def __str__(self) -> str:
        # The name of an unnamed node begins with its operator already.
        return self.name if self.name.startswith(f"{self.op} -> ") else f"{self.op} '{self.name}'"


def entries(model: onnx.ModelProto) -> Iterator[LineageEntry]:
    """Yield the nodes of all scopes, in the order of each scope, and the initializers with a lineage."""
    yield from _of_graph(model.graph, "")
    for function in model.functions:
        yield from _of_nodes(function.node, function_name(function))


def function_name(function: onnx.FunctionProto) -> str:
    """Return the full name of a model-local function, which is also the scope of its nodes."""
    overload = f":{function.overload}" if function.overload else ""
    return f"{function.domain}::{function.name}{overload}"


def _of_graph(graph: onnx.GraphProto, scope: str) -> Iterator[LineageEntry]:
    for tensor in graph.initializer:
        known = _lineage(tensor)
        if known is not None:
            yield LineageEntry(CONSTANT, tensor.name, scope, known)
    yield from _of_nodes(graph.node, scope)


def _of_nodes(nodes: Iterable[onnx.NodeProto], scope: str) -> Iterator[LineageEntry]:
    for node in nodes:
        plain = node.domain in ("", "ai.onnx")
        name = node.name or f"{node.op_type} -> {', '.join(node.output)}"
        op = node.op_type if plain else f"{node.domain}::{node.op_type}"
        entry = LineageEntry(op, name, scope, _lineage(node), node)
        yield entry
        for body, graph in entry.bodies():
            yield from _of_graph(graph, body)


def _lineage(thing: onnx.NodeProto | onnx.TensorProto) -> Lineage | None:
    if not thing.metadata_props:
        return None
    return lineage.read({entry.key: entry.value for entry in thing.metadata_props})
